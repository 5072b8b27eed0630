"""The command line: parse, call, print.

Results go to stdout, everything else to stderr.  Exit codes: 0 done; 1 the thing asked does
not hold (a certificate that fails its check, a width that does not suffice); 2 bad usage or bad
input; 3 a fault of ours.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unskip import __version__
from unskip.audit import Audit, BlockReport, audit, find_source
from unskip.certificates import Certificate, remove_stale
from unskip.checker import check
from unskip.equivalence import compare
from unskip.errors import InvalidCertificate, NotAbsorbable, UnskipError
from unskip.files import refuse_existing, require_file_place, write_whole
from unskip.frontends import BlockSource, Model, open_model, paired
from unskip.reports.console import one_line, print_audit, print_plan
from unskip.reports.document import audit_document
from unskip.reports.html import audit_page
from unskip.rewriting.precision import DTYPES
from unskip.surgery import Width, plain_file, rewrites

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Can an MLP absorb its own skip connection?  Decide it, prove it, check the proof.",
)

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A Hugging Face directory, .npz or .safetensors.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no notes.")]


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"unskip {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


@app.command("audit")
def audit_command(
    model: ModelPath,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write JSON; - is stdout.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report to look at, as one page.")
    ] = None,
    certificates: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write one certificate a block.")
    ] = None,
    blocks: Annotated[str, typer.Option(metavar="GLOB", help="Select blocks by name.")] = "*",
    inner: Annotated[
        bool, typer.Option("--inner", help="Study z + MLP(z) of pre-norm blocks.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Stop at the first certificate; looser bounds.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="ε", help="Also look for flips with ‖A + Σ_S R_j‖₂ ≤ ε."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing output.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say, block by block, whether the skip can be absorbed, with a proof."""
    json_file = Path(json_to) if json_to not in (None, "-") else None
    for path in (certificates, json_file, html):
        if path is not None:
            refuse_existing(path, force=force)
    for file in filter(None, (json_file, html)):
        require_file_place(file)
    result = audit(model, blocks=blocks, inner=inner, quick=quick, tolerance=tolerance)
    files = _save_certificates(_with_progress(result, quiet=quiet), certificates)
    if certificates is not None:
        remove_stale(certificates, keep=files.values())
    if html is not None:
        write_whole(html, audit_page(result, files).encode())
    document = json.dumps(audit_document(result, files), indent=1)
    if json_to == "-":
        typer.echo(document)
        return
    if json_file is not None:
        write_whole(json_file, (document + "\n").encode())
    print_audit(result, _stdout())


