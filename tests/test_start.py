"""What each way in may import: start-up stays short, and a base install needs no torch.

Each runs in a process of its own. A module that is not named here may be imported anyway if it
belongs to Python or to kvsize's own light core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
}
# Packages outside Python that some part of kvsize or of its tests uses.
HEAVY = {
    *("torch", "transformers", "huggingface_hub", "httpx", "httpx2", "tqdm", "yaml", "filelock"),
    *("pydantic", "pydantic_core", "typer", "click", "rich", "numpy", "gguf", "jsonschema"),
    *("matplotlib", "PIL", "playwright"),
}
# Parts of Python that take milliseconds to import and that sizing a model has no use for.
SLOW = {
    *("asyncio", "difflib", "email", "http", "logging", "multiprocessing", "socket", "ssl"),
    *("subprocess", "tempfile", "unittest", "xml", "zipfile"),
}
HUB_CLIENT = {"huggingface_hub", "httpx", "httpx2", "tqdm", "yaml", "filelock"}


def imported(code: str, folder: Path, stdin: str = "") -> set[str]:
    """The modules that `code` imports, besides what a bare Python has."""
    script = f"import sys\nbare = set(sys.modules)\n{code}\nprint(*set(sys.modules) - bare)"
    done = subprocess.run(
        # -S: site packages come by PYTHONPATH, without their .pth files, which import things.
        [sys.executable, "-S", "-c", script],
        input=stdin,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"},
    )
    return set(done.stdout.split())


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


SIZE = "import kvsize\nkvsize.size(kvsize.load({!r}), context=32768)"


def test_importing_kvsize(tmp_path: Path) -> None:
    modules = imported("import kvsize", tmp_path)
    assert packages(modules) & (HEAVY | SLOW) == set()
    sources = {module for module in modules if module.startswith("kvsize.sources.")}
    assert sources == set()
    assert not {module for module in modules if module.startswith("kvsize.engines.")} - {
        "kvsize.engines.options"
    }


def test_a_preset(tmp_path: Path) -> None:
    modules = imported(SIZE.format("llama-3.1-70b"), tmp_path)
    assert packages(modules) & (HEAVY | SLOW) == set()
    assert "kvsize.sources.preset" in modules
    for unused in ("hub", "hub_errors", "local", "parsing", "contents", "gguf"):
        assert f"kvsize.sources.{unused}" not in modules


@pytest.mark.parametrize("name", ["./config.json", "-", "folder"])
def test_files_and_standard_input(name: str, tmp_path: Path) -> None:
    content = json.dumps(LLAMA)
    (tmp_path / "folder").mkdir()
    for file in ("config.json", "folder/config.json"):
        (tmp_path / file).write_text(content, encoding="utf-8")
    modules = imported(SIZE.format(name), tmp_path, content)
    assert packages(modules) & (HEAVY | SLOW) == set()
    assert "kvsize.sources.local" in modules
    assert "kvsize.sources.hub" not in modules
    assert "kvsize.sources.preset" not in modules or name == "folder"


def test_a_hub_id_imports_the_client_and_no_framework(tmp_path: Path) -> None:
    code = "import kvsize\ntry: kvsize.load('org/name')\nexcept kvsize.HubError: pass"
    modules = imported(code, tmp_path)
    assert packages(modules) & HEAVY <= HUB_CLIENT | {"typer", "click", "rich"}
    assert "kvsize.sources.hub" in modules
    assert "huggingface_hub" in modules
    assert "kvsize.sources.preset" not in modules


TYPER = {"typer", "shellingham", "annotated_doc", "click"}
COMMANDS = {
    "llama-3.1-70b --ctx 32k": {"render.table", "report", "advice"},
    "llama-3.1-70b --ctx 32k --format markdown": {"render.markdown"},
    "llama-3.1-70b --ctx 32k --format csv": {"render.csv"},
    "llama-3.1-70b --ctx 32k --format html": {"render.html"},
    "llama-3.1-70b --ctx 32k --format latex": {"render.latex"},
    "llama-3.1-70b --ctx 32k --format rst": {"render.rst"},
    "llama-3.1-70b --ctx 32k --format tsv --columns model,total": {"render.tsv"},
    "llama-3.1-70b --ctx 32k --json": {"render.json"},
    "explain llama-3.1-70b --ctx 32k": {"explain", "render._explain"},
    "plot llama-3.1-70b --ctx 1k:128k": {"plot.lines", "plot.chart", "plot.text"},
    "plot llama-3.1-70b --ctx 1k:128k --json": {"plot.lines", "plot.chart"},
    "plot llama-3.1-70b --ctx 1k:128k --out kv.html": {"plot.lines", "plot.chart", "plot.page"},
    "diff qwen3-32b qwen3.5-27b": {"comparison", "reasons", "explain", "render._diff"},
    "completion bash": set(),
    "check --model llama-3.1-70b --ctx 32k --max-total 10GiB": {"checks.runner", "report"},
    "check --schema": {"checks.schema"},
    "presets": {"listing"},
    "engines": {"listing"},
    "schema": {"listing"},
    "--help": set(),
    "--version": set(),
}
# Loaded only by the command or the format that needs it.
PARTS = {"render.table", "render.json", "render.csv", "render._terminal", "explain", "listing"}
PARTS |= {"plot.text", "plot.page", "plot.figure", "plot.lines", "plot.chart"}
SIZING = {"report", "advice", "families", "engines.transformers"}


def ran(command: str, folder: Path, *, terminal: bool = False) -> set[str]:
    """The modules that a command imports; what it prints goes nowhere."""
    return imported(
        "import os\n"
        "stdout, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        f"sys.stdout.isatty = lambda: {terminal}\n"
        "from kvsize.cli import run\n"
        f"assert run({command.split()!r}) == 0\n"
        "sys.stdout = stdout",
        folder,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, tmp_path: Path) -> None:
    modules = ran(command, tmp_path)
    needed = COMMANDS[command]
    assert packages(modules) & HEAVY <= TYPER
    parts = {module.removeprefix("kvsize.") for module in modules if module.startswith("kvsize.")}
    assert needed <= parts
    sections = any(part.startswith("render._") for part in needed)
    shown = {"render.table", *needed} if sections else needed
    assert parts & PARTS <= shown
    if command.startswith(("--", "completion")):
        assert parts & SIZING == set()
    if "llama" in command:
        assert {part for part in parts if part.startswith("engines.")} == {
            "engines.options",
            *(part for part in parts if part.startswith("engines.transformers")),
        }


def test_a_terminal_alone_needs_rich(tmp_path: Path) -> None:
    modules = ran("llama-3.1-70b --ctx 32k", tmp_path, terminal=True)
    assert packages(modules) & HEAVY - TYPER == {"rich"}
