"""Files of pictures: svg, png, json and text, each with the same data, the same every time."""

from __future__ import annotations

import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest
from command import program, run

from kvsize.plot import writers

SNAPSHOTS = Path(__file__).parent / "snapshots"
ASKED = ("llama-3.1-8b", "gemma-3-27b", "--ctx", "1k:1m", "--budget", "40GiB", "--gpu", "h100")
KINDS = ("gemma-3-27b", "--by", "kind", "--ctx", "1k:160k", "--budget", "4GiB")
LENGTHS = ("llama-3.1-8b", "--lengths", "2k:70,8k:25,32k:5")
CASES = {"lines.txt": ASKED, "kinds.txt": KINDS, "lengths.txt": LENGTHS}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", CASES)
def test_the_chart_in_plain_text(name, request) -> None:
    said = program("plot", *CASES[name], COLUMNS="80")
    assert (said.code, said.err) == (0, "")
    file = SNAPSHOTS / name
    if request.config.getoption("--update"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(said.out, encoding="utf-8", newline="")
    assert said.out == file.read_text(encoding="utf-8")
    assert max(map(len, said.out.splitlines())) <= 80


def test_every_snapshot_is_compared() -> None:
    assert {file.name for file in SNAPSHOTS.iterdir()} == set(CASES)


@pytest.mark.parametrize("width", ["20", "50", "100", "300"])
def test_the_chart_is_as_wide_as_it_can_be_read(width, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = run(capsys, "plot", "llama-3.1-8b", "--budget", "4GiB").out.splitlines()
    assert max(map(len, lines)) == max(50, min(int(width), 120))


def test_curves_that_lie_on_each_other_both_show(capsys) -> None:
    said = run(capsys, "plot", "llama-3.1-8b", "--engine", "vllm,transformers", "--ctx", "1k:4k")
    drawn = [line for line in said.out.splitlines() if "│" in line or "┤" in line]
    assert "*o*" in "".join(drawn)


def drawn(tmp_path: Path, ending: str, asked: tuple[str, ...] = ASKED) -> bytes:
    file = tmp_path / f"kv.{ending}"
    said = program("plot", *asked, "--out", str(file))
    assert said == (0, "", "")
    return file.read_bytes()


@pytest.mark.parametrize("ending", ["svg", "png", "json", "txt"])
def test_the_same_picture_is_the_same_bytes(ending, tmp_path) -> None:
    (tmp_path / "again").mkdir()
    assert drawn(tmp_path, ending) == drawn(tmp_path / "again", ending)


def test_json_is_the_data_of_the_picture(tmp_path, capsys) -> None:
    said = run(capsys, "plot", *ASKED, "--json")
    assert said.out.encode() == drawn(tmp_path, "json")
    data = json.loads(said.out)
    assert (data["schema_version"], data["picture"], data["stacked"]) == (1, "context", False)
    assert [series["label"] for series in data["series"]] == ["llama-3.1-8b", "gemma-3-27b"]
    assert data["series"][0]["points"][0] == {"context": 1024, "size_bytes": 2**27}
    assert data["series"][0]["points"][-1] == {"context": 2**20, "size_bytes": 2**37}
    assert data["budgets"][0]["size_bytes"] == 40 * 2**30
    assert data["crossings"][0] == {
        "series": 0,
        "budget": 0,
        "context": 327680,
        "size_bytes": 40 * 2**30,
        "everywhere": False,
        "least_context": 327680,
        "most_context": 327680,
    }


def test_json_of_lengths(capsys) -> None:
    data = json.loads(run(capsys, "plot", *LENGTHS, "--json").out)
    assert data["picture"] == "lengths"
    need = (70 * 2048 + 25 * 8192 + 5 * 32768) // 100 * 131072
    assert [(way["way"], way["needed_bytes"]) for way in data["ways"]] == [
        ("StaticCache", need),
        ("DynamicCache", need),
        ("vllm blocks", need),
        ("llama.cpp slots", need),
    ]
    assert data["ways"][0]["size_bytes"] == 32768 * 131072


def texts(svg: bytes) -> list[str]:
    """All text that the picture shows, in its order."""
    root = ET.fromstring(svg)
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


def test_an_svg_has_its_title_labels_and_marks_as_text(tmp_path) -> None:
    svg = drawn(tmp_path, "svg")
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "KV cache against context"
    description = root.findtext(f"{SVG}desc") or ""
    assert "llama-3.1-8b fits to 327,680 tokens in 40.00 GiB (budget as stated)." in description
    shown = texts(svg)
    for label in (
        *("KV cache against context", "llama-3.1-8b", "gemma-3-27b", "KV cache", "327,680"),
        *("context, tokens (1k = 1,024)", "1k", "1m", "128 MiB", "64 GiB", "40.00 GiB"),
    ):
        assert label in shown
    assert b"prefers-color-scheme: dark" in svg
    assert b"<dc:date>" not in svg


def test_an_svg_fetches_nothing_and_is_small(tmp_path) -> None:
    svg = drawn(tmp_path, "svg")
    assert len(svg) < 100_000
    links = re.findall(rb'(?:href|src)="([^"#][^"]*)"|url\(([^#)][^)]*)\)', svg)
    assert links == []


def test_dark_pages_get_light_ink(tmp_path) -> None:
    svg = drawn(tmp_path, "svg").decode()
    rules = re.findall(r'\[style\*="(fill|stroke): (#\w+)"\]\{(\w+):(#\w+)!important\}', svg)
    assert ("fill", "#1f2328", "fill", "#e6edf3") in rules
    # Every rule has something to act on, or a picture without that colour.
    assert svg.count("fill: #1f2328") > 20
    assert svg.count("stroke: #1f2328") > 20


@pytest.mark.parametrize("asked", [ASKED, KINDS, LENGTHS], ids=["lines", "kinds", "lengths"])
def test_a_png_is_a_whole_picture_on_white(asked, tmp_path) -> None:
    png = drawn(tmp_path, "png", asked)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (width, depth, kind) == (1440, 8, 6)
    assert 900 < height < 1200
    start = png.index(b"IDAT")
    data = b"".join(chunk for name, chunk in chunks(png) if name == b"IDAT")
    pixels = zlib.decompress(data)
    assert start > 0
    assert len(pixels) == height * (1 + 4 * width)
    assert pixels[1:5] == b"\xff\xff\xff\xff"


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ("--out", "kv.pdf"),
            "--out kv.pdf ends in no format that a picture has.",
            "use one of .svg, .png, .html, .json, .txt.",
        ),
        (
            ("--out", "kv"),
            "--out kv ends in no format that a picture has.",
            "use one of .svg, .png, .html, .json, .txt.",
        ),
        (
            ("--ctx", "1m:1k"),
            "--ctx 1m:1k is an empty range.",
            "write the smaller one first: --ctx 1k:1m.",
        ),
        (
            ("--out", "no/such/kv.svg"),
            "cannot write to no/such/kv.svg: No such file or directory.",
            "name a file in a folder that exists and can be written.",
        ),
        (("--by", "layer"), "--by is 'layer'.", "use --by kind, or leave it out."),
        (
            ("--by", "kind", "--out", "kv.html"),
            "an .html page shows curves, whose context, sequences and dtype can be moved.",
            "write --by kind and --lengths to an .svg, .png, .txt or .json file.",
        ),
        (
            ("--lengths", "2k:1", "--budget", "1GiB"),
            "--lengths compares ways of allocating, and has no --budget.",
            "leave out --budget; `kvsize fit --lengths` counts what a memory holds.",
        ),
    ],
)
def test_what_cannot_be_drawn(arguments, error, hint, tmp_path) -> None:
    said = program("plot", "llama-3.1-8b", *arguments, cwd=tmp_path)
    assert said == (2, "", f"error: {error}\nhint: {hint}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch, capsys) -> None:
    file = tmp_path / "kv.svg"
    file.write_text("old", encoding="utf-8")

    def fails(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    said = run(capsys, "plot", "llama-3.1-8b", "--ctx", "1k:2k", "--out", str(file))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: cannot write to {file}: No space left on device.")
    assert file.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_without_the_extra(ending, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(writers, "find_spec", lambda name: None)
    said = run(capsys, "plot", "llama-3.1-8b", "--out", f"{tmp_path}/kv.{ending}")
    assert said == (
        5,
        "",
        f"error: `kvsize plot --out {tmp_path}/kv.{ending}` draws with matplotlib, which is not "
        "installed.\nhint: pip install 'kvsize[plot]'\n",
    )
    assert list(tmp_path.iterdir()) == []
