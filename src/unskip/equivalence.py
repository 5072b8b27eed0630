"""Are two blocks the same function?  Proved where a theorem reaches, measured elsewhere.

Equality is only ever said with a proof: the blocks have the same neurons, or their canonical
forms coincide (theory §6).  A difference is proved where the forms are unique.  All else
is a search for an input at which the blocks differ, and its outcome says that it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import flint
import numpy as np
import numpy.typing as npt

from unskip.blocks import NormKind, PlainBlock, ResidualBlock
from unskip.canonical import CanonicalForm, canonical_form, has_single_kink, nearest
from unskip.decision.exact import integers
from unskip.errors import BlockError

__all__ = ["Equivalence", "compare"]

Array = npt.NDArray[np.float64]
Block = ResidualBlock | PlainBlock
Vector = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Whether two blocks are the same function on R^d, and how that is known.

    ``equal`` is ``True`` only with a proof.  ``False`` without one means that they differ at
    ``where`` by more than rounding explains; ``None`` that no such input was found.
    """

    proved: bool
    equal: bool | None
    #: The largest deviation seen, max over the outputs of |a(x) − b(x)|; 0 where equal.
    max_error: float
    #: ``max_error`` divided by the largest output of either block at ``where``.
    relative_error: float
    #: The input of that deviation, of shape (d,); ``None`` where there is none to show.
    where: Array | None
    #: What the answer rests on.
    reason: str
    #: Inputs at which the blocks were evaluated.
    samples: int = 0
    #: Whether ``max_error`` is the deviation in exact arithmetic, not in float64.
    exact: bool = False

    @property
    def ulps(self) -> float:
        """``relative_error`` in units of the last place of float64."""
        return self.relative_error * 2.0**52

    def __str__(self) -> str:
        size = f"{self.max_error:.3g} (relative {self.relative_error:.3g})"
        seen = f"the largest deviation at {self.samples} inputs is {size}"
        if self.proved and self.equal:
            return f"equal, proved: {self.reason}"
        if self.proved:
            how = "exactly" if self.exact else "in float64"
            shown = f"by {size} {how}" if self.where is not None else "too little to be seen"
            return f"different, proved: {self.reason}; they differ {shown}"
        if self.equal is False:
            return f"different, by measurement: {seen}, more than rounding explains; {self.reason}"
        return f"undecided: {seen}, a measurement and no proof; {self.reason}"


def compare(
    a: Block,
    b: Block,
    *,
    inputs: npt.ArrayLike | None = None,
    samples: int = 4096,
    seed: int = 0,
) -> Equivalence:
    """Whether ``a`` and ``b``, blocks of the same d, are the same function on R^d.

    Proofs, in this order: the same neurons in any order (every kind of block); equal canonical
    forms (ungated, parity-linear, see :func:`canonical_form`), through a norm after the
    block too; different ones, where they are unique.  Through a norm a difference is proved
    only if its ε > 0 and no gain is 0, since then N(y) determines y (LayerNorm: up to its mean).

    Otherwise a measurement: random inputs of several sizes with both signs, points on and
    beside the kinks of a sample of neurons, the given ``inputs`` of shape (n, d), then a few
    steps of random ascent from the worst of them.  About 2·``samples`` evaluations.

    For piecewise linear blocks that are proved different, ``where`` and ``max_error`` come
    from exact arithmetic, so that even a difference of one unit in the last place is real.
    Raises :class:`BlockError` when the dimensions do not fit.
    """
    if a.d != b.d:
        raise BlockError(f"blocks of different dimensions: {a.d} and {b.d}")
    if samples < 1:
        raise BlockError(f"samples is {samples}", hint="it must be at least 1")
    given = _given(inputs, a.d)
    found = _prove(a, b)
    if found.equal:
        return Equivalence(True, True, 0.0, 0.0, None, found.reason)
    search = _Search(a, b, np.random.default_rng(seed), judge=found.equal is None)
    search.run(given, samples, found.kinks)
    if found.equal is None:
        return _measured(search, found.reason)
    return _shown(search, found)


