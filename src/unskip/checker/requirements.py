"""What several rules require of a certificate and its block."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from unskip.blocks import ResidualBlock
from unskip.certificates import Answer, Certificate, Scope
from unskip.errors import InvalidCertificate


def refuse(why: str) -> NoReturn:
    """Raise the one error of this package."""
    raise InvalidCertificate(f"certificate refused: {why}")


def expect(c: Certificate, data: Iterable[str], arrays: Iterable[str] = ()) -> None:
    """Nothing in a certificate may go unchecked, so its parts must be exactly the known ones."""
    if set(c.data) != set(data) or set(c.arrays) != set(arrays):
        refuse("it has parts that its rule does not know, or lacks some")


def index_below(c: Certificate, key: str, size: int) -> int:
    """An index in the certificate's data."""
    value = c.data[key]
    if type(value) is not int or not 0 <= value < size:
        refuse(f"{key} is not an index below {size}")
    return value


def index_set(c: Certificate, key: str, size: int) -> npt.NDArray[Any]:
    """A one-dimensional, strictly increasing array of indices below ``size``."""
    array = c.arrays[key].astype(np.int64)
    if array.ndim != 1 or (array.size and not 0 <= array.min() <= array.max() < size):
        refuse(f"{key} is not a list of indices below {size}")
    if not (array[1:] > array[:-1]).all():
        refuse(f"{key} is not strictly increasing")
    return array


def norm_is_injective(block: ResidualBlock) -> bool:
    """With ε > 0 and no zero gain, equal normed outputs have equal (centred) inputs."""
    if block.norm.placement != "post":
        return True
    gain_lost = block.norm_gain is not None and bool((block.norm_gain == 0).any())
    return block.norm_eps > 0 and not gain_lost


def require_injective_norm(block: ResidualBlock) -> None:
    """Refuse a following norm that discards more than a mean."""
    if not norm_is_injective(block):
        refuse("the following norm discards more than the statement says")


def lacks_biases(c: Certificate, block: ResidualBlock) -> bool:
    """The block uses hidden biases, and the replacement may have none."""
    return not c.assumptions.hidden_bias and any(b.any() for b in block.hidden_biases)


def require_bounds(c: Certificate, lower: float, upper: float) -> None:
    """Refuse bounds of the width that are tighter than the proved ones."""
    if c.width.lower > lower or c.width.upper < upper:
        refuse(f"its width bounds are not proved (proved: {lower} to {upper})")


def proved_answer(m: int, lower: float, upper: float) -> Answer:
    """What bounds of the minimal width prove about the width m."""
    if upper <= m:
        return Answer.ABSORBABLE
    return Answer.NOT_ABSORBABLE if lower > m else Answer.UNKNOWN


def claims_nothing(c: Certificate) -> str:
    """The certificate of an undecided block without bounds."""
    expect(c, ())
    if c.answer != Answer.UNKNOWN or c.scope != Scope.THIS_WIDTH:
        refuse("undecided means unknown, at this width")
    if c.defect is not None or c.width.lower > 0 or not math.isinf(c.width.upper):
        refuse("its bounds are not proved")
    return "nothing is claimed"
