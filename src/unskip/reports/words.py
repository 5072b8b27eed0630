"""Verdicts and certificates in plain sentences, and numbers that never promise too much."""

from __future__ import annotations

import math
from collections.abc import Mapping

from unskip.certificates import Answer, Certificate, Interval, Rule, Scope
from unskip.verdict import Verdict


def outcome(verdict: Verdict) -> str:
    """The answer with its scope, as one would say it."""
    if verdict.answer is Answer.ABSORBABLE:
        return "The skip can be absorbed at this width."
    if verdict.answer is Answer.UNKNOWN:
        return "Neither yes nor no was proved."
    return {
        Scope.THIS_WIDTH: "The skip cannot be absorbed at this width.",
        Scope.ANY_WIDTH: "The skip cannot be absorbed at any width.",
        Scope.ANY_DEPTH: "The skip cannot be absorbed at any width or depth.",
    }[verdict.scope]


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def meaning(certificate: Certificate) -> str:
    """What the certificate proves, and how, for someone who has not read the theory."""
    evidence = str(certificate.data.get("evidence", ""))
    told = _BY_RULE.get(certificate.rule)
    if told is None:
        told = _BY_EVIDENCE.get(evidence, "")
    if "exhaustive" in certificate.data:
        told = f"{told} {_EXHAUSTIVE}".strip()
    elif "rank" in certificate.data:
        told = f"{told} {_RANK}".strip()
    if "left" in certificate.data:
        told = f"{told} {_LEFT}".strip()
    return told.format(**_figures(certificate)) or "docs/certificates.md says how to read it."


def width_in_words(width: Interval, m: int) -> str:
    """How many neurons a residual-free replacement takes."""
    lower, upper = width
    if math.isinf(lower):
        return "No number of neurons suffices."
    if math.isinf(upper):
        return f"At least {lower:.0f} neurons; whether any number suffices is not known."
    if lower == upper:
        return f"Exactly {upper:.0f} neurons are needed and suffice ({_times(upper, m)})."
    if lower == 0:
        return f"{upper:.0f} neurons suffice ({_times(upper, m)})."
    return f"At least {lower:.0f} neurons are needed, and {upper:.0f} suffice ({_times(upper, m)})."


def defect_in_words(defect: Interval) -> str:
    """How much of the skip is left over whatever is flipped."""
    if defect.upper == 0:
        return "Nothing of the skip is left over: the flips cancel it exactly."
    lower, upper = rounded(defect)
    if defect.lower == 0:
        return f"The best set of flips leaves at most {_percent(upper)} of the skip."
    return (
        f"Whatever neurons are flipped, at least {_percent(lower)} of the skip is left over; "
        f"a set that leaves {_percent(upper)} is known."
    )


def rounded(defect: Interval, digits: int = 4) -> Interval:
    """To ``digits`` decimals, outwards: what is shown is still proved.

    A bound above 1 is shown as 1, which is what flipping nothing leaves.
    """
    scale = 10**digits
    lower, upper = min(1.0, defect.lower), min(1.0, defect.upper)
    return Interval(math.floor(lower * scale) / scale, math.ceil(upper * scale) / scale)


def defect_text(defect: Interval | None) -> str:
    """``lower … upper`` for a table."""
    if defect is None:
        return "–"
    if defect.upper == 0:
        return "0"
    return " … ".join(f"{x:.4g}" for x in rounded(defect))


def width_text(width: Interval) -> str:
    """``lower … upper`` for a table; ``none`` where no width suffices."""
    if math.isinf(width.lower):
        return "none"
    upper = "?" if math.isinf(width.upper) else f"{width.upper:.0f}"
    return upper if width.lower == width.upper else f"{width.lower:.0f} … {upper}"


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _times(neurons: float, m: int) -> str:
    return f"{neurons / m:.4g} times as many as the block has"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _figures(certificate: Certificate) -> Mapping[str, str]:
    data = certificate.data
    coordinate = f"({data.get('row', 0)}, {data.get('column', 0)})"
    achieved = certificate.arrays.get("achieved")
    chosen = 0 if achieved is None else int(achieved.size)
    return {
        "entry": coordinate,
        "chosen": count(chosen, "unit" if certificate.gated else "neuron"),
        "neuron": str(data.get("neuron", "")),
        "rank": str(data.get("rank", "")),
        "left": count(int(data.get("left", 0)), "direction"),
    }