def _given(inputs: npt.ArrayLike | None, d: int) -> Array:
    x = np.empty((0, d)) if inputs is None else np.asarray(inputs, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != d:
        raise BlockError(f"inputs have shape {x.shape}", hint=f"they must be (n, {d})")
    return x


# --------------------------------------------------------------------------------------
# Proofs.


class Finding(NamedTuple):
    """What the theorems say: equal, different or (``None``) why they are silent."""

    equal: bool | None
    reason: str
    #: (n_h, β_h) at which the two functions bend differently.
    kinks: tuple[Vector, ...] = ()


def _prove(a: Block, b: Block) -> Finding:
    if not _same_norm(a, b):
        return Finding(None, "their norms differ")
    if _same_neurons(a, b):
        return Finding(True, "they have the same neurons")
    placement = _norm(a).placement
    before = _norm(a).in_front
    if before and not _same_skip(a, b):
        return Finding(None, "their skips differ, and a norm comes first")
    try:
        first, second = (canonical_form(_branch(x) if before else _bare(x)) for x in (a, b))
    except BlockError as error:
        return Finding(None, error.message)
    if _norm(a) is NormKind.POST_LAYERNORM:
        first, second = _centred(first), _centred(second)
    found = _compare_forms(first, second)
    if found.equal is False and (before or (placement == "post" and not _faithful(a))):
        return found._replace(equal=None, reason=f"{found.reason}, which the norm may hide")
    return found


def _norm(block: Block) -> NormKind:
    return block.norm if isinstance(block, ResidualBlock) else NormKind.NONE


def _same_norm(a: Block, b: Block) -> bool:
    if _norm(a) is not _norm(b):
        return False
    if not isinstance(a, ResidualBlock) or not isinstance(b, ResidualBlock):
        return True  # both without a norm
    if a.norm is NormKind.NONE:
        return True
    pairs = (
        (a.norm_gain, b.norm_gain, 1.0),
        (a.norm_bias, b.norm_bias, 0.0),
        (a.out_norm_gain, b.out_norm_gain, 1.0),
        (a.out_norm_bias, b.out_norm_bias, 0.0),
    )
    same = all(
        np.array_equal(_or_constant(x, value, a.d), _or_constant(y, value, a.d))
        for x, y, value in pairs
    )
    return same and a.norm_eps == b.norm_eps


def _or_constant(weights: npt.NDArray[np.generic] | None, value: float, size: int) -> Array:
    return np.full(size, value) if weights is None else weights.astype(np.float64)


def _faithful(block: Block) -> bool:
    """Whether the norm after the block determines its (for LayerNorm: centred) outputs."""
    assert isinstance(block, ResidualBlock)
    return block.norm_eps > 0 and bool(np.all(_or_constant(block.norm_gain, 1.0, block.d)))


def _skip(block: Block) -> Array:
    return block.skip_matrix if isinstance(block, ResidualBlock) else np.zeros((block.d,) * 2)


def _same_skip(a: Block, b: Block) -> bool:
    return np.array_equal(_skip(a), _skip(b))


def _bare(block: Block) -> Block:
    return block.inner() if isinstance(block, ResidualBlock) else block


def _branch(block: Block) -> PlainBlock:
    return PlainBlock(
        w_up=block.w_up,
        w_down=block.w_down,
        activation=block.activation,
        b_up=block.b_up,
        b_down=block.b_down,
        w_gate=block.w_gate,
        b_gate=block.b_gate,
        up_activation=block.up_activation,
    )


def _same_neurons(a: Block, b: Block) -> bool:
    """The same skip, output bias and neurons in any order, equal ones added up."""
    kinds = [(x.activation.name, x.up_activation and x.up_activation.name) for x in (a, b)]
    first, second = (_or_constant(x.b_down, 0.0, x.d) for x in (a, b))
    if kinds[0] != kinds[1] or a.gated != b.gated or not np.array_equal(first, second):
        return False
    return _same_skip(a, b) and _inventory(a) == _inventory(b)


def _inventory(block: Block) -> dict[bytes, tuple[float | Fraction, ...]]:
    """Everything inside the nonlinearity, as bytes → the sum of the output columns.

    Columns of one neuron stay floats, and sums are fractions: they compare exactly.
    """
    m = block.m
    parts = [block.w_up.astype(np.float64), _or_constant(block.b_up, 0.0, m)]
    if block.w_gate is not None:
        parts += [block.w_gate.astype(np.float64), _or_constant(block.b_gate, 0.0, m)]
    for activation in (block.activation, block.up_activation):
        if activation is not None and activation.slopes is not None:
            parts.append(np.broadcast_to(np.array(activation.slopes), (m,)))
    rows = np.ascontiguousarray(np.column_stack(parts) + 0.0)  # −0 becomes 0
    down = np.ascontiguousarray(block.w_down.astype(np.float64).T + 0.0)
    members: dict[bytes, list[int]] = {}
    for j in np.flatnonzero(down.any(axis=1)).tolist():
        members.setdefault(rows[j].tobytes(), []).append(j)
    sums: dict[bytes, tuple[float | Fraction, ...]] = {}
    for key, group in members.items():
        if len(group) == 1:
            sums[key] = tuple(down[group[0]].tolist())
        else:
            sums[key] = tuple(sum(map(Fraction, x), Fraction(0)) for x in down[group].T.tolist())
    return {key: column for key, column in sums.items() if any(column)}


def _centred(form: CanonicalForm) -> CanonicalForm:
    """The form of the outputs minus their mean, all that a LayerNorm sees (§8)."""

    def centre(column: Vector) -> Vector:
        mean = sum(column, Fraction(0)) / len(column)
        return tuple(x - mean for x in column)

    kinks = {row: centre(column) for row, column in form.kinks.items()}
    constants = {size: centre(column) for size, column in form.constants.items()}
    rows = zip(*map(centre, zip(*form.linear, strict=True)), strict=True)
    return replace(
        form,
        kinks={row: column for row, column in kinks.items() if any(column)},
        linear=tuple(rows),
        constant=centre(form.constant),
        constants={size: column for size, column in constants.items() if any(column)},
    )


def _compare_forms(f: CanonicalForm, g: CanonicalForm) -> Finding:
    """f − g, term by term; it is the form of the difference of the two functions.

    With the same kinks the difference is affine up to constants e(b), and no theorem on
    kinks is needed.  Two unique HardSwish forms may have parallel rows between them, but at
    most two a direction, and two distinct neurons are always independent: they share at most
    one of their two kinks each.
    """
    if f == g:
        return Finding(True, f"they have the same canonical form {f}")
    if f.activation != g.activation and not (f.affine or g.affine):
        return Finding(None, f"no theorem compares {f.activation} with {g.activation}")
    kinks = _differing(f.kinks, g.kinks)
    if kinks and not (f.unique and g.unique):
        reason = "with parallel rows the canonical form of such neurons is not unique"
        return Finding(None, reason, kinks)
    if kinks:
        count = "1 kink" if len(kinks) == 1 else f"{len(kinks)} kinks"
        return Finding(False, f"their canonical forms are unique and differ in {count}", kinks)
    if f.linear != g.linear:
        return Finding(False, "their canonical forms differ in the linear part")
    if f.constants != g.constants:
        return Finding(None, "they differ by a constant that is not rational")
    return Finding(False, "their canonical forms differ in the constant")


def _differing(f: Mapping[Vector, Vector], g: Mapping[Vector, Vector]) -> tuple[Vector, ...]:
    return tuple(key for key in {**f, **g} if g.get(key) != f.get(key))


# --------------------------------------------------------------------------------------
# Measurement.

_SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)
_BESIDE = (0.0, 1e-3, -1e-3, 1.0, -1.0, 4.0, -4.0)  # in units of the pre-activation
_KEPT = 8
_ROUNDS = 24


