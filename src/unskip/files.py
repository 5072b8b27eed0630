"""Writing files whole, and reading small JSON documents that may be hostile."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from unskip.errors import ModelError, UnskipError

__all__ = ["read_json_object", "refuse_existing", "require_file_place", "write_whole"]

#: No configuration or index is as large as this; a file that is, is not one.
LARGEST_JSON = 1 << 28


def write_whole(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same directory, then rename: whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise where ``path`` is a file, or a directory with something in it, unless forced."""
    occupied = any(path.iterdir()) if path.is_dir() else path.exists()
    if occupied and not force:
        raise UnskipError(f"{path} exists already", hint="choose another name or give --force")


def require_file_place(path: Path) -> None:
    """Raise where no file can be written at ``path``."""
    if path.is_dir() or not path.parent.is_dir():
        raise UnskipError(f"{path} cannot be a file: its directory is missing, or it is one")


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; raises :class:`ModelError` naming the file."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ModelError(f"{path} is too large to be a JSON document of a model")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ModelError(f"{path} holds no JSON object")
    return document
