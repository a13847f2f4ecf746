"""html, latex, rst and tsv: read back by the programs that will read them."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_report import ASK

import kvsize
from kvsize import report
from kvsize.errors import printable
from kvsize.record import replace
from kvsize.render import Look, latex, rst, text, writer
from kvsize.render._columns import chosen

FOUND = report.build(map(kvsize.load, ["llama-3.1-70b", "gemma-3-27b"]), ASK, (8192,))
# Every character that starts something in one of the formats.
ODD = r"""\ ~^<>|`'"*[]{}$&#%_×÷·≤≥→↳²³⁰…–—’ -- --- a_b _c_ d__ :x: `e` |f| *g* http://h.org/ i:: <j>"""
CHOSEN = chosen("model,context,sequence")


def named(*names: str) -> report.Report:
    return report.Report(1, tuple(replace(FOUND.rows[0], model=name) for name in names))


def drawn(format_name: str, found: report.Report = FOUND, **look: object) -> str:
    return text(writer(format_name), found, Look(**look))


# -- html --------------------------------------------------------------------------------------
class Table(HTMLParser):
    """The cells of a table, and a check that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def parsed(html: str) -> Table:
    table = Table()
    table.feed(html)
    table.close()
    assert table.open == []
    return table


def test_html_is_one_table_with_a_caption_and_remarks():
    table = parsed(drawn("html"))
    assert table.tags[:2] == ["table", "caption"]
    assert table.tags.count("table") == 1
    assert [tag for tag in table.tags if tag in {"style", "script", "link", "img"}] == []
    assert table.rows[0] == [
        *("model", "attention", "context", "per token", "per sequence", "as MHA")
    ]
    assert table.rows[1] == ["llama-3.1-70b", "GQA 64:8", "8,192", "320.00 KiB", "2.50 GiB", "8×"]
    assert table.rows[3][0] == "↳ 52 × sliding window"
    assert table.rows[-1][0].startswith("warning KV009: gemma-3-27b: after a prompt")


def test_html_aligns_figures_to_the_right_and_has_no_colour_of_its_own():
    printed = drawn("html", columns=CHOSEN)
    assert printed.count("text-align:right") == 2 * (1 + len(FOUND.rows))
    assert "color" not in printed
    assert "background" not in printed


@given(st.text(min_size=1))
def test_html_shows_every_name_as_it_is(name):
    assert parsed(drawn("html", named(name), columns=CHOSEN)).rows[1][0] == printable(name).strip()


# -- latex -------------------------------------------------------------------------------------
def test_latex_alone_is_a_tabular():
    assert drawn("latex", columns=CHOSEN) == (
        "% \\usepackage{booktabs}\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "model & context & per sequence \\\\\n"
        "\\midrule\n"
        "llama-3.1-70b & 8,192 & 2.50 GiB \\\\\n"
        "gemma-3-27b & 8,192 & 1.03 GiB \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_latex_whole_has_a_caption_and_remarks():
    printed = drawn("latex")
    assert "\\caption{cache: transformers 5.24.0 DynamicCache; dtype: bfloat16.}\n" in printed
    assert "\\ensuremath{\\hookrightarrow} 52 \\ensuremath{\\times} sliding window & " in printed
    assert "head\\_dim is 128, not hidden\\_size / num\\_attention\\_heads = 168." in printed


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("a_b", r"a\_b"),
        ("{$&#%}", r"\{\$\&\#\%\}"),
        ("\\", r"\textbackslash{}"),
        ("--strict", "-{}-strict"),
        ("---", "-{}-{}-"),
        ("[1] * 2", "{[}1{]} {*} 2"),
        ("2 × 3 · 4", r"2 \ensuremath{\times} 3 \ensuremath{\cdot} 4"),
    ],
)
def test_latex_escapes(plain, escaped):
    assert latex.escape(plain) == escaped


@given(st.text(st.characters(max_codepoint=0x7F, exclude_categories=["Cc"])))
def test_latex_leaves_nothing_special_bare(plain):
    bare = latex.escape(plain)
    for escaped in sorted(map(latex.escape, set(plain)), key=len, reverse=True):
        if len(escaped) > 1:
            bare = bare.replace(escaped, "")
    assert set(bare.replace("{}", "")) & set("\\~^<>|`'\"*[]$&#%_") == set()


