"""What a certificate shows of the minimal width, beyond the evidence against flips."""

from __future__ import annotations

import math
from itertools import combinations

import flint
import numpy as np
import numpy.typing as npt

from unskip.certificates import Certificate
from unskip.checker.arithmetic import (
    EPS,
    MODULUS,
    SUM,
    Array,
    integers,
    proved_nonsingular,
    ranks,
    residues,
    spectral_norm,
)
from unskip.checker.condition import Condition, Groups, remainder
from unskip.checker.evidence import Shown
from unskip.checker.requirements import index_set, refuse


def proved_rank(c: Certificate, condition: Condition, groups: Groups) -> int:
    """The size of a square submatrix of the visible groups' rows, proved to be nonsingular."""
    if "basis_rows" not in c.arrays and "basis_columns" not in c.arrays:
        return 0
    if "basis_rows" not in c.arrays or "basis_columns" not in c.arrays:
        refuse("its basis lacks rows or columns")
    rows, columns = c.arrays["basis_rows"], c.arrays["basis_columns"]
    m, q = condition.up.shape
    for listed, size in ((rows, m), (columns, q)):
        valid = listed.ndim == 1 and listed.size and 0 <= listed.min() <= listed.max() < size
        if not valid or len(set(listed.tolist())) != listed.size:
            refuse("its basis is not made of distinct indices")
    if rows.size != columns.size or not set(rows.tolist()) <= {m[0] for m in groups.visible}:
        refuse("its basis is not square, or not made of visible groups")
    if any(condition.kappa[j] == 0 for j in rows.tolist()):
        refuse("a neuron of κ = 0 in its basis makes no linear term")
    if not proved_nonsingular(condition.up[np.ix_(rows, columns)]):
        refuse("its basis rows are not proved independent")
    return int(rows.size)


def least_rank(condition: Condition, groups: Groups, shown: Shown) -> int:
    """A lower bound of rank Π(A + Σ_S R_j) over every S that orients groups as a whole.

    rank M ≥ ⟨Y, M⟩ / (‖Y‖ ‖M‖) in spectral norms, and every such M is C + ½ Σ ±κ_j d_j u_jᵀ over
    the members of visible groups, with C = A + Σ_j c_j R_j, c_j = ½ for them and, for the others,
    1 if turned and 0 if not.
    """
    if shown.y is None or not groups.visible:
        refuse("its evidence is no matrix, and bounds no rank")
    members = groups.labels[0]
    share = (groups.sign < 0).astype(np.float64)
    share[members] = 0.5
    weighted = condition.down * condition.k
    members = members[weighted[:, members].any(axis=0) & condition.up[members].any(axis=1)]
    centre = condition.centre(condition.a + (weighted * share) @ condition.up)
    left, right = condition.centre(weighted[:, members]), condition.up[members]
    ratio = np.linalg.norm(right, axis=1) / np.linalg.norm(left, axis=0)
    scale = 2.0 ** np.round(np.log2(ratio) / 2)  # any positive numbers; powers of 2 are exact
    spread = spectral_norm(left * scale) * spectral_norm(right / scale[:, None])
    mass = float(np.linalg.norm(condition.a))
    mass += float((np.linalg.norm(weighted, axis=0) * np.linalg.norm(condition.up, axis=1)).sum())
    size = spectral_norm(centre) + spread / 2 + (len(share) + len(centre) + 8) * EPS * mass
    bound = shown.value / (spectral_norm(shown.y) * size) * (1 - SUM)
    return math.ceil(bound) if math.isfinite(bound) else 0


#: Orientations whose rank is low modulo the prime, and is then taken over the integers.
ACCIDENTS = 64


