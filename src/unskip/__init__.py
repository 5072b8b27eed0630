"""Can an MLP absorb its own skip connection?  Decide it, prove it, check the proof."""

__version__ = "0.1.0"

from unskip import reduction as reduction
from unskip.activations import Activation as Activation
from unskip.audit import Audit as Audit
from unskip.audit import BlockReport as BlockReport
from unskip.audit import audit as audit
from unskip.blocks import NormKind as NormKind
from unskip.blocks import PlainBlock as PlainBlock
from unskip.blocks import ResidualBlock as ResidualBlock
from unskip.canonical import canonical_form as canonical_form
from unskip.certificates import Answer as Answer
from unskip.certificates import Certificate as Certificate
from unskip.certificates import Interval as Interval
from unskip.certificates import Rule as Rule
from unskip.certificates import Scope as Scope
from unskip.checker import Proof as Proof
from unskip.checker import check as check
from unskip.decision import decide as decide
from unskip.equivalence import compare as compare
from unskip.errors import InvalidCertificate as InvalidCertificate
from unskip.errors import NotAbsorbable as NotAbsorbable
from unskip.errors import UnskipError as UnskipError
from unskip.rewriting import absorb as absorb
from unskip.rewriting.approximate import Approximation as Approximation
from unskip.rewriting.approximate import approximate as approximate
from unskip.rewriting.remedies import Remedy as Remedy
from unskip.rewriting.remedies import remedies as remedies
from unskip.verdict import Verdict as Verdict
