"""The command line: what it prints where, what it writes, and how it exits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_malformed import (
    BERT,
    CONFIG,
    LLAMA,
    LLAMA_LAYER,
    Unskip,
    bert,
    block,
    family,
    write_directory,
    write_npz,
)

import unskip as library

RNG = np.random.default_rng(11)
D, M = 3, 6
PLANTED = {"w_up": np.eye(D), "w_down": -np.eye(D)}  # x − relu(x) = −relu(−x)
GENERIC = {
    "w_up": RNG.normal(size=(M, D)),
    "w_down": RNG.normal(size=(D, M)),
    "b_up": RNG.normal(size=M),
    "b_down": RNG.normal(size=D),
}
BLOCK_KEYS = {
    *("name", "places", "activation", "gated", "norm", "biases", "d", "m"),
    *("answer", "scope", "rule", "reference", "reason", "assumptions"),
    *("defect", "width", "subset", "certificate", "seconds"),
}


@pytest.fixture
def unskip(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Unskip:
    return Unskip(capsys, monkeypatch)


def npz(path: Path, **blocks: dict[str, Any]) -> Path:
    arrays = {f"{name}.{key}": a for name, block in blocks.items() for key, a in block.items()}
    return write_npz(path, {"activation": "relu", **arrays})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three blocks: one is absorbable, one is not at this width, one is not at any."""
    pre = {**GENERIC, "norm": "pre-rmsnorm"}
    return npz(tmp_path / "model.npz", planted=PLANTED, generic=GENERIC, pre=pre)


def document(unskip: Unskip, *arguments: object) -> dict[str, Any]:
    outcome = unskip("audit", *arguments, "--json", "-")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {block["name"]: block for block in document["blocks"]}


def test_table_in_a_pipe(unskip: Unskip, model: Path) -> None:
    code, out, err = unskip("audit", model)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    header, *rows = out.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        *("block", "d × m", "activation", "norm", "answer", "defect", "width", "why", "s"),
    ]
    assert [row.split()[0] for row in rows[:3]] == ["generic", "planted", "pre"]
    assert "not absorbable, this width" in rows[0]
    assert "3 × 6" in rows[0]
    assert re.search(
        r" absorbable  +0  +[0-3 …]+  subset-condition: flipping 3 of 3 neurons", rows[1]
    )
    assert "not absorbable, any width" in rows[2]
    assert " none " in rows[2]
    assert all(row.startswith("Assuming that the replacement ") for row in rows[3:-1])
    assert rows[-1] == "3 blocks: 1 absorbable, 2 not absorbable, 0 unknown."


def test_json_follows_its_schema(unskip: Unskip, model: Path) -> None:
    audited = document(unskip, model)
    assert list(audited) == ["schema", "model", "blocks", "summary"]
    assert audited["schema"] == 1
    assert audited["model"] == {"path": str(model), "kind": "npz", "blocks": 3}
    assert audited["summary"] == {
        "blocks": 3,
        "absorbable": 1,
        "not_absorbable": 2,
        "unknown": 0,
    }
    for entry in audited["blocks"]:
        assert set(entry) == BLOCK_KEYS
        assert entry["seconds"] >= 0
        assert entry["certificate"] is None
        assert (entry["activation"], entry["gated"], entry["places"]) == ("relu", False, 1)


def test_json_of_each_answer(unskip: Unskip, model: Path) -> None:
    blocks = by_name(document(unskip, model))
    planted, generic, pre = (blocks[name] for name in ("planted", "generic", "pre"))
    assert planted["answer"] == "absorbable"
    assert planted["subset"] == [0, 1, 2]
    assert planted["defect"] == [0, 0]
    assert planted["width"][1] == 3
    assert planted["biases"] == []
    assert (planted["d"], planted["m"], planted["norm"]) == (3, 3, "none")
    assert (generic["answer"], generic["scope"]) == ("not absorbable", "this width")
    assert generic["rule"] == "subset-condition"
    assert generic["subset"] is None
    assert generic["biases"] == ["b_up", "b_down"]
    assert 0 < generic["defect"][0] <= generic["defect"][1]
    assert M < generic["width"][0] <= generic["width"][1]
    assert (pre["rule"], pre["scope"], pre["norm"]) == ("pre-norm", "any width", "pre-rmsnorm")
    assert pre["width"] == [None, None]
    assert pre["defect"] is None
    assert (
        pre["reference"]
        == library.decide(
            library.ResidualBlock(**GENERIC, activation="relu", norm="pre-rmsnorm")
        ).reference
    )