class Exhaustive:
    """w* = |H| + min over T, e, ε of |T| + e + 2·rank(M_ε modulo the rows of T, e), by trial.

    All orientations of the visible groups, modulo a prime: that can only lower ranks, so what
    it excludes is excluded.
    """

    def __init__(self, condition: Condition, groups: Groups, *, constant: bool) -> None:
        self.condition, self.groups, self.constant = condition, groups, constant

    def attained(self, c: Certificate) -> int:
        """The extra width of the choice in the certificate, over the integers."""
        flipped = index_set(c, "flipped", self.condition.up.shape[0])
        twins, e = c.arrays["twins"], c.data["constant"]
        firsts = {members[0] for members in self.groups.visible}
        if twins.ndim != 1 or not set(twins.tolist()) <= firsts or type(e) is not bool:
            refuse("its twins are not groups")
        if not self.groups.flips(flipped) or (e and not self.constant):
            refuse("its choice tears a group apart, or needs a constant that is not allowed")
        bought = integers(self._rows(twins.tolist(), e))[0]
        total = remainder(self.condition, flipped)
        rank = int(flint.fmpz_mat(total + bought).rank())
        rank -= int(flint.fmpz_mat(bought).rank()) if bought else 0
        return len(set(twins.tolist())) + e + 2 * rank

    def excludes(self, below: float) -> bool:
        """Whether no choice has an extra width less than ``below``."""
        n = self.groups.n
        if not below <= 2 * self.condition.rows:
            refuse("its lower bound of the width exceeds what always suffices")
        p, q = self.condition.rows, self.condition.columns
        sets = sum(
            math.comb(n, t) * (p + t)
            for cost in range(math.ceil(below))
            for e in ((0, 1) if self.constant else (0,))
            for t in range(cost - e, -1, -2)
        )
        if n > 20 or sets * q * q << n > 10**8:
            refuse("its exhaustive search is too large to repeat")
        skip, terms = self._residues()
        # codes of all orientations, bit by bit: (2^n, p, q)
        matrices = skip[None]
        for term in terms:
            matrices = np.concatenate([matrices, (matrices + term) % MODULUS])
        firsts = [members[0] for members in self.groups.visible]
        for cost in range(math.ceil(below)):
            for e in (False, True) if self.constant else (False,):
                for rank in range((cost - e) // 2 + 1):
                    for twins in combinations(firsts, cost - e - 2 * rank):
                        if not self._rank_exceeds(matrices, list(twins), e, rank):
                            return False
        return True

    def _rank_exceeds(
        self, matrices: npt.NDArray[np.int64], twins: list[int], e: bool, rank: int
    ) -> bool:
        """Whether rank(M modulo T, e) > rank for every orientation; T dependent is redundant."""
        rows = self._rows(twins, e)
        size = len(rows)
        if size and int(flint.fmpz_mat(integers(rows)[0]).rank()) < size:
            return True  # a smaller T spans the same, and was tried at a lower cost
        q = matrices.shape[2]
        bought = np.array(residues(rows), dtype=np.int64).reshape(size, q)
        stacked = np.broadcast_to(bought, (len(matrices), size, q))
        found = ranks(np.concatenate([stacked, matrices], axis=1))
        suspects = np.flatnonzero(found <= size + rank)  # accidents modulo the prime are rare
        return suspects.size <= ACCIDENTS and all(
            self._exact_rank(code, rows) > size + rank for code in suspects.tolist()
        )

    def _exact_rank(self, code: int, rows: Array) -> int:
        """rank of [rows of T, e; M] over the integers, for the orientation of that number."""
        inside = self.groups.sign < 0
        for position, members in enumerate(self.groups.visible):
            if code >> position & 1:
                inside[members] = ~inside[members]
        total = remainder(self.condition, np.flatnonzero(inside))
        bought = integers(rows)[0] if len(rows) else []
        return int(flint.fmpz_mat(total + bought).rank())

    def _rows(self, twins: list[int], e: bool) -> Array:
        rows = self.condition.up[twins]
        return np.vstack([rows, np.eye(self.condition.columns)[-1:]]) if e else rows

    def _residues(self) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
        """Π A' and the Π R'_h modulo the prime (Π up to the factor p)."""
        condition, m = self.condition, self.condition.up.shape[0]
        down = np.array(residues(condition.down), dtype=np.int64).reshape(-1, m)
        up = np.array(residues(condition.up), dtype=np.int64).reshape(m, -1)
        skip = np.array(residues(condition.a), dtype=np.int64).reshape(condition.a.shape)
        kappa = [k.numerator * pow(k.denominator, -1, MODULUS) % MODULUS for k in condition.kappa]
        for j in self.groups.turned().tolist():
            skip = (skip + self._term(down, up, kappa, j)) % MODULUS
        terms = [
            sum(int(self.groups.sign[j]) * self._term(down, up, kappa, j) for j in members)
            % MODULUS
            for members in self.groups.visible
        ]
        return self._centre(skip), [self._centre(np.asarray(t)) for t in terms]

    @staticmethod
    def _term(
        down: npt.NDArray[np.int64], up: npt.NDArray[np.int64], kappa: list[int], j: int
    ) -> npt.NDArray[np.int64]:
        column = down[:, j] * kappa[j] % MODULUS
        return np.asarray(np.outer(column, up[j]) % MODULUS)

    def _centre(self, matrix: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not self.condition.centred:
            return matrix
        return (self.condition.rows * matrix - matrix.sum(axis=0)) % MODULUS
