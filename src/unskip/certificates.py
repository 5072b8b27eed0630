"""What a proof contains, and how it is stored.

A certificate is a *statement* (answer, scope, rule, the assumptions of the question, the
bounds) and the *data* that convinces a sceptic of it: a few integers, at most one integer
matrix and some sets of neurons.  It holds no weights; it is checked against the model's own.

On disk a certificate is ``NAME.json`` with, where it has arrays, ``NAME.safetensors``
beside it.  The JSON has exactly the keys of :data:`SCHEMA`: an unknown or missing key is an
error, so that nothing in the file goes unchecked.  ``docs/certificates.md`` specifies both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from unskip.errors import InvalidCertificate
from unskip.files import write_whole

__all__ = ["Answer", "Assumptions", "Certificate", "Interval", "Rule", "Scope", "remove_stale"]

FORMAT: Final = "unskip-certificate"
VERSION: Final = 1
SCHEMA: Final = frozenset(
    {"format", "version", "block", "answer", "scope", "rule", "assumptions", "activation"}
    | {"gated", "norm", "d", "m", "defect", "width", "data"}
)


class Answer(StrEnum):
    """Can the block's skip be absorbed?"""

    ABSORBABLE = "absorbable"
    NOT_ABSORBABLE = "not absorbable"
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """How far a "no" reaches.  A "yes" or "unknown" is about this width."""

    THIS_WIDTH = "this width"
    ANY_WIDTH = "any width"
    ANY_DEPTH = "any width, any depth"