def test_latex_compiles(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    odd = drawn("latex", named(ODD, "[0pt] x", "* y", "= é"), columns=CHOSEN)
    whole = drawn("latex") + drawn("latex", named(ODD))
    (tmp_path / "t.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        f"{odd}{whole}\\end{{document}}\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Missing character" not in done.stdout


# -- rst ---------------------------------------------------------------------------------------
def read(source: str) -> Any:
    """The document that docutils makes of it; any warning of its is an error."""
    core = pytest.importorskip("docutils.core")
    quiet = {"halt_level": 2, "report_level": 2, "warning_stream": False}
    return core.publish_doctree(source, settings_overrides=quiet)


def rst_rows(source: str) -> list[list[str]]:
    nodes = pytest.importorskip("docutils.nodes")
    return [
        [entry.astext() for entry in row.findall(nodes.entry)]
        for row in read(source).findall(nodes.row)
    ]


def test_rst_whole():
    source = drawn("rst")
    rows = rst_rows(source)
    assert rows[0] == ["model", "attention", "context", "per token", "per sequence", "as MHA"]
    assert rows[1] == ["llama-3.1-70b", "GQA 64:8", "8,192", "320.00 KiB", "2.50 GiB", "8×"]
    assert rows[3] == ["↳ 52 × sliding window", "", "", "", "415.59 MiB", ""]
    assert "head_dim is 128, not hidden_size" in read(source).astext()
    assert source.startswith(":cache: transformers 5.24.0 DynamicCache\n:dtype: bfloat16\n\n..")


def test_rst_alone():
    assert drawn("rst", columns=CHOSEN).startswith(".. list-table::\n   :header-rows: 1\n")


PIECES = [*"\\*`|_:-+.#()<>[]=~ ab1/%", "::", "..", "e.", "--x "]
MARKUP = st.lists(st.sampled_from(PIECES)).map("".join)


@pytest.mark.parametrize("name", ["-", "- a", "1. a", "a. b", ":x: y", ".. z", "--o p", "::", ODD])
def test_rst_shows_names_like_markup_as_they_are(name):
    assert rst_rows(drawn("rst", named(name), columns=CHOSEN))[1][0] == name


@settings(deadline=None)
@given(MARKUP)
def test_rst_shows_every_name_as_it_is(name):
    stripped = name.strip()
    assert rst_rows(drawn("rst", named(name), columns=CHOSEN))[1][0] == stripped


@pytest.mark.parametrize("name", ["org/name@main", "https://hf.co/a"])
def test_rst_makes_no_links(name):
    nodes = pytest.importorskip("docutils.nodes")
    source = drawn("rst", named(name), columns=CHOSEN)
    assert rst_rows(source)[1][0] == name
    assert not list(read(source).findall(nodes.reference))


def test_rst_escapes_no_more_than_it_must():
    assert rst.escape("hub-id/head_dim 52 × a:b, c") == "hub-id/head_dim 52 × a:b, c"


# -- tsv ---------------------------------------------------------------------------------------
def tsv_rows(printed: str) -> list[list[str]]:
    return [line.split("\t") for line in printed.removesuffix("\n").split("\n")]


def test_tsv_has_integers_and_the_fields_of_csv():
    header, first, _ = tsv_rows(drawn("tsv"))
    assert header == drawn("csv").split("\r\n")[0].split(",")
    assert dict(zip(header, first, strict=True))["total_bytes"] == "2684354560"


def test_tsv_in_a_unit():
    columns = chosen("model,context,total,rank,groups,mha-overcount")
    header, first, second = tsv_rows(drawn("tsv", columns=columns, unit="GiB"))
    assert header == ["model", "context", "total_GiB", "rank_GiB", "groups", "mha_overcount"]
    assert first == ["llama-3.1-70b", "8192", "2.5", "2.5", "full attention:80:2.5", "8.0"]
    assert second[2] == "1.03085327148438"


def test_tsv_in_plain_bytes():
    assert tsv_rows(drawn("tsv", columns=chosen("total"), unit="B")) == [
        *(["total_B"], ["2684354560"], ["1106870272"])
    ]


@given(st.text())
def test_tsv_cells_hold_no_tab_and_no_newline(name):
    rows = tsv_rows(drawn("tsv", named(name), columns=CHOSEN))
    assert list(map(len, rows)) == [3, 3]
    assert rows[1][0] == printable(name)
