"""The form of an ungated block that depends on the function alone (theory §6).

Write σ(z) = (κ/2) z + e(z) with e even.  Neurons that are one neuron in the sense of the
activation's uniqueness theorem are added up, and

    F(x) = Σ_{h∈H} k_h e(n_h·x + β_h) + L x + const,      L = A + (κ/2) Σ_j d_j u_jᵀ.

For a piecewise linear σ with its kink at 0 (ReLU, LeakyReLU, PReLU with any slopes, |z|) the
even part is a multiple of |z|, so e = |z| serves all of them: the (n_h, β_h) are the
hyperplanes at which F has a kink, k_h half the jump of the gradient there, and blocks of
different slopes have comparable forms.  For GELU, SiLU, softplus and their like the groups are
the exact ±(u, b).

Everything is exact: weights are dyadic rationals, the coefficients are fractions, and one
product of integer matrices gives L.  Neurons are grouped by a dictionary, never in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import flint
import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from unskip.activations import Activation, Independence, Smoothness
from unskip.blocks import NormKind, PlainBlock, ResidualBlock
from unskip.decision.exact import integers
from unskip.errors import BlockError

__all__ = ["CanonicalForm", "canonical_form"]

Array = npt.NDArray[np.float64]
Vector = tuple[Fraction, ...]
ZERO = Fraction(0)


@dataclass(frozen=True, eq=False)
class CanonicalForm:
    """F(x) = Σ_h k_h e(n_h·x + β_h) + L x + const on R^d, in exact fractions.

    Two forms are equal when they are so term by term; equal forms are the same function.
    Where both are ``unique`` and have the same ``activation``, different kinks or a different
    linear part are a different function (§6).  An affine form, without kinks, is
    comparable with every other one.
    """

    d: int
    #: What e is: ``"abs"`` for |z|, else the name of the activation whose even part it is.
    activation: str
    #: (n_h, β_h) of d + 1 entries → k_h of d entries, not all zero.  The first nonzero entry
    #: of n_h is 1 where e = |z|, and positive otherwise.
    kinks: Mapping[Vector, Vector]
    #: L: d rows of d entries.
    linear: tuple[Vector, ...]
    #: The rational constant: d entries.
    constant: Vector
    #: |b| → output column of d entries: neurons with zero input weights, whose constant value
    #: e(b) is not rational.  Empty where e = |z|.
    constants: Mapping[Fraction, Vector]
    #: Whether a uniqueness theorem applies to the kinks.
    unique: bool
    #: Above 0: neurons closer than this were merged, and the form is an approximation.
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name in ("kinks", "constants"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def width(self) -> int:
        """|H|: no residual-free block of fewer neurons is this function, if unique."""
        return len(self.kinks)

    @property
    def affine(self) -> bool:
        """Whether nothing but L x + const is left, with const rational."""
        return not self.kinks and not self.constants

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CanonicalForm):
            return NotImplemented
        same_kind = self.activation == other.activation or (self.affine and other.affine)
        return (
            same_kind
            and (self.d, self.tolerance) == (other.d, other.tolerance)
            and (self.linear, self.constant) == (other.linear, other.constant)
            and self.kinks == other.kinks
            and self.constants == other.constants
        )

    def __hash__(self) -> int:
        return hash((self.linear, self.constant, self.width))

    def __str__(self) -> str:
        even = "|z|" if self.activation == "abs" else f"the even part of {self.activation}"
        kinks = "1 kink" if self.width == 1 else f"{self.width} kinks"
        linear = "a" if any(map(any, self.linear)) else "no"
        constant = "a" if any(self.constant) or self.constants else "no"
        parts = f"{kinks} of {even}, {linear} linear part, {constant} constant"
        if self.tolerance:
            return f"on R^{self.d}, approximately (within {self.tolerance:g}): {parts}"
        return f"on R^{self.d}: {parts}; {'unique' if self.unique else 'not unique'}"


def canonical_form(block: ResidualBlock | PlainBlock, *, tolerance: float = 0.0) -> CanonicalForm:
    """The canonical form of an ungated block without a norm, whose σ is parity-linear.

    Exact for ``tolerance=0``, in O(md) fractions and one integer product d×m×(d+1).

    **Theorem** (§6).  The form is unique: it is determined by the function F alone.  Reasons:
    a piecewise linear function determines its kinks; the even parts of GELU-like neurons decay
    at different rates; those of SiLU, QuickGELU and softplus have different poles; those of
    squareplus different branch points.  HardSwish is the exception, since distinct neurons
    with parallel rows can add up to zero; ``unique`` is false when the form has such rows.

    Neurons with u = 0 are constants.  Their value is rational where e = |z|; for other
    activations they are kept apart by |b|, so that the form stays exact.

    ``tolerance > 0``: normalised rows that differ by at most ``tolerance`` in every entry are
    merged (chains of such rows too, into the first one), and columns k_h without an entry
    above it are dropped.  The result is an *approximation that proves nothing*, and dividing by
    a small leading entry can keep apart what is close; it costs O(m²d).

    Raises :class:`BlockError` for gated blocks, blocks with a norm (``block.inner()`` drops
    it), and activations for which no uniqueness theorem is known.
    """
    _refuse(block)
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise BlockError(f"the tolerance is {tolerance!r}", hint="it must be finite and ≥ 0")
    even = _even_part(block)
    up, bias = _dense(block.w_up), _vector(block.b_up, block.m)
    rows, down = np.column_stack([up, bias]), _dense(block.w_down)
    kinks = _kinks(rows, down, even)
    if tolerance:
        kinks = _merged(kinks, tolerance)
    linear, constant = _affine_part(block, rows, down, even.kappa)
    constants = _constants(block.activation, rows, down)
    if even.homogeneous:
        constant = _with_constants(constant, rows, down, even)
        constants = {}
    directional = block.activation.facts.independence is Independence.DIRECTION
    return CanonicalForm(
        d=block.d,
        activation=even.name,
        kinks=kinks,
        linear=linear,
        constant=constant,
        constants=constants,
        unique=not tolerance and not (directional and _has_parallel_rows(kinks)),
        tolerance=float(tolerance),
    )


def _refuse(block: ResidualBlock | PlainBlock) -> None:
    if block.gated:
        raise BlockError("a gated block has no canonical form here")
    if isinstance(block, ResidualBlock) and block.norm is not NormKind.NONE:
        raise BlockError(
            f"a block with a norm ({block.norm}) has no canonical form",
            hint="block.inner() is the same without its norm",
        )


@dataclass(frozen=True)
class _EvenPart:
    """σ_j(z) = (κ_j/2) z + c_j e(z): e by its name, and the constants of the m neurons."""

    name: str
    kappa: Vector
    coefficients: Vector
    #: e = |z|, so that positive multiples of a row are one neuron.
    homogeneous: bool


def _even_part(block: ResidualBlock | PlainBlock) -> _EvenPart:
    """From facts alone: a σ of degree 1 is σ(1)·z for z > 0, hence c = σ(1) − κ/2."""
    activation, m = block.activation, block.m
    facts, kappa = activation.facts, activation.parity_constants(m)
    if kappa is not None and has_single_kink(activation):
        slopes = activation(np.ones(m)).tolist()
        coefficients = tuple(Fraction(s) - k / 2 for s, k in zip(slopes, kappa, strict=True))
        return _EvenPart("abs", kappa, coefficients, homogeneous=True)
    if kappa is None or facts.independence not in (Independence.SIGN, Independence.DIRECTION):
        raise BlockError(f"no uniqueness theorem is known for {activation.name} neurons")
    return _EvenPart(activation.name, kappa, (Fraction(1),) * m, homogeneous=False)


def has_single_kink(activation: Activation) -> bool:
    """Whether σ(z) = σ(1) z for z ≥ 0 and −σ(−1) z for z ≤ 0, so that |z| spans its even part."""
    facts = activation.facts
    return facts.smoothness is Smoothness.PIECEWISE_LINEAR and facts.homogeneity == 1


def _dense(weights: npt.NDArray[np.generic]) -> Array:
    return weights.astype(np.float64)


def _vector(weights: npt.NDArray[np.generic] | None, size: int) -> Array:
    return np.zeros(size) if weights is None else _dense(weights)


def _kinks(rows: Array, down: Array, even: _EvenPart) -> dict[Vector, Vector]:
    """(n_h, β_h) → k_h of the groups that do not cancel.

    Grouped by cheap keys (bytes, or coprime integers) that are equal exactly when the
    normalised rows are, since hashing a fraction costs as much as making one.
    """
    alive = rows[:, :-1].any(axis=1) & down.any(axis=0)
    keys: dict[bytes | tuple[int, ...], Vector] = {}
    sums: dict[bytes | tuple[int, ...], Vector] = {}
    for j in np.flatnonzero(alive).tolist():
        factor = even.coefficients[j]
        if not factor:
            continue
        key: bytes | tuple[int, ...]
        if even.homogeneous:
            key, row, size = _hyperplane(rows[j])
            factor *= size
        else:
            key, row = _up_to_sign(rows[j])
        column = _times(down[:, j], factor)
        keys.setdefault(key, row)
        sums[key] = _sum(sums[key], column) if key in sums else column
    return {keys[key]: column for key, column in sums.items() if any(column)}


def _hyperplane(row: Array) -> tuple[tuple[int, ...], Vector, Fraction]:
    """Coprime integers, (n, β) with leading entry 1, and |t| such that (u, b) = t (n, β)."""
    numbers, exponent = integers(row)
    lead = next(n for n in numbers if n)
    divisor = math.gcd(*numbers) * (1 if lead > 0 else -1)
    size = abs(lead) * Fraction(2) ** exponent
    coprime = tuple(n // divisor for n in numbers)
    lead //= divisor
    return coprime, tuple(Fraction(n, lead) if n else ZERO for n in coprime), size


def _up_to_sign(row: Array) -> tuple[bytes, Vector]:
    lead = row[np.argmax(row != 0)]
    signed = (row if lead > 0 else -row) + 0.0  # −0 becomes 0
    return signed.tobytes(), _exact(signed)


def _exact(values: Array) -> Vector:
    pairs = [x.as_integer_ratio() for x in values.tolist()]  # two integers: the quick way in
    return tuple(Fraction(n, q) if n else ZERO for n, q in pairs)


def _times(column: Array, factor: Fraction) -> Vector:
    if factor == 1:
        return _exact(column)
    numbers, exponent = integers(column)
    unit = factor * Fraction(2) ** exponent
    top, bottom = unit.numerator, unit.denominator
    return tuple(Fraction(n * top, bottom) if n else ZERO for n in numbers)


def _sum(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _affine_part(
    block: ResidualBlock | PlainBlock, rows: Array, down: Array, kappa: Vector
) -> tuple[tuple[Vector, ...], Vector]:
    """[L | const] = [A | c] + D diag(κ/2) [U | b], one product of integer matrices."""
    d, m = block.d, block.m
    denominator = math.lcm(*(k.denominator for k in kappa)) * 2
    weights = [int(k * denominator) // 2 for k in kappa]
    left, left_exponent = integers(down)
    right, right_exponent = integers(rows)
    scaled = [value * weights[i % m] for i, value in enumerate(left)]
    product = flint.fmpz_mat(d, m, scaled) * flint.fmpz_mat(m, d + 1, right)
    unit = Fraction(2) ** (left_exponent + right_exponent) / denominator
    top, bottom = unit.numerator, unit.denominator
    offset = np.zeros((d, d + 1))
    offset[:, d] = _vector(block.b_down, d)
    if isinstance(block, ResidualBlock):
        offset[:, :d] = block.skip_matrix
    total = []
    for numbers, entries in zip(product.tolist(), offset.tolist(), strict=True):
        pairs = zip(numbers, entries, strict=True)
        row = [(Fraction(int(n) * top, bottom), x) for n, x in pairs]
        total.append([y + Fraction(x) if x else y for y, x in row])
    return tuple(tuple(row[:d]) for row in total), tuple(row[d] for row in total)


def _constant_neurons(rows: Array, down: Array) -> list[int]:
    constant = ~rows[:, :-1].any(axis=1) & down.any(axis=0)
    return np.flatnonzero(constant).tolist()


def _with_constants(constant: Vector, rows: Array, down: Array, even: _EvenPart) -> Vector:
    """Plus c_j |b_j| d_j of the neurons with u_j = 0."""
    for j in _constant_neurons(rows, down):
        value = even.coefficients[j] * abs(Fraction(float(rows[j, -1])))
        constant = _sum(constant, _times(down[:, j], value))
    return constant


def _constants(activation: Activation, rows: Array, down: Array) -> dict[Fraction, Vector]:
    """|b| → Σ d_j over the neurons with u_j = 0; e(0) = σ(0), which may be known to be 0."""
    sums: dict[Fraction, Vector] = {}
    for j in _constant_neurons(rows, down):
        size = abs(Fraction(float(rows[j, -1])))
        if size or activation.facts.value_at_zero != 0:
            column = _times(down[:, j], Fraction(1))
            sums[size] = _sum(sums[size], column) if size in sums else column
    return {size: column for size, column in sums.items() if any(column)}


def _has_parallel_rows(kinks: Mapping[Vector, Vector]) -> bool:
    directions = set()
    for *normal, _ in kinks:
        lead = next(x for x in normal if x)
        directions.add(tuple(x / lead for x in normal))
    return len(directions) < len(kinks)


def _merged(kinks: dict[Vector, Vector], tolerance: float) -> dict[Vector, Vector]:
    """Single linkage in the maximum norm, in floating point."""
    rows = list(kinks)
    if len(rows) > 1:
        points = np.array([[nearest(x) for x in row] for row in rows])
        with np.errstate(over="ignore"):
            near = cdist(points, points, "chebyshev") <= tolerance
        labels = connected_components(near, directed=False)[1].tolist()
    else:
        labels = [0] * len(rows)
    first: dict[int, Vector] = {}
    sums: dict[Vector, Vector] = {}
    for row, label in zip(rows, labels, strict=True):
        chosen = first.setdefault(label, row)
        sums[chosen] = _sum(sums[chosen], kinks[row]) if chosen in sums else kinks[row]
    return {row: column for row, column in sums.items() if max(map(abs, column)) > tolerance}


def nearest(x: Fraction) -> float:
    """Rounded to float64, at most its largest number."""
    try:
        return float(x)
    except OverflowError:
        largest = float(np.finfo(np.float64).max)
        return largest if x > 0 else -largest