class Rule(StrEnum):
    """What decided, with the theorem behind it."""

    reference: str

    def __new__(cls, value: str, reference: str) -> Rule:
        """A member that is its text and carries its reference."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.reference = reference
        return member

    HOMOGENEOUS_DEGREE = ("homogeneous-degree", "Mijoski & Karbevski 2026, Prop. 5")
    VANISHING_LINEARISATION = ("vanishing-linearisation", "Mijoski & Karbevski 2026, Prop. 6")
    SUBLINEAR_GROWTH = ("sublinear-growth", "theory §3, growth")
    EVEN_ACTIVATION = ("even-activation", "theory §3, parity")
    EVEN_RECESSION = ("even-recession", "theory §3, recession functions")
    ONE_SIDED_INDEPENDENCE = ("one-sided-independence", "theory §3, independence")
    PRE_NORM = ("pre-norm", "theory §3, bounded image of the norm")
    HIDDEN_BIAS = ("hidden-bias", "theory §6, uniqueness of the canonical form")
    LINEAR_RANK = ("linear-rank", "theory §3, rank of an affine map")
    INVISIBLE_SKIP = ("invisible-skip", "theory §3, Theorem 29")
    SUBSET_CONDITION = ("subset-condition", "Mijoski & Karbevski 2026, Thm 8, 10; theory §4–§6")
    GATED_CONDITION = ("gated-condition", "theory §9, flipped gates")
    SQUARED_CONDITION = ("squared-condition", "theory §9, Theorem 31")
    BOUNDED_RANK = ("bounded-rank", "theory §6, Theorem 30")
    MINIMAL_WIDTH = ("minimal-width", "theory §6, minimal width theorem")
    UNDECIDED = ("undecided", "bounds only")


@dataclass(frozen=True)
class Interval:
    """A closed interval that contains the true value; it unpacks to ``lower, upper``."""

    lower: float
    upper: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.lower, self.upper))

    def to_json(self) -> list[float | None]:
        """``[lower, upper]``, with ``null`` for infinity."""
        return [None if math.isinf(x) else x for x in self]


@dataclass(frozen=True)
class Assumptions:
    """What the question allows: "impossible" is only ever said together with this.

    ``hidden_bias`` and ``output_bias``: may the replacement have them?  ``modulo``: what
    the following norm discards, ``"nothing"`` or ``"mean"`` (post-LayerNorm).
    ``slopes_kept``: PReLU's slopes are parameters, and the replacement has those of the block.
    """

    hidden_bias: bool
    output_bias: bool
    modulo: str = "nothing"
    slopes_kept: bool = False

    def __str__(self) -> str:
        hidden = "may have hidden biases" if self.hidden_bias else "has no hidden biases"
        output = "may have an output bias" if self.output_bias else "has no output bias"
        text = f"the replacement {hidden} and {output}"
        if self.slopes_kept:
            text += ", with the PReLU slopes of the block"
        if self.modulo == "mean":
            text += "; outputs are compared up to their mean, which the LayerNorm discards"
        return text


@dataclass(frozen=True, eq=False)
class Certificate:
    """A statement about one block, and the data that proves it.

    ``data`` holds the small facts of the rule (see ``docs/certificates.md``); ``arrays`` the
    matrix ``dual`` (an integer type) and the index sets ``achieved``, ``twins``, ``flipped``,
    ``basis_rows`` and ``basis_columns`` (int32).  ``block`` is only a label.
    """

    block: str
    answer: Answer
    scope: Scope
    rule: Rule
    assumptions: Assumptions
    activation: str
    gated: bool
    norm: str
    d: int
    m: int
    defect: Interval | None
    width: Interval
    data: Mapping[str, int | str | bool] = field(default_factory=dict)
    arrays: Mapping[str, npt.NDArray[np.signedinteger[Any]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The statement and the data without the arrays."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "block": self.block,
            "answer": self.answer.value,
            "scope": self.scope.value,
            "rule": self.rule.value,
            "assumptions": {
                "hidden_bias": self.assumptions.hidden_bias,
                "output_bias": self.assumptions.output_bias,
                "modulo": self.assumptions.modulo,
                "slopes_kept": self.assumptions.slopes_kept,
            },
            "activation": self.activation,
            "gated": self.gated,
            "norm": self.norm,
            "d": self.d,
            "m": self.m,
            "defect": None if self.defect is None else self.defect.to_json(),
            "width": self.width.to_json(),
            "data": dict(self.data),
        }

    @classmethod
    def from_json(
        cls, document: Any, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> Certificate:
        """Read a statement; raises :class:`InvalidCertificate` where it breaks the schema."""
        try:
            return cls._parse(document, arrays or {})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidCertificate(f"malformed certificate: {error}") from None

    @classmethod
    def _parse(cls, document: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Certificate:
        if not isinstance(document, dict) or set(document) != SCHEMA:
            raise ValueError("its keys are not those of the format")
        version = document["version"]
        if document["format"] != FORMAT or type(version) is not int or version != VERSION:
            raise ValueError(f"not version {VERSION} of the format {FORMAT}")
        assumptions = document["assumptions"]
        flagged = ("hidden_bias", "output_bias", "slopes_kept")
        if set(assumptions) != {*flagged, "modulo"}:
            raise ValueError("the keys of assumptions are not those of the format")
        flags = (*(assumptions[flag] for flag in flagged), document["gated"])
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError("gated and the biases must be true or false")
        if assumptions["modulo"] not in ("nothing", "mean"):
            raise ValueError("modulo must be nothing or mean")
        for key in ("d", "m"):
            if type(document[key]) is not int or document[key] < 1:
                raise ValueError(f"{key} must be a positive integer")
        for key in ("block", "activation", "norm"):
            if not isinstance(document[key], str):
                raise ValueError(f"{key} must be a string")
        if not isinstance(document["data"], dict) or not all(
            type(value) in (int, str, bool) for value in document["data"].values()
        ):
            raise ValueError("data must map names to integers, strings or booleans")
        for name, array in arrays.items():
            if array.dtype.kind != "i":
                raise ValueError(f"the array {name} is not of a signed integer type")
        defect = document["defect"]
        return cls(
            block=document["block"],
            answer=Answer(document["answer"]),
            scope=Scope(document["scope"]),
            rule=Rule(document["rule"]),  # type: ignore[call-arg]  # lookup by value
            assumptions=Assumptions(**assumptions),
            activation=document["activation"],
            gated=document["gated"],
            norm=document["norm"],
            d=document["d"],
            m=document["m"],
            defect=None if defect is None else _interval(defect),
            width=_interval(document["width"]),
            data=document["data"],
            arrays=dict(arrays),
        )

    def save(self, directory: str | Path, name: str | None = None) -> Path:
        """Write ``NAME.json`` (and ``NAME.safetensors``) and return the JSON's path.

        ``name`` defaults to the block's label.  Each file appears whole or not at all.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        stem = quote(name or self.block or "block", safe=" ")
        if not self.arrays:
            (directory / f"{stem}.safetensors").unlink(missing_ok=True)
        else:
            arrays = {k: np.ascontiguousarray(v) for k, v in self.arrays.items()}
            write_whole(directory / f"{stem}.safetensors", save(arrays))
        text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        path = directory / f"{stem}.json"
        write_whole(path, text.encode())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read ``NAME.json`` and its arrays; raises :class:`InvalidCertificate`."""
        path = Path(path)
        beside = path.with_name(path.name.removesuffix(".json") + ".safetensors")
        try:
            document = json.loads(
                path.read_bytes(),
                parse_constant=_refuse_constant,
                object_pairs_hook=_without_repetition,
            )
            arrays = load_file(beside) if beside.exists() else {}
        except (OSError, ValueError, SafetensorError, RecursionError) as error:
            raise InvalidCertificate(f"{path}: cannot be read: {error}") from None
        try:
            return cls.from_json(document, arrays)
        except InvalidCertificate as error:
            raise InvalidCertificate(f"{path}: {error.message}") from None


def remove_stale(directory: Path, *, keep: Iterable[str]) -> None:
    """Delete the certificates in ``directory`` whose file names are not in ``keep``.

    Only what says that it is one; other files stay.
    """
    kept = set(keep)
    for path in directory.glob("*.json"):
        if path.name not in kept and _is_certificate(path):
            path.unlink()
            path.with_name(path.name.removesuffix(".json") + ".safetensors").unlink(missing_ok=True)


def _is_certificate(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def _interval(pair: Any) -> Interval:
    lower, upper = pair
    for x in (lower, upper):
        if x is not None and not (type(x) in (int, float) and abs(x) < 2**1023):
            raise ValueError("a bound is not a number")
    return Interval(*(math.inf if x is None else float(x) for x in (lower, upper)))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")
