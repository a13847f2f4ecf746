"""What is shipped for CI is run as it stands: the action's steps, the recipes of docs/ci.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = next(text for language, text in BLOCK.findall(PAGE) if language == "toml")
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash, as CI runners have it")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository with the documented file; `pip` installs nothing, for all is here."""
    (tmp_path / "bin").mkdir()
    python = f'exec "{sys.executable}" "$@"'
    pip = 'echo "$@" >> "$PIP_LOG"'
    scripts = {
        "kvsize": f'exec "{sys.executable}" -m kvsize "$@"',
        "pip": pip,
        "python3": f'if [ "$2" = pip ]; then shift 2; {pip}; else {python}; fi',
    }
    for name, body in scripts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "kvsize.toml").write_text(EXAMPLE, "utf-8")
    return tmp_path


def bash(script: str, here: Path, folder: str = "repo", **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=120,
        cwd=here / folder,
        env={
            **os.environ,
            "PATH": f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONIOENCODING": "utf-8",
            "PIP_LOG": str(here / "pip.log"),
            **env,
        },
    )
    return done.returncode, done.stdout


def steps(here: Path, given: dict[str, str]) -> tuple[int, str]:
    """What the runner makes of action.yml: each step's `run`, its env from the inputs."""
    yaml: Any = pytest.importorskip("yaml", reason="needs PyYAML to read action.yml")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert action["runs"]["using"] == "composite"
    values = {f"inputs.{name}": each["default"] for name, each in action["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    values["github.action_path"] = "/action"

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: values[match[1]], text)

    said = ""
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # an input must not be able to write the script
        env = {name: filled(text) for name, text in step["env"].items()}
        where = filled(step.get("working-directory", "."))
        env |= {"GITHUB_STEP_SUMMARY": str(here / "summary.md"), "GITHUB_WORKSPACE": str(here)}
        code, out = bash(step["run"], here, where, **env)
        said += out
        if code:
            return code, said
    return 0, said


@pytest.mark.parametrize(
    ("version", "installed"),
    [("", "/action"), ("0.1.0", "kvsize==0.1.0"), (".", "/action")],
)
def test_the_action(version: str, installed: str, here: Path) -> None:
    code, said = steps(here, {"version": version, "working-directory": "repo"})
    assert (code, said.splitlines()[-1]) == (0, "1 check holds.")
    assert (here / "pip.log").read_text("utf-8") == f"install --quiet {installed}\n"
    summary = (here / "summary.md").read_text("utf-8")
    assert summary.startswith("**kvsize check**: 1 check holds.\n")


def test_the_action_annotates_what_fails(here: Path) -> None:
    text = EXAMPLE.replace("65536", "65537")
    (here / "repo" / "kvsize.toml").write_text(text, "utf-8")
    given = {"config": "repo/kvsize.toml", "args": "--offline --locked"}
    code, said = steps(here, given)
    line = text.splitlines().index(next(x for x in text.splitlines() if "65537" in x)) + 1
    assert code == 1
    assert said.splitlines()[-1].startswith(
        f"::error file=repo/kvsize.toml,line={line},title=chat on one H100::token_bytes: asked "
    )


def test_gitlab(here: Path) -> None:
    yaml: Any = pytest.importorskip("yaml", reason="needs PyYAML to read the recipe")
    recipe = next(text for _, text in BLOCK.findall(PAGE) if text.startswith("kvsize:\n"))
    job = yaml.safe_load(recipe)["kvsize"]
    code, said = bash("\n".join(job["script"]), here)
    assert (code, said) == (0, "")
    report = here / "repo" / job["artifacts"]["reports"]["junit"]
    assert ET.parse(report).getroot().attrib["tests"] == "4"


def test_a_plain_shell(here: Path) -> None:
    recipe = next(text for language, text in BLOCK.findall(PAGE) if language == "sh")
    code, said = bash(recipe, here)
    assert (code, said.splitlines()[-1]) == (0, "the caches are as expected")
    (here / "repo" / "kvsize.toml").write_text(EXAMPLE.replace("65536", "1"), "utf-8")
    assert bash(recipe, here)[0] == 1


def test_the_example_pins_what_is_so() -> None:
    assert tomllib.loads(EXAMPLE)["check"][0]["expect"]["token_bytes"] == 65536


def test_hooks() -> None:
    yaml: Any = pytest.importorskip("yaml", reason="needs PyYAML to read the hooks")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert {hook["id"]: hook["entry"] for hook in hooks} == {
        "kvsize-check": "kvsize check",
        "kvsize-docs": "kvsize docs",
    }
    for hook in hooks:
        assert hook["language"] == "python"
