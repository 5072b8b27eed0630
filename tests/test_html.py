"""The HTML report: right figures, nothing unescaped, and, in a real browser, a table that works."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import GENERIC, PLANTED, D, npz
from test_malformed import Unskip, write_npz

from unskip import ResidualBlock, audit
from unskip.alignment import alignments
from unskip.certificates import Interval
from unskip.reports.html import audit_page
from unskip.reports.words import rounded

HOSTILE = '</script><script>alert(1)</script>"&\u202e'


@pytest.fixture
def unskip(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Unskip:
    return Unskip(capsys, monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Blocks b10, b9 and pre: not absorbable, absorbable, and not at any width."""
    pre = {**GENERIC, "norm": "pre-rmsnorm"}
    return npz(tmp_path / "model.npz", b9=PLANTED, b10=GENERIC, pre=pre)


class Page(HTMLParser):
    """The text of the page, its elements by name, and the cells of its table."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert self.stack == []  # every element is closed where it should be

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in self.VOID:
            self.stack.append(name)
        if name == "tr":
            self.rows.append([])
        if name in ("td", "th"):
            self.rows[-1].append("")
        self.text.setdefault(name, []).append("")

    def handle_endtag(self, name: str) -> None:
        assert self.stack.pop() == name

    def handle_data(self, data: str) -> None:
        for name in set(self.stack):
            self.text[name][-1] += data
        if "td" in self.stack or ("th" in self.stack and self.rows):
            self.rows[-1][-1] += data

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [a for n, a in self.elements if n == name]


def parsed(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def test_the_page_says_what_the_json_says(unskip: Unskip, model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    code, out, err = unskip("audit", model, "--html", report, "--json", "-")
    assert (code, err) == (0, "")
    blocks = json.loads(out)["blocks"]
    page = parsed(report)
    assert page.text["p"][0] == "Of 3 skip connections, 1 can be absorbed, 2 cannot."
    header, *rows = page.rows
    assert header == ["block", "d × m", "activation", "norm", "answer", "defect", "width"]
    assert [row[0] for row in rows[::2]] == [b["name"] for b in blocks] == ["b9", "b10", "pre"]
    for row, (detail,), block in zip(rows[::2], rows[1::2], blocks, strict=True):
        assert row[1:4] == [f"{block['d']} × {block['m']}", block["activation"], block["norm"]]
        assert row[4].split(",")[0] == block["answer"]
        assert block["reason"][1:] in detail
        assert block["rule"] in detail
        if block["defect"] and block["defect"][1] > 0:
            shown = [float(x) for x in row[5].split(" … ")]
            low, high = block["defect"]
            assert low - 1e-4 <= shown[0] <= low  # what is shown is still proved
            assert high <= shown[1] <= high + 1e-4
        else:
            assert row[5] == ("0" if block["defect"] else "–")
        if block["width"][0] is None:
            assert row[6] == "none"
            assert "No number of neurons suffices" in detail
        else:
            assert [int(x) for x in row[6].split(" … ")] == sorted(set(block["width"]))
    assert "0, 1, 2" in rows[1][0]  # the neurons to flip


def test_alignments_are_those_of_the_definition(unskip: Unskip) -> None:
    rng = np.random.default_rng(3)
    up, down, a = rng.normal(size=(50, 4)), rng.normal(size=(4, 50)), rng.normal(size=(4, 4))
    centre = np.eye(4) - 0.25
    for norm, pi in (("none", np.eye(4)), ("post-layernorm", centre)):
        for skip in (None, 2.0, rng.normal(size=4), a):
            block = ResidualBlock(
                w_up=up, w_down=down, activation="leaky_relu(0.5)", skip=skip, norm=norm
            )
            target = pi @ block.skip_matrix
            r = np.array([1.5 * np.sum(target * np.outer(down[:, j], up[j])) for j in range(50)])
            found = alignments(block)
            assert found is not None
            assert found.reach == pytest.approx(-r[r < 0].sum())
            assert found.needed == pytest.approx(np.linalg.norm(target) ** 2)
            assert found.negative == (r < 0).sum()
            assert found.counts.sum() == 50
            assert 0 in found.edges
            assert found.counts[found.edges[1:] <= 0].sum() == (r < 0).sum()


def test_alignments_of_gates_are_what_a_flip_leaves() -> None:
    """d_j g(w·x + b)(v·x + e) minus its flip is κ d_j (w·x + b)(v·x + e): linear part by hand."""
    rng = np.random.default_rng(4)
    v, w, down = rng.normal(size=(7, 3)), rng.normal(size=(7, 3)), rng.normal(size=(3, 7))
    b, e = rng.normal(size=7), rng.normal(size=7)
    arrays = {"w_up": v, "w_gate": w, "w_down": down, "b_gate": b, "b_up": e}
    for gate, rows in (("silu", b[:, None] * v + e[:, None] * w), ("sigmoid", v)):
        found = alignments(ResidualBlock(activation=gate, **arrays))
        assert found is not None
        r = np.sum(rows * down.T, axis=1)
        assert found.reach == pytest.approx(-r[r < 0].sum())
        assert found.needed == 3
    assert alignments(ResidualBlock(w_up=v, w_down=down, activation="tanh")) is None
    assert (
        alignments(ResidualBlock(w_up=v, w_down=down, activation="relu", norm="pre-rmsnorm"))
        is None
    )


def test_alignments_in_many_chunks_and_beyond_float64() -> None:
    rng = np.random.default_rng(5)
    up, down = rng.normal(size=(3000, 2)), rng.normal(size=(2, 3000))
    found = alignments(ResidualBlock(w_up=up, w_down=down, activation="gelu"))
    assert found is not None
    assert found.reach == pytest.approx(np.maximum(0, -np.sum(up * down.T, axis=1)).sum())
    huge = ResidualBlock(w_up=[[1e300]], w_down=[[1e300]], activation="relu")
    assert alignments(huge) is None
    nothing = alignments(ResidualBlock(w_up=[[0.0]], w_down=[[0.0]], activation="relu"))
    assert nothing is not None
    assert (nothing.reach, nothing.counts.sum()) == (0, 1)


def test_the_histogram_draws_every_neuron(model: Path) -> None:
    page = Page(audit_page(audit(model)))
    drawn = [t for t in page.text["title"][1:] if "neurons between" in t]
    assert sum(int(t.split()[0]) for t in drawn) == D + len(GENERIC["w_up"])  # none for pre-norm
    r = np.sum(GENERIC["w_up"] * GENERIC["w_down"].T, axis=1)
    reach = f"{np.maximum(0, -r).sum():.4g}"
    assert f"Together they reach {reach} of the 3 that the skip needs" in " ".join(page.text["td"])


def test_names_are_escaped(tmp_path: Path) -> None:
    hostile = tmp_path / "a<b>&.npz"
    write_npz(hostile, {"activation": "relu"} | {f"{HOSTILE}.{k}": a for k, a in PLANTED.items()})
    html = audit_page(audit(hostile))
    page = Page(html)
    assert [r[0] for r in page.rows[1::2]] == [HOSTILE.replace("\u202e", "\\u202e")]
    assert len(page.all("script")) == 1
    assert "alert(1)" not in page.text["script"][0]
    assert "a<b>&.npz" in page.text["title"][0]
    assert "\u202e" not in html


def test_the_page_loads_nothing(model: Path) -> None:
    html = audit_page(audit(model))
    page = Page(html)
    assert not [a for _, a in page.elements if "src" in a or a.get("style")]
    links = [a["href"] for _, a in page.elements if "href" in a]
    assert all(str(link).startswith(("#", "data:")) for link in links)
    assert not re.search(r"url\(|@import|https?:", html)
    policy = next(a for a in page.all("meta") if "http-equiv" in a)
    assert str(policy["content"]).startswith("default-src 'none'")


def test_headings_sort_and_targets_exist(model: Path) -> None:
    page = Page(audit_page(audit(model)))
    headings = [a for a in page.all("th") if a.get("scope") == "col"]
    assert {a["aria-sort"] for a in headings} == {"none"}
    ids = [str(a["id"]) for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = {str(a["href"])[1:] for a in page.all("a")}
    assert links
    assert links <= set(ids)
    controls = {a["aria-controls"] for a in page.all("button") if "aria-controls" in a}
    assert controls <= set(ids)


def test_one_block_has_no_chart_by_depth(unskip: Unskip, model: Path) -> None:
    page = Page(audit_page(audit(model, blocks="b10")))
    assert "Defect by depth" not in page.text["h2"]
    assert page.text["p"][0] == "The skip cannot be absorbed at this width."


def test_certificates_are_named(unskip: Unskip, model: Path, tmp_path: Path) -> None:
    report, proofs = tmp_path / "r.html", tmp_path / "proofs"
    assert unskip("audit", model, "--html", report, "--certificates", proofs, "-q").code == 0
    details = [row[0] for row in parsed(report).rows[2::2]]
    for file in ("b9.json", "b10.json", "pre.json"):
        assert sum(file in detail for detail in details) == 1


def test_existing_files_and_bad_places(unskip: Unskip, model: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    report.write_text("mine")
    outcome = unskip("audit", model, "--html", report)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--force" in outcome.err
    assert report.read_text() == "mine"
    assert unskip("audit", model, "--html", report, "--force").code == 0
    assert report.read_text().startswith("<!doctype html>")
    assert unskip("audit", model, "--html", tmp_path / "no" / "r.html").code == 2
    assert unskip("audit", model, "--html", tmp_path, "--force").code == 2
    assert unskip("audit", model, "--html", tmp_path / "b.html", "--blocks", "x").code == 2
    assert not (tmp_path / "b.html").exists()


def test_bounds_are_rounded_outwards() -> None:
    assert tuple(rounded(Interval(0.57146, 0.73041))) == (0.5714, 0.7305)
    assert tuple(rounded(Interval(0.5, 0.5))) == (0.5, 0.5)
    assert tuple(rounded(Interval(0.0, 2.5))) == (0.0, 1.0)  # flipping nothing leaves 1


# ------------------------------------------------------------------------------ in a browser

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


@pytest.fixture(scope="module")
def browser() -> Any:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, model: Path, tmp_path: Path) -> Any:
    (tmp_path / "r.html").write_text(audit_page(audit(model)), "utf-8")
    context = browser.new_context()
    opened = context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto((tmp_path / "r.html").as_uri())
    yield opened
    assert problems == []
    assert [u for u in requests if not u.startswith(("file:", "data:"))] == []
    context.close()


def names(page: Any) -> list[str]:
    return [b.inner_text() for b in page.locator(".open-block").all() if b.is_visible()]


@pytest.mark.slow
def test_sorting(page: Any) -> None:
    assert names(page) == ["b9", "b10", "pre"]
    heading = page.get_by_role("columnheader", name="width")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert names(page) == ["b9", "b10", "pre"]  # 3, 7 … 9, none
    page.keyboard.press("Enter")  # the heading has the focus
    assert heading.get_attribute("aria-sort") == "descending"
    assert names(page) == ["pre", "b10", "b9"]
    page.get_by_role("columnheader", name="answer").get_by_role("button").click()
    assert names(page)[0] == "b9"  # absorbable
    assert heading.get_attribute("aria-sort") == "none"


@pytest.mark.slow
def test_filtering(page: Any) -> None:
    page.get_by_role("searchbox").fill("RMSNORM")
    assert names(page) == ["pre"]
    assert page.get_by_role("status").inner_text() == "1 of 3 shown"
    page.get_by_role("searchbox").fill("")
    page.get_by_role("combobox").select_option("not absorbable")
    assert names(page) == ["b10", "pre"]
    page.get_by_role("combobox").select_option("absorbable")
    assert names(page) == ["b9"]
    page.get_by_role("link", name="b10").first.click()  # a link shows what the filter hid
    page.locator("#block-1-detail").wait_for(state="visible")
    assert names(page) == ["b9", "b10", "pre"]


@pytest.mark.slow
def test_opening_a_block_with_the_keyboard(page: Any) -> None:
    button = page.get_by_role("button", name="b10")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    detail = page.locator("#block-1-detail")
    assert detail.is_visible()
    assert detail.locator("svg").count() == 2
    page.keyboard.press("Space")
    assert detail.is_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_overflows(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for button in page.locator(".open-block").all():
        button.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_dark_and_print(page: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) != light
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert page.locator("#block-1-detail").is_visible()  # paper cannot be clicked
    assert page.get_by_role("searchbox").is_hidden()


@pytest.mark.slow
def test_without_script_everything_shows(browser: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text(audit_page(audit(model)), "utf-8")
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((tmp_path / "r.html").as_uri())
    assert opened.locator(".detail").count() == 3
    assert all(row.is_visible() for row in opened.locator(".detail").all())
    assert opened.locator("form").is_hidden()
    context.close()


@pytest.mark.slow
def test_an_injected_script_would_not_run(browser: Any, model: Path, tmp_path: Path) -> None:
    html = audit_page(audit(model))
    inject = "<script>document.title = 'owned'</script></main>"
    (tmp_path / "r.html").write_text(html.replace("</main>", inject), "utf-8")
    opened = browser.new_page()
    opened.goto((tmp_path / "r.html").as_uri())
    assert opened.title() != "owned"
    assert opened.locator("form").is_visible()  # while the page's own script did
    opened.close()