@app.command("absorb")
def absorb_command(
    model: ModelPath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Plain blocks, as .safetensors."),
    ] = None,
    width: Annotated[
        str, typer.Option(metavar="same|minimal|+K", help="Neurons of each plain block.")
    ] = "minimal",
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Type of the weights; default: the model's.")
    ] = None,
    blocks: Annotated[str, typer.Option(metavar="GLOB", help="Select blocks by name.")] = "*",
    hidden_bias: Annotated[
        bool | None,
        typer.Option(help="Plain blocks may have hidden biases.  Default: where the block has."),
    ] = None,
    output_bias: Annotated[
        bool | None,
        typer.Option(help="Plain blocks may have an output bias.  Default: where the block has."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing output.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the residual-free blocks that compute the same, and say what they cost.

    Exits with 1 where a block has no plain one of that width.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UnskipError(f"--dtype is {dtype!r}", hint=f"give one of {', '.join(DTYPES)}")
    if output is None and not dry_run:
        raise UnskipError("where to write is not said", hint="give -o FILE, or --dry-run")
    if output is not None:
        if output.suffix != ".safetensors":
            raise UnskipError(f"{output}: plain blocks are written as .safetensors")
        refuse_existing(output, force=force)
        require_file_place(output)
        if output.exists() and output.samefile(model):
            raise UnskipError(f"{output} is the model itself", hint="choose another name")
    wanted, sources = Width.parse(width), open_model(model).select(blocks)
    try:
        plan = rewrites(
            sources, wanted, dtype=dtype, hidden_bias=hidden_bias, output_bias=output_bias
        )
        steps = list(_tracked(plan, len(sources), quiet=quiet))
    except NotAbsorbable as error:
        typer.echo(f"{one_line(str(error))}", err=True)
        raise typer.Exit(1) from None
    if output is not None and not dry_run:
        write_whole(output, plain_file(steps))
    print_plan(steps, _stdout())


@app.command("check")
def check_command(
    directory: Annotated[
        Path, typer.Argument(metavar="CERTIFICATES", help="A directory that audit wrote.")
    ],
    model: ModelPath,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Blocks without a certificate are no failure.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Validate certificates against the model's own weights, independently of audit.

    Exits with 1 where a certificate fails, or a block of the model has no valid one.
    """
    paths = sorted(directory.glob("*.json")) if directory.is_dir() else []
    if not paths:
        raise UnskipError(f"{directory} holds no certificates", hint="audit --certificates DIR")
    opened = open_model(model)
    covered: set[str] = set()
    failures = 0
    for path in paths:
        try:
            source, sentence = _check(Certificate.load(path), opened)
            covered.add(source.name)
            typer.echo(f"ok      {one_line(sentence)}")
        except InvalidCertificate as error:
            failures += 1
            typer.echo(f"FAILED  {one_line(f'{path.name}: {error.message}')}")
    bare = [source.name for source in opened.blocks if source.name not in covered]
    if not allow_missing:
        for name in bare:
            typer.echo(f"MISSING {one_line(name)}")
    if bare and not quiet:
        hint = "" if allow_missing else "; --allow-missing accepts that"
        text = f"{len(bare)} of {len(opened.blocks)} blocks of the model have no valid certificate"
        typer.echo(f"{text} here{hint}", err=True)
    if failures or (bare and not allow_missing):
        raise typer.Exit(1)


def _check(certificate: Certificate, model: Model) -> tuple[BlockSource, str]:
    """The block that a certificate is about, and what it proves."""
    found = find_source(model, certificate)
    if found is None:
        raise InvalidCertificate(f"the model has no block {certificate.block!r}")
    source, inner = found
    block = source.load()
    if inner and block.norm.placement != "pre":
        raise InvalidCertificate(f"the model has no block {certificate.block!r}")
    return source, str(check(certificate, block.inner() if inner else block))


@app.command("compare")
def compare_command(
    a: ModelPath,
    b: ModelPath,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="ε", help="Accept a measured relative deviation up to ε."),
    ] = None,
    blocks: Annotated[str, typer.Option(metavar="GLOB", help="Select blocks by name.")] = "*",
    samples: Annotated[int, typer.Option(help="Inputs a block to search at.")] = 4096,
    quiet: Quiet = False,
) -> None:
    """Say, block by block, whether two models compute the same: proved, or measured and said so.

    Exits with 1 unless every pair of blocks is proved equal, or differs by no more than
    --tolerance at the inputs that were tried.
    """
    pairs = paired(open_model(a).select(blocks), open_model(b).select(blocks))
    good = 0
    for name, first, second in _tracked(pairs, len(pairs), quiet=quiet):
        found = compare(first.load(), second.load(), samples=samples)
        near = tolerance is not None and found.relative_error <= tolerance
        accepted = bool(found.equal and found.proved) or near
        good += accepted
        typer.echo(f"{'ok   ' if accepted else 'DIFFER'} {one_line(f'{name}: {found}')}")
        if found.where is not None and not accepted:
            shown = np.array2string(found.where, threshold=8, precision=17, separator=", ")
            typer.echo(f"       {found.ulps:.3g} ULPs of float64, at x = {one_line(shown)}")
    typer.echo(f"{len(pairs)} pairs of blocks: {good} {'accepted' if tolerance else 'equal'}.")
    if good < len(pairs):
        raise typer.Exit(1)


@app.command("demo")
def demo_command(quiet: Quiet = False) -> None:
    """Audit a small residual network that ships with the package, and check the proofs."""
    with resources.as_file(resources.files("unskip") / "data" / "digits.safetensors") as path:
        result = audit(path)
        with tempfile.TemporaryDirectory() as directory:
            _save_certificates(_with_progress(result, quiet=quiet), Path(directory))
            print_audit(result, _stdout())
            opened = open_model(path)
            for file in sorted(Path(directory).glob("*.json")):
                _, sentence = _check(Certificate.load(file), opened)
                typer.echo(f"checked: {one_line(sentence)}")


@app.command("reproduce")
def reproduce_command(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write reproduction.json and .html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing output.")] = False,
) -> None:
    """Try every statement of the paper and the theory; 1 if one does not hold."""
    from unskip.reproduce import EXPERIMENTS
    from unskip.reproduce.report import document, report_page

    names = ("reproduction.json", "reproduction.html")
    if out is not None:
        for name in names:
            refuse_existing(out / name, force=force)
        out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for experiment in EXPERIMENTS:
        outcome = experiment()
        outcomes.append(outcome)
        held = "held  " if outcome.result.passed else "FAILED"
        typer.echo(f"{held}  {experiment.name:<26}{outcome.seconds:6.1f} s  {experiment.statement}")
    if out is not None:
        text = json.dumps(document(outcomes), indent=1, ensure_ascii=False)
        for name, content in zip(names, (text + "\n", report_page(outcomes)), strict=True):
            write_whole(out / name, content.encode())
    if not all(outcome.result.passed for outcome in outcomes):
        raise typer.Exit(1)


def _save_certificates(reports: Iterable[BlockReport], directory: Path | None) -> dict[str, str]:
    """Write each certificate as its block is decided; return the file names by block."""
    files: dict[str, str] = {}
    for report in reports:
        if directory is not None:
            files[report.name] = report.verdict.certificate.save(directory).name
    return files


def _with_progress(result: Audit, *, quiet: bool) -> Iterator[BlockReport]:
    return _tracked(result, len(result), quiet=quiet)


def _tracked(items: Iterable[T], total: int, *, quiet: bool) -> Iterator[T]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as progress:
        yield from progress.track(items, total=total, description="deciding")


def _stdout() -> Console:
    """Rich on a terminal; in a pipe no colour and no wrapping."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=1000, highlight=False, no_color=True)


def main() -> NoReturn:
    """Run the command line; every failure is one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(standalone_mode=True)
    except UnskipError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except MemoryError:
        _fail("not enough memory for this block", 2)
    except Exception as error:
        _fail(f"a fault of unskip's own, please report it: {type(error).__name__}: {error}", 3)
    sys.exit(0)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"error: {one_line(message)}", err=True)
    sys.exit(code)
