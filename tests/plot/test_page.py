"""The page: whole in itself, and in a real browser moved by keyboard and pointer, exact throughout."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command import program

import kvsize

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
ENGINES = {"vllm 0.33.0": "vllm", "transformers 5.24.0": "transformers"}
MODEL = kvsize.load("llama-3.1-8b")
VOID = {"meta", "link", "input"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "kv.html"
    asked = ("--engine", "vllm,transformers", "--ctx", "1k:256k", "--budget", "10GiB")
    assert program("plot", "llama-3.1-8b", *asked, "--out", str(made)) == (0, "", "")
    return made


class Elements(HTMLParser):
    """Every element with its attributes, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(file) -> None:
    text = file.read_text(encoding="utf-8")
    assert "{{" not in text
    elements = Elements()
    elements.feed(text)
    assert elements.open == []
    links = [
        attributes[name]
        for _, attributes in elements.found
        for name in ("src", "href")
        if name in attributes
    ]
    assert links == ["data:,"]
    assert set(re.findall(r"https?://[^\s\"'<>]+", text)) == {"http://www.w3.org/2000/svg"}
    inputs = {
        attributes.get("id") for tag, attributes in elements.found if tag in {"input", "select"}
    }
    labels = {attributes.get("for") for tag, attributes in elements.found if tag == "label"}
    assert inputs == labels == {"context", "batch", "dtype"}


def data(file: Path) -> dict[str, object]:
    text = file.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def test_the_data_in_the_page_is_exact(file) -> None:
    series = data(file)["series"]
    assert len(series) == 12
    for each in series:
        for point in each["points"][::9]:
            exact = kvsize.size(
                MODEL,
                context=point["context"],
                sequences=each["sequences"],
                engine=each["engine"],
                kv_dtype=each["asked_kv_dtype"],
            ).total_bytes
            assert point["size_bytes"] == exact


def test_a_name_cannot_break_the_page(tmp_path) -> None:
    odd = tmp_path / "{{data}}&<b>"
    odd.mkdir()
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "torch_dtype": "bfloat16",
    }
    (odd / "config.json").write_text(json.dumps(config), encoding="utf-8")
    file = tmp_path / "kv.html"
    assert program("plot", str(odd), "--ctx", "1k:2k", "--out", str(file)) == (0, "", "")
    elements = Elements()
    elements.feed(file.read_text(encoding="utf-8"))
    assert [tag for tag, _ in elements.found if tag == "b"] == []
    assert data(file)["series"][0]["model"] == str(odd)


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser, file):
    opened = browser.new_page(viewport={"width": 1000, "height": 1000}, reduced_motion="reduce")
    opened.requested, opened.said = [], []
    opened.on("request", lambda request: opened.requested.append(request.url))
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.goto(file.as_uri())
    yield opened
    assert opened.said == []
    assert opened.requested == [file.as_uri()]
    opened.close()


def shown(page) -> dict[str, int | str]:
    """The bytes of each curve as the table has them."""
    rows = {}
    for row in page.locator("#rows tr").all():
        name, figure, *exact = row.locator("td").all_inner_texts()
        curve = name.strip().removeprefix("llama-3.1-8b, ")
        rows[curve] = int(exact[0].replace(",", "")) if exact and exact[0] else figure
    return rows


def reading(page) -> tuple[int, int]:
    """The context and the sequences that the page says it shows."""
    tokens = page.locator("#context-value").inner_text()
    count = page.locator("#batch-value").inner_text()
    return int(tokens.removesuffix(" tokens").replace(",", "")), int(count)


def exact(page, dtype: str) -> dict[str, int]:
    context, sequences = reading(page)
    return {
        name: kvsize.size(
            MODEL, context=context, sequences=sequences, engine=engine, kv_dtype=dtype
        ).total_bytes
        for name, engine in ENGINES.items()
        if (engine == "vllm" or dtype == "auto") and (engine != "vllm" or context <= 131072)
    }


def test_it_is_moved_by_keyboard(page) -> None:
    assert reading(page) == (131072, 1)
    assert shown(page) == exact(page, "auto")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "context"
    page.keyboard.press("Home")
    assert reading(page) == (1024, 1)
    assert shown(page) == exact(page, "auto") == dict.fromkeys(ENGINES, 2**27)
    page.keyboard.press("ArrowRight")
    assert reading(page)[0] > 1024
    assert shown(page) == exact(page, "auto")
    page.keyboard.press("End")
    assert shown(page) == {"vllm 0.33.0": "refused", **exact(page, "auto")}
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert reading(page) == (262144, 4)
    assert shown(page) == {"vllm 0.33.0": "refused", **exact(page, "auto")}
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "dtype"
    page.keyboard.press("f")
    assert shown(page) == {"transformers 5.24.0": "takes no fp8", **exact(page, "fp8")}
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert shown(page) == {"transformers 5.24.0": "takes no fp8"}


def test_the_figure_under_the_pointer_is_exact(page) -> None:
    box = page.locator("#chart").bounding_box()
    seen = set()
    for share in (0.1, 0.25, 0.4, 0.55, 0.7, 0.85):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        seen.add(reading(page)[0])
        assert {name: size for name, size in shown(page).items() if size != "refused"} == exact(
            page, "auto"
        )
    assert len(seen) == 6
    assert int(page.locator("#context").input_value()) > 0


def test_the_largest_context_that_fits_is_told(page) -> None:
    cells = page.locator("#rows tr td:last-child").all_inner_texts()
    assert cells == ["10.00 GiB: 81,904", "10.00 GiB: 81,920"]  # vLLM holds a block back
    assert page.locator("circle.ring").count() == 2


def test_curves_that_lie_on_each_other_both_show(page) -> None:
    styles = [each.get_attribute("style") for each in page.locator("path.curve").all()]
    widths = [re.search(r"stroke-width: ?([\d.]+)px", style)[1] for style in styles]
    assert widths == ["6.5", "2.5", "2.5"]  # vllm; transformers to the limit, and beyond it


def test_every_control_has_a_name(page) -> None:
    for label in ("Context", "Sequences", "KV dtype", "llama-3.1-8b, vllm 0.33.0"):
        assert page.get_by_label(label, exact=True).count() == 1
    assert page.get_by_role("img", name=re.compile("128.00 MiB at 1,024 tokens")).count() == 1
    assert page.locator("#context").get_attribute("aria-valuetext") == "131,072 tokens"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(page, scheme) -> None:
    page.emulate_media(color_scheme=scheme)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    paper = page.evaluate(style.format("body", "backgroundColor"))
    for text in ("body", ".soft"):
        assert contrast(page.evaluate(style.format(text, "color")), paper) >= 4.5
    assert contrast(page.evaluate(style.format("svg text", "fill")), paper) >= 4.5
    for curve in page.locator("path.curve").all():
        stroke = curve.evaluate("element => getComputedStyle(element).stroke")
        assert contrast(stroke, paper) >= 3


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio of two colours as browsers write them: rgb(31, 35, 40)."""

    def luminance(colour: str) -> float:
        channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