def test_json_of_a_model_directory(unskip: Unskip, tmp_path: Path) -> None:
    path = bert()(tmp_path)
    audited = document(unskip, path)
    assert audited["model"] == {
        "path": str(path),
        "kind": "huggingface",
        "model_type": "bert",
        "architectures": ["BertModel"],
    }
    assert list(by_name(audited)) == ["encoder.layer.0", "encoder.layer.1"]


def test_json_counts_the_places_of_shared_weights(unskip: Unskip, tmp_path: Path) -> None:
    shared = {
        f"encoder.albert_layer_groups.0.albert_layers.0.{new}": BERT[f"encoder.layer.0.{old}"]
        for new, old in (
            ("ffn.weight", "intermediate.dense.weight"),
            ("ffn.bias", "intermediate.dense.bias"),
            ("ffn_output.weight", "output.dense.weight"),
            ("ffn_output.bias", "output.dense.bias"),
            ("full_layer_layer_norm.weight", "output.LayerNorm.weight"),
            ("full_layer_layer_norm.bias", "output.LayerNorm.bias"),
        )
    }
    config = {**CONFIG, "model_type": "albert", "num_hidden_layers": 12}
    path = write_directory(tmp_path / "albert", config, shared)
    assert [entry["places"] for entry in document(unskip, path)["blocks"]] == [12]
    assert "albert_layers.0 (×12)" in unskip("audit", path).out


@pytest.mark.parametrize("architectures", ["\ud800", ["\ud800", "\x1b[2J"], [[[]]], {}, 7])
def test_json_survives_what_a_configuration_may_say(
    unskip: Unskip, tmp_path: Path, architectures: object
) -> None:
    audited = document(unskip, bert(architectures=architectures)(tmp_path))
    assert all(isinstance(name, str) for name in audited["model"]["architectures"])


