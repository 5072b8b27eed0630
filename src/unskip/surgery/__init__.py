"""Writing plain models.

plan.py         what changes block by block, and what it costs
plainfile.py    plain blocks in a .safetensors of their own
"""

from __future__ import annotations

from unskip.surgery.plainfile import plain_file
from unskip.surgery.plan import Rewrite, Width, rewrites

__all__ = ["Rewrite", "Width", "plain_file", "rewrites"]
