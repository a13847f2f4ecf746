"""Which source a name is meant for: by its looks, and by what is here."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvsize
from kvsize.model import Raw
from kvsize.sources import find, parsing


@pytest.fixture(autouse=True)
def _sources_that_only_say_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gguf", "hub", "local", "preset"):
        source = importlib.import_module(f"kvsize.sources.{name}")

        def answer(text: str, *, offline: bool = False, name: str = name) -> Raw:
            return Raw({"offline": offline}, text, "", name)

        monkeypatch.setattr(source, "find", answer)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("-", "local"),
        (".", "local"),
        ("..", "local"),
        ("./x", "local"),
        ("../x", "local"),
        ("/x", "local"),
        ("~/x", "local"),
        ("~user", "local"),
        ("x/", "local"),
        ("org/name/", "local"),
        ("x.json", "local"),
        ("X.JSON", "local"),
        ("org/name.json", "local"),
        ("a/b/c", "local"),
        ("a//b", "local"),
        ("org/:x", "local"),
        (".hidden/-", "local"),
        ("x.gguf", "gguf"),
        ("X.GGUF", "gguf"),
        ("./x.gguf", "gguf"),
        ("/models/x.gguf", "gguf"),
        ("org/x.gguf", "gguf"),
        ("org/name/x.gguf", "gguf"),
        ("org/name/folder/x.gguf", "gguf"),
        ("org/name@main/x.gguf", "gguf"),
        ("org/name:Q4_K_M", "gguf"),
        ("org/name@main:Q4_K_M", "gguf"),
        ("org/name", "hub"),
        ("Org-1/name.v2_x", "hub"),
        ("org/name@main", "hub"),
        ("org/name@refs/pr/1", "hub"),
        ("org/name@0123456789abcdef0123456789abcdef01234567", "hub"),
        ("org/name@", "hub"),
        ("llama-3.1-70b", "preset"),
        ("Llama 3.1", "preset"),
        ("x.gguf.bak", "preset"),
        ("name@main", "preset"),
        ("name:tag", "preset"),
        ("--help", "preset"),
    ],
)
def test_by_its_looks(text: str, source: str) -> None:
    found = find(text)
    assert (found.source, found.name) == (source, text)


def test_by_what_is_here() -> None:
    for path in ("org/name", "org/name:tag", "deep/er/model", "bare"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    Path("folder").mkdir()
    Path("model").mkdir()
    Path("model/config.json").touch()
    assert find("org/name").source == "local"
    assert find("org/name:tag").source == "local"
    assert find("deep/er").source == "local"
    assert find("org/other").source == "hub"
    assert find("bare").source == "preset"
    assert find("folder").source == "preset"
    assert find("model").source == "local"


def test_a_path_object_is_no_name() -> None:
    assert find(Path("llama-3.1-70b")).source == "local"
    assert find(Path("org/name")).source == "local"
    assert find(Path("org/x.gguf")).source == "gguf"


def test_offline_is_passed_on() -> None:
    for text in ("org/name", "org/name:Q8_0", "x.gguf"):
        assert find(text).config == {"offline": False}
        assert find(text, offline=True).config == {"offline": True}


@pytest.mark.skipif(os.sep != "\\", reason="drives and backslashes are Windows's")
@pytest.mark.parametrize("text", ["C:\\x", "C:/x", "C:x", "a\\b", "a\\b\\c"])
def test_windows_paths(text: str) -> None:
    assert find(text).source == "local"


@given(st.text())
def test_any_text_is_some_source_s_or_a_usage_error(text: str) -> None:
    try:
        found = find(text)
    except kvsize.UsageError as error:
        refused: kvsize.UsageError | None = error
    else:
        refused = None
        assert found.source in {"gguf", "hub", "local", "preset"}
    blank = not text.strip()
    assert refused is not None or not blank


@given(st.one_of(st.binary(), st.text(alphabet='[]{}:,"\\uddtruefalsn0123e-. \n').map(str.encode)))
def test_any_bytes_are_an_object_or_a_config_error(data: bytes) -> None:
    try:
        found = parsing.parse(data, "x")
    except kvsize.ConfigError as error:
        assert str(error).startswith("x: ")  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(found, dict)