def test_json_to_a_file_beside_the_table(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    target = tmp_path / "audit.json"
    code, out, err = unskip("audit", model, "--json", target)
    assert (code, err) == (0, "")
    assert out.startswith("block ")
    written = json.loads(target.read_text())
    printed = document(unskip, model)
    for entry in (*written["blocks"], *printed["blocks"]):
        del entry["seconds"]
    assert written == printed


def test_certificates_are_written_and_hold(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    directory = tmp_path / "deep" / "certificates"
    audited = document(unskip, model, "--certificates", directory)
    names = {entry["certificate"] for entry in audited["blocks"]}
    assert names == {"generic.json", "planted.json", "pre.json"}
    assert names == {path.name for path in directory.glob("*.json")}
    code, out, err = unskip("check", directory, model)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("generic", "planted", "pre"), strict=True):
        assert line.startswith(f"ok      {name}: ")


def test_one_weight_changed_fails_the_check(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    directory = tmp_path / "certificates"
    unskip("audit", model, "--certificates", directory)
    w_up = PLANTED["w_up"].copy()
    w_up[0, 1] = 2.0**-40
    npz(model, planted={**PLANTED, "w_up": w_up}, generic=GENERIC)
    code, out, err = unskip("check", directory, model)
    assert code == 1
    generic, planted, pre, *missing = out.splitlines()
    assert missing == ["MISSING planted"]
    assert generic.startswith("ok      generic: subset-condition: ")
    assert planted.startswith("FAILED  planted.json: ")
    assert pre == "FAILED  pre.json: the model has no block 'pre'"
    assert "no valid certificate" in err


def test_a_no_is_not_accepted_for_a_block_that_is_absorbable(
    unskip: Unskip, tmp_path: Path
) -> None:
    model, directory = tmp_path / "model.npz", tmp_path / "certificates"
    square = {name: GENERIC[name][:D, :D] for name in PLANTED}
    unskip("audit", npz(model, block=square), "--certificates", directory)
    assert unskip("check", directory, model).code == 0
    code, out, _ = unskip("check", directory, npz(model, block=PLANTED))
    assert code == 1
    assert out.startswith("FAILED  block.json: ")


def test_certificates_of_another_model_fail(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    directory = tmp_path / "certificates"
    unskip("audit", bert()(tmp_path), "--certificates", directory)
    code, out, err = unskip("check", directory, model)
    assert code == 1
    assert [line[:8] for line in out.splitlines()] == ["FAILED  "] * 2 + ["MISSING "] * 3
    assert err.startswith("3 of 3 blocks of the model have no valid certificate here")
    assert unskip("check", directory, model, "--quiet").err == ""


def test_a_block_without_a_certificate_fails_unless_allowed(
    unskip: Unskip, tmp_path: Path, model: Path
) -> None:
    directory = tmp_path / "certificates"
    unskip("audit", model, "--certificates", directory, "--blocks", "p*")
    code, out, err = unskip("check", directory, model)
    assert code == 1
    assert out.splitlines()[-1] == "MISSING generic"
    assert "--allow-missing" in err
    code, out, err = unskip("check", directory, model, "--allow-missing")
    assert code == 0
    assert "MISSING" not in out
    assert err.startswith("1 of 3 blocks")


def test_no_stale_certificate_survives_a_new_audit(
    unskip: Unskip, tmp_path: Path, model: Path
) -> None:
    directory = tmp_path / "certificates"
    unskip("audit", model, "--certificates", directory)
    others = {"notes.json": "{}", "broken.json": "{", "notes.txt": "mine"}
    for name, text in others.items():
        (directory / name).write_text(text)
    arguments = ("--certificates", directory, "--blocks", "planted", "--force")
    assert unskip("audit", model, *arguments).code == 0
    assert {path.name for path in directory.iterdir()} == {
        "planted.json", "planted.safetensors", *others,
    }  # fmt: skip
    assert all((directory / name).read_text() == text for name, text in others.items())


def test_results_name_their_rule(unskip: Unskip, model: Path) -> None:
    lines = unskip("audit", model).out.splitlines()
    rules = {"planted": "subset-condition", "generic": "subset-condition", "pre": "pre-norm"}
    for name, rule in rules.items():
        assert any(line.startswith(name) and f"{rule}: " in line for line in lines)


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "unskip", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (0, f"unskip {library.__version__}\n")


def test_blocks_by_glob(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    assert list(by_name(document(unskip, model, "--blocks", "p*"))) == ["planted", "pre"]
    path = bert()(tmp_path)
    assert list(by_name(document(unskip, path, "--blocks", "*.1"))) == ["encoder.layer.1"]
    code, out, err = unskip("audit", model, "--blocks", "layer*")
    assert (code, out) == (2, "")
    assert err.startswith("error: no block matches 'layer*'")
    assert "generic" in err


def test_existing_certificates_are_kept_unless_forced(
    unskip: Unskip, tmp_path: Path, model: Path
) -> None:
    directory = tmp_path / "certificates"
    directory.mkdir()
    assert unskip("audit", model, "--certificates", directory).code == 0
    (directory / "generic.json").write_text("mine")
    code, out, err = unskip("audit", model, "--certificates", directory)
    assert (code, out) == (2, "")
    assert f"{directory} exists already" in err
    assert "--force" in err
    assert (directory / "generic.json").read_text() == "mine"
    assert unskip("audit", model, "--certificates", directory, "--force").code == 0
    assert unskip("check", directory, model).code == 0


def test_existing_json_is_kept_unless_forced(unskip: Unskip, tmp_path: Path, model: Path) -> None:
    target = tmp_path / "audit.json"
    target.write_text("mine")
    code, out, err = unskip("audit", model, "--json", target)
    assert (code, out) == (2, "")
    assert f"{target} exists already" in err
    assert target.read_text() == "mine"
    assert unskip("audit", model, "--json", target, "--force").code == 0
    assert json.loads(target.read_text())["schema"] == 1


def test_nothing_is_written_for_a_model_that_cannot_be_opened(
    unskip: Unskip, tmp_path: Path
) -> None:
    outputs = "--json", tmp_path / "audit.json", "--certificates", tmp_path / "certificates"
    assert unskip("audit", tmp_path / "absent.npz", *outputs).code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["absent/audit.json", ".", "model.npz/audit.json"])
def test_json_where_no_file_can_be(
    unskip: Unskip, tmp_path: Path, model: Path, target: str
) -> None:
    before = model.read_bytes()
    code, out, err = unskip("audit", model, "--json", tmp_path / target, "--force")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path / target} ")
    assert list(tmp_path.iterdir()) == [model]
    assert model.read_bytes() == before


def test_quick_answers_the_same_with_looser_bounds(
    unskip: Unskip, tmp_path: Path, model: Path
) -> None:
    directory = tmp_path / "certificates"
    full = by_name(document(unskip, model))
    quick = by_name(document(unskip, model, "--quick", "--certificates", directory))
    assert full.keys() == quick.keys()
    for name, entry in quick.items():
        assert entry["answer"] == full[name]["answer"]
        assert entry["rule"] == full[name]["rule"]
    lower, upper = quick["generic"]["defect"]
    assert 0 < lower <= full["generic"]["defect"][0]
    assert full["generic"]["defect"][1] <= upper
    assert unskip("check", directory, model).code == 0


def test_inner_map_of_a_gated_block(unskip: Unskip, tmp_path: Path) -> None:
    path, directory = family(LLAMA, LLAMA_LAYER)(tmp_path), tmp_path / "certificates"
    (outer,) = document(unskip, path)["blocks"]
    (inner,) = document(unskip, path, "--inner", "--certificates", directory)["blocks"]
    assert (outer["name"], outer["rule"]) == ("model.layers.0", "pre-norm")
    assert (inner["name"], inner["norm"]) == ("model.layers.0/inner", "none")
    assert inner["rule"] == "vanishing-linearisation"
    assert inner["scope"] == "any width, any depth"
    assert inner["gated"]
    code, out, err = unskip("check", directory, path)
    assert (code, err) == (0, "")
    assert out.startswith("ok      model.layers.0/inner: ")


def test_inner_map_of_a_block_that_has_none(unskip: Unskip, tmp_path: Path) -> None:
    code, out, err = unskip("audit", bert()(tmp_path), "--inner")
    assert (code, out) == (2, "")
    assert err.startswith("error: block encoder.layer.0 is not pre-norm")


def test_one_block_is_named_after_its_file(unskip: Unskip, tmp_path: Path) -> None:
    path = block()(tmp_path).rename(tmp_path / "mine.safetensors")
    audited = document(unskip, path)
    assert list(by_name(audited)) == ["mine"]
    assert audited["model"]["kind"] == "safetensors"


def test_blocks_are_in_the_order_of_their_numbers(unskip: Unskip, tmp_path: Path) -> None:
    names = ["layer2", "layer10", "layer1"]
    path = npz(tmp_path / "model.npz", **dict.fromkeys(names, PLANTED))
    assert list(by_name(document(unskip, path))) == ["layer1", "layer2", "layer10"]


def test_settings_of_one_block_come_before_those_of_all(unskip: Unskip, tmp_path: Path) -> None:
    path = npz(tmp_path / "model.npz", a=GENERIC, b={**GENERIC, "activation": "gelu"})
    activations = [entry["activation"] for entry in document(unskip, path)["blocks"]]
    assert activations == ["relu", "gelu"]


def test_names_cannot_command_the_terminal(unskip: Unskip, tmp_path: Path) -> None:
    path = npz(tmp_path / "model.npz", **{"\x1b[2J\x07": PLANTED, "[red]": PLANTED})
    directory = tmp_path / "certificates"
    audited = unskip("audit", path, "--certificates", directory)
    checked = unskip("check", directory, path)
    assert (audited.code, checked.code) == (0, 0)
    for text in (audited.out, checked.out):
        assert r"\x1b[2J\x07" in text
        assert "[red]" in text
        assert "\x1b" not in text
        assert "\x07" not in text


def test_version(unskip: Unskip) -> None:
    assert unskip("--version") == (0, f"unskip {library.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["adit"], "adit"),
        (["audit"], "MODEL"),
        (["audit", "a", "b"], "b"),
        (["audit", "a", "--jsn", "-"], "--jsn"),
        (["audit", "a", "--blocks"], "--blocks"),
        (["check", "a"], "MODEL"),
        (["--verbose", "audit", "a"], "--verbose"),
    ],
)
def test_usage_errors(unskip: Unskip, arguments: list[str], named: str) -> None:
    code, out, err = unskip(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["check", "--help"]])