_BY_RULE = {
    Rule.HOMOGENEOUS_DEGREE: (
        "Scale the input by t: the branch scales by a power of t other than the first, the skip "
        "by t itself. Without hidden biases no sum of such neurons has a linear part. The "
        "certificate names an entry of the skip that is not zero, {entry}."
    ),
    Rule.VANISHING_LINEARISATION: (
        "Near zero the branch, and every replacement of its kind, is smaller than any multiple of "
        "‖x‖; the skip is not. The certificate names an entry of the skip that is not zero, "
        "{entry}."
    ),
    Rule.SUBLINEAR_GROWTH: (
        "Far from zero every replacement of this kind grows more slowly than ‖x‖; the skip does "
        "not. The certificate names an entry of the skip that is not zero, {entry}."
    ),
    Rule.EVEN_ACTIVATION: (
        "Without hidden biases every replacement takes the same value at x and −x; the skip "
        "changes its sign. The certificate names an entry of the skip that is not zero, {entry}."
    ),
    Rule.EVEN_RECESSION: (
        "Far out, every replacement takes nearly the same value at x and −x; the skip changes its "
        "sign. The certificate names an entry of the skip that is not zero, {entry}."
    ),
    Rule.ONE_SIDED_INDEPENDENCE: (
        "Neurons with this activation are linearly independent of each other and of every linear "
        "map, whatever their weights, so nothing can cancel the skip. The certificate names an "
        "entry of the skip that is not zero, {entry}."
    ),
    Rule.PRE_NORM: (
        "A replacement sees only the normed input, which is bounded; the skip carries the input "
        "itself. The certificate names an entry of the skip that is not zero, {entry}. (With "
        "--inner the question is about z + MLP(z), behind the norm.)"
    ),
    Rule.HIDDEN_BIAS: (
        "The kink or bend of neuron {neuron} does not pass through the origin, and no sum of "
        "neurons without hidden biases has one there."
    ),
    Rule.INVISIBLE_SKIP: (
        "The output shows nothing of the skip, so a replacement with the block's own MLP is equal: "
        "the norm behind it discards what the skip adds, or there is none."
    ),
    Rule.LINEAR_RANK: (
        "The whole block is an affine map. A replacement needs as many neurons as the rank of its "
        "matrix, which is computed over the integers."
    ),
}

_BY_EVIDENCE = {
    "flip": (
        "The certificate is the set itself: flipping these {chosen}, (u, b) to −(u, b), leaves a "
        "linear map that cancels the skip exactly. That is verified in integer arithmetic on the "
        "stored weights."
    ),
    "trace": (
        "Flipping a neuron changes the trace of the linear part by its alignment κ u·d. All the "
        "negative alignments together do not reach the trace of the skip, so no set of flips can "
        "cancel it. One sum of inner products proves it."
    ),
    "coordinate": (
        "One entry of the skip, {entry}, is out of reach: all neurons that could push it towards "
        "zero, together, do not get it there. One row and one column of the weights prove it."
    ),
    "matrix": (
        "The certificate is a matrix Y of integers. Whatever neurons are flipped, the inner "
        "product of Y with what is left of the skip stays above a positive bound; so something is "
        "always left, and its size is bounded from below too. Any reader can check it with one "
        "matrix product, without trusting how Y was found."
    ),
    "modular": (
        "Modulo the prime 2³¹ − 1 the weights leave at most one candidate for the set of flips, "
        "and it would have to flip some neuron by a fraction, or does not exist. The certificate "
        "is the matrix of residues that shows it."
    ),
    "congruence": (
        "Each neuron is given one small integer modulo another, and whatever neurons are flipped, "
        "their sum stays off the value that the skip asks for. The certificate is the matrix Y "
        "that gives the integers."
    ),
    "tree": (
        "The neurons are decided one by one, flipped or not, until a matrix Y shows that no choice "
        "of the others can succeed. The certificate is this tree with the matrix of each leaf."
    ),
    "sumset": (
        "Each neuron is given one number modulo a prime, and no subset of these numbers adds up to "
        "that of the skip. All subsets are compared, half against half."
    ),
    "affine": (
        "All neurons cancel or are constant; what is left is an affine map, and it is not zero."
    ),
    "none": "It states bounds only, and claims no answer.",
}

_EXHAUSTIVE = (
    "Every choice of orientations and of second neurons that would take fewer neurons than the "
    "stated least width is tried and excluded."
)
_LEFT = (
    "The skip carries {left} that the weights of the branch do not read, so neither flips nor "
    "second neurons can make up for them. Ranks of the weights and of the skip prove it."
)
_RANK = (
    "Neurons that coincide act as one; the linear part that is left has rank at least {rank} "
    "whatever is flipped, and each spare neuron takes care of one."
)