class _Search:
    """Evaluates both blocks and keeps the inputs at which they differ most."""

    def __init__(self, a: Block, b: Block, rng: np.random.Generator, *, judge: bool) -> None:
        self.a, self.b, self.rng = a, b, rng
        self.judge = judge  # whether to tell deviations from rounding, which costs as much again
        self.samples = 0
        self.radius = 0.0
        self.points = np.empty((0, a.d))
        self.errors = np.empty(0)
        self.sizes = np.empty(0)
        self.excess = np.empty(0)

    def run(self, given: Array, samples: int, kinks: Sequence[Vector]) -> None:
        """``kinks``: hyperplanes of special interest, tried before those of the neurons."""
        half = max(samples // 2, 1)
        for x in (given, self._random(half), self._kinks(half, kinks)):
            if len(x):
                self.radius = max(self.radius, float(np.abs(x).max()))
                self._try(x)
        self._ascend(max(samples // (_ROUNDS * _KEPT), 1))

    def _random(self, count: int) -> Array:
        x = self.rng.normal(size=((count + 1) // 2, self.a.d))
        x *= self.rng.choice(_SCALES, size=(len(x), 1))
        return np.concatenate([np.zeros((1, self.a.d)), x, -x])

    def _kinks(self, count: int, special: Sequence[Vector]) -> Array:
        """Random points moved to u·x + b = t for neurons of both blocks and a few t."""
        number = max(count // len(_BESIDE), 1)
        first = np.array([[nearest(x) for x in row] for row in special[:number]])
        rows = np.concatenate([_hyperplanes(self.a), _hyperplanes(self.b)])
        rows = self.rng.permutation(rows[rows[:, :-1].any(axis=1)])
        chosen = np.concatenate([first.reshape(-1, self.a.d + 1), rows])[:number]
        if not len(chosen):
            return np.empty((0, self.a.d))
        repeats = -(-count // (len(chosen) * len(_BESIDE)))
        moved = []
        for t in _BESIDE:
            for _ in range(repeats):
                x = self.rng.normal(size=(len(chosen), self.a.d))
                moved.append(_move_to(chosen, t, x))
        return np.concatenate(moved)

    def _ascend(self, proposals: int) -> None:
        """Random steps from the worst inputs, within the largest size tried."""
        step = 0.5
        for _ in range(_ROUNDS):
            starts, before = self.points, self.best_error
            if not len(starts):
                return
            size = np.abs(starts).max(axis=1, keepdims=True) + 1e-3
            noise = self.rng.normal(size=(proposals, *starts.shape))
            x = (starts + step * size * noise).reshape(-1, self.a.d)
            self._try(np.clip(x, -self.radius, self.radius))
            step *= 1.3 if self.best_error > before else 0.7

    @property
    def best_error(self) -> float:
        return float(self.errors.max(initial=0.0))

    def _try(self, x: Array) -> None:
        """Evaluate at rows ``x`` and keep the worst; overflow is no evidence."""
        x = x[np.isfinite(x).all(axis=1)]
        with np.errstate(all="ignore"):
            first, second = self.a(x), self.b(x)
            errors = np.abs(first - second).max(axis=1)
            sizes = np.maximum(np.abs(first), np.abs(second)).max(axis=1)
            excess = np.zeros(len(x))
            if self.judge:
                excess = errors / (_rounding(self.a, x, first) + _rounding(self.b, x, second))
        fine = np.isfinite(errors) & np.isfinite(sizes)
        self.samples += len(x)
        self.points = np.concatenate([self.points, x[fine]])
        self.errors = np.concatenate([self.errors, errors[fine]])
        self.sizes = np.concatenate([self.sizes, sizes[fine]])
        self.excess = np.concatenate([self.excess, np.nan_to_num(excess[fine])])
        order = np.lexsort((-self.errors, self.excess <= 1))[:_KEPT]  # beyond rounding first
        for name in ("points", "errors", "sizes", "excess"):
            setattr(self, name, getattr(self, name)[order])

    def look_closely(self, kinks: Sequence[Vector]) -> None:
        """Exact errors at the worst inputs, and across a few kinks at which a − b bends.

        Of three points in a row around such a kink, a − b is nonzero at one at least (unless
        it bends twice in between); and so it is at random points if it does not bend at all.
        """
        x = [self.points, np.zeros((1, self.a.d)), self.rng.normal(size=(_KEPT, self.a.d))]
        rows = np.array([[nearest(v) for v in row] for row in kinks[: _KEPT // 2]])
        if len(rows):
            start = self.rng.normal(size=(len(rows), self.a.d))
            x += [_move_to(rows, t, start) for t in _BESIDE]
        points = np.concatenate(x)
        self.points = points[np.isfinite(points).all(axis=1)]
        self.errors = _exact_errors(self.a, self.b, self.points)
        with np.errstate(all="ignore"):
            values = np.abs(np.concatenate([self.a(self.points), self.b(self.points)], axis=1))
        self.sizes = np.nan_to_num(values.max(axis=1))

    @property
    def beyond_rounding(self) -> bool:
        return bool((self.excess > 1).any())


def _hyperplanes(block: Block) -> Array:
    parts = [np.column_stack([block.w_up, _or_constant(block.b_up, 0.0, block.m)])]
    if block.w_gate is not None:
        parts.append(np.column_stack([block.w_gate, _or_constant(block.b_gate, 0.0, block.m)]))
    return np.concatenate(parts).astype(np.float64)


def _move_to(rows: Array, t: float, x: Array) -> Array:
    """Each x moved along its row's u to the point with u·x + b = t."""
    with np.errstate(all="ignore"):
        u = rows[:, :-1]
        excess = np.sum(u * x, axis=1) + rows[:, -1] - t
        return x - (excess / np.sum(u * u, axis=1))[:, None] * u


def _rounding(block: Block, x: Array, y: Array) -> Array:
    """A generous estimate of the rounding error of float64 evaluation at each row of ``x``.

    A multiple of 2⁻⁵³ times the value with every term taken positive; after a norm, which
    may amplify, a millionth of the output.  An estimate: a difference beyond it is still
    called a measurement.
    """
    if _norm(block) is not NormKind.NONE:
        return 1e-6 * (np.abs(y).max(axis=1) + 1e-300)
    size = np.abs(x)
    hidden = _reach(block.activation, size, *_gate_or_up(block))
    if block.up_activation is not None:
        hidden = hidden * _reach(block.up_activation, size, block.w_up, block.b_up)
    total = hidden @ np.abs(block.w_down.astype(np.float64)).T
    total += size @ np.abs(_skip(block)).T + np.abs(_or_constant(block.b_down, 0.0, block.d))
    return total.max(axis=1) * (8 * (block.d + block.m + 64) * 2.0**-53)


def _gate_or_up(
    block: Block,
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic] | None]:
    return (block.w_up, block.b_up) if block.w_gate is None else (block.w_gate, block.b_gate)


def _reach(
    activation: Callable[[Array], Array],
    size: Array,
    w: npt.NDArray[np.generic],
    b: npt.NDArray[np.generic] | None,
) -> Array:
    z = size @ np.abs(w.astype(np.float64)).T + np.abs(_or_constant(b, 0.0, len(w)))
    return np.maximum(z, np.maximum(np.abs(activation(z)), np.abs(activation(-z))))


def _measured(search: _Search, reason: str) -> Equivalence:
    if not len(search.points):
        return Equivalence(
            False, None, float("nan"), float("nan"), None, f"{reason}; every input overflowed"
        )
    equal = False if search.beyond_rounding else None
    return _at(search, 0, float(search.errors[0]), proved=False, equal=equal, reason=reason)


def _at(
    search: _Search, i: int, error: float, *, proved: bool, equal: bool | None, reason: str
) -> Equivalence:
    size = float(search.sizes[i])
    relative = error / size if size else 0.0
    where = search.points[i].copy()
    where.flags.writeable = False
    return Equivalence(proved, equal, error, relative, where, reason, search.samples)


# --------------------------------------------------------------------------------------
# Showing a proved difference.


def _shown(search: _Search, found: Finding) -> Equivalence:
    """The worst input found; by exact arithmetic where both blocks are piecewise linear."""
    exact = all(_piecewise_linear(x) for x in (search.a, search.b))
    if exact:
        search.look_closely(found.kinks)
    if not search.errors.any():
        return Equivalence(True, False, 0.0, 0.0, None, found.reason, search.samples, exact)
    i = int(np.argmax(search.errors))
    error = float(search.errors[i])
    shown = _at(search, i, error, proved=True, equal=False, reason=found.reason)
    return replace(shown, exact=exact)


def _piecewise_linear(block: Block) -> bool:
    return not block.gated and _norm(block) is NormKind.NONE and has_single_kink(block.activation)


def _exact_errors(a: Block, b: Block, x: Array) -> Array:
    """max |a(x) − b(x)| over the outputs, each rounded once (zero only if it is zero)."""
    errors = []
    for first, second in zip(_exact_values(a, x), _exact_values(b, x), strict=True):
        largest = max(abs(p - q) for p, q in zip(first, second, strict=True))
        errors.append(max(nearest(largest), 5e-324) if largest else 0.0)
    return np.array(errors)


def _exact_values(block: Block, x: Array) -> list[Vector]:
    """The block's outputs at the n rows of ``x``, by n·(m + d)·d products of integers."""
    n, d, m = len(x), block.d, block.m
    points, point_exponent = _matrix(np.column_stack([x, np.ones(n)]).T)
    up, up_exponent = _matrix(
        np.column_stack([block.w_up.astype(np.float64), _or_constant(block.b_up, 0.0, m)])
    )
    down, down_exponent = _matrix(block.w_down.astype(np.float64))
    affine, affine_exponent = _matrix(
        np.column_stack([_skip(block), _or_constant(block.b_down, 0.0, d)])
    )
    # σ(z) = σ(1) z for z > 0 and −σ(−1) z otherwise
    values = block.activation(np.outer([1.0, -1.0], np.ones(m)))
    slopes, slope_exponent = integers(values * [[1.0], [-1.0]])
    hidden = [
        [int(z) * (slopes[j] if z > 0 else slopes[m + j]) for z in row]
        for j, row in enumerate((up * points).tolist())
    ]
    bent = (down * flint.fmpz_mat(hidden)).tolist()
    linear = (affine * points).tolist()
    bend = Fraction(2) ** (down_exponent + slope_exponent + up_exponent + point_exponent)
    line = Fraction(2) ** (affine_exponent + point_exponent)
    return [
        tuple(int(bent[i][k]) * bend + int(linear[i][k]) * line for i in range(d)) for k in range(n)
    ]


def _matrix(weights: Array) -> tuple[flint.fmpz_mat, int]:
    """An integer matrix N and e with weights = N·2^e."""
    numbers, exponent = integers(weights)
    rows, columns = weights.shape
    return flint.fmpz_mat(rows, columns, numbers), exponent