def test_help(unskip: Unskip, arguments: list[str]) -> None:
    code, out, err = unskip(*arguments)
    assert (code, err) == (0, "")
    assert "Usage: " in out


def test_demo(unskip: Unskip) -> None:
    code, out, err = unskip("demo")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("block ")
    summary = next(line for line in lines if " blocks: " in line)
    count = int(summary.split()[0])
    checked = [line for line in lines if line.startswith("checked: ")]
    assert count == len(checked) > 0
    assert lines[-count:] == checked


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("unskip"), *arguments]
    return subprocess.run(command, text=True, timeout=60, **options)


def test_progress_and_colour_on_a_terminal_only(model: Path) -> None:
    pty = pytest.importorskip("pty")
    primary, secondary = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    try:
        done = run(
            *("audit", model, "--json", "-"),
            stdout=subprocess.PIPE,
            stderr=secondary,
            env=environment,
        )
        os.set_blocking(primary, False)
        progress = os.read(primary, 1 << 16).decode()
    finally:
        os.close(primary)
        os.close(secondary)
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]["blocks"] == 3
    assert "deciding" in progress
    assert "\x1b" in progress


def test_a_terminal_that_cannot_show_every_character(model: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("audit", model, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("3 blocks: 1 absorbable, 2 not absorbable, 0 unknown.\n")


def test_a_reader_that_stops_reading(model: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run("audit", model, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr.lower()


def test_absorb_writes_blocks_that_read_back(unskip: Unskip, tmp_path: Path) -> None:
    model = npz(tmp_path / "model.npz", planted=PLANTED, generic=GENERIC)
    before, plain = model.read_bytes(), tmp_path / "plain.safetensors"
    done = unskip("absorb", model, "-o", plain)
    assert done.code == 0
    assert f"{M} → {M + D}" in done.out
    assert model.read_bytes() == before
    originals = [report.block for report in library.audit(model)]
    x = RNG.normal(size=(50, D))
    for original, report in zip(originals, library.audit(plain), strict=True):
        written = report.block
        assert not written.skip_matrix.any()
        assert np.allclose(written(x), original(x), rtol=1e-12, atol=1e-12)


def test_absorb_keeps_the_norm_and_the_type(unskip: Unskip, tmp_path: Path) -> None:
    tensors = {k: v.astype(np.float32) for k, v in GENERIC.items()}
    gain = np.linspace(1, 2, D, dtype=np.float32)
    model = npz(tmp_path / "m.npz", b={**tensors, "norm": "post-layernorm", "norm_gain": gain})
    plain = tmp_path / "plain.safetensors"
    assert unskip("absorb", model, "-o", plain).code == 0
    (original,), (written,) = (
        [report.block for report in library.audit(path)] for path in (model, plain)
    )
    assert written.w_down.dtype == np.float32
    x = RNG.normal(size=(50, D))
    assert np.allclose(written(x), original(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--width", "same"], 1, "not absorbed at width 6"),
        (["--width", "+2"], 1, "allow a greater width: 3 more neurons"),
        (["--width", "wide"], 2, "give same, minimal or +K"),
        (["--dtype", "int8"], 2, "--dtype is 'int8'"),
        (["--blocks", "nothing"], 2, "no block matches"),
    ],
)
def test_absorb_refuses_and_writes_nothing(
    unskip: Unskip, tmp_path: Path, arguments: list[str], code: int, named: str
) -> None:
    model = npz(tmp_path / "model.npz", generic=GENERIC)
    done = unskip("absorb", model, "-o", tmp_path / "plain.safetensors", *arguments)
    assert done.code == code
    assert named in done.err
    assert not done.out
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_absorb_looks_before_it_leaps(unskip: Unskip, tmp_path: Path) -> None:
    model = npz(tmp_path / "model.npz", generic=GENERIC)
    done = unskip("absorb", model, "--dry-run")
    assert done.code == 0
    assert f"parameters {2 * D * M + M + D} → {2 * D * (M + D) + M + D + D}." in done.out
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]
    assert unskip("absorb", model).code == 2
    kept = tmp_path / "kept.safetensors"
    kept.write_text("mine")
    assert unskip("absorb", model, "-o", kept).code == 2
    assert kept.read_text() == "mine"
    assert unskip("absorb", model, "-o", kept, "--force").code == 0


def test_absorb_never_overwrites_the_model(unskip: Unskip, tmp_path: Path) -> None:
    model = npz(tmp_path / "model.npz", generic=GENERIC)
    plain = tmp_path / "plain.safetensors"
    assert unskip("absorb", model, "-o", plain).code == 0
    before = plain.read_bytes()
    done = unskip("absorb", plain, "-o", plain, "--force")
    assert done.code == 2
    assert "is the model itself" in done.err
    assert plain.read_bytes() == before


def test_absorb_refuses_a_type_too_narrow_for_a_weight(unskip: Unskip, tmp_path: Path) -> None:
    wide = {**GENERIC, "w_down": GENERIC["w_down"] * 1e6}
    model = npz(tmp_path / "model.npz", wide=wide)
    done = unskip("absorb", model, "-o", tmp_path / "p.safetensors", "--dtype", "float16")
    assert done.code == 2
    assert "beyond float16" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_compare_proves_equality(unskip: Unskip, tmp_path: Path) -> None:
    # x − relu(x) = −relu(−x), and the same with its neurons in another order
    model = npz(tmp_path / "model.npz", planted=PLANTED)
    plain = npz(
        tmp_path / "plain.npz",
        planted={"w_up": -np.eye(D)[::-1], "w_down": -np.eye(D)[:, ::-1], "skip": np.zeros(D)},
    )
    done = unskip("compare", model, plain)
    assert done.code == 0
    assert "ok" in done.out
    assert "equal, proved" in done.out


def test_compare_shows_where_blocks_differ(unskip: Unskip, tmp_path: Path) -> None:
    # −relu(−x) and 1 + 2⁻²⁰ = 1 + 9.54e-7 times it: the relative deviation is the same everywhere
    plain = {"w_up": -np.eye(D), "w_down": -np.eye(D), "skip": np.zeros(D)}
    model = npz(tmp_path / "model.npz", b=plain)
    other = npz(tmp_path / "other.npz", b={**plain, "w_down": -np.eye(D) * (1 + 2**-20)})
    done = unskip("compare", model, other)
    assert done.code == 1
    assert "different, proved" in done.out
    assert f"{2**52 / (2**20 + 1):.3g} ULPs of float64, at x = [" in done.out
    assert unskip("compare", model, other, "--tolerance", "1e-6").code == 0
    assert unskip("compare", model, other, "--tolerance", "9e-7").code == 1


def test_compare_of_what_absorb_wrote(unskip: Unskip, tmp_path: Path) -> None:
    model = npz(tmp_path / "model.npz", generic=GENERIC, planted=PLANTED)
    plain = tmp_path / "plain.safetensors"
    assert unskip("absorb", model, "-o", plain).code == 0
    done = unskip("compare", model, plain, "--tolerance", "1e-12")
    assert done.code == 0
    assert "2 pairs of blocks: 2 accepted." in done.out


def test_compare_pairs_blocks_by_name_or_order(unskip: Unskip, tmp_path: Path) -> None:
    model = npz(tmp_path / "model.npz", a=PLANTED, b=GENERIC)
    renamed = npz(tmp_path / "renamed.npz", c=PLANTED, d=GENERIC)
    fewer = npz(tmp_path / "fewer.npz", c=PLANTED)
    done = unskip("compare", model, renamed)
    assert done.code == 0
    assert "a and c" in done.out
    done = unskip("compare", model, fewer)
    assert done.code == 2
    assert "2 blocks against 1" in done.err


def test_absorb_says_what_would_help_and_does_it(unskip: Unskip, tmp_path: Path) -> None:
    gated = {"w_up": GENERIC["w_up"], "w_gate": GENERIC["w_up"] + 1, "w_down": GENERIC["w_down"]}
    model = npz(tmp_path / "model.npz", b={**gated, "activation": "swiglu"})
    plain = tmp_path / "plain.safetensors"
    done = unskip("absorb", model, "-o", plain)
    assert done.code == 1
    assert f"allow hidden biases: {D} more neurons" in done.err
    assert unskip("absorb", model, "-o", plain, "--hidden-bias").code == 0
    (before,), (after,) = (list(library.audit(path)) for path in (model, plain))
    x = RNG.normal(size=(50, D))
    assert after.block.m == M + D
    assert np.allclose(after.block(x), before.block(x), rtol=1e-12, atol=1e-12)
