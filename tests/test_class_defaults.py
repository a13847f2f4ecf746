"""The built-in class defaults are those of the transformers version they name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kvsize import config

ROOT = Path(__file__).parents[1]


def test_they_name_their_version_and_hold_every_model_type() -> None:
    assert config.defaults_version() == "5.24.0"
    assert len(config.known_model_types()) == 394
    assert not set(config.known_model_types()) & set(config.without_cache())


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_they_are_what_the_installed_transformers_has() -> None:
    """Fails with a diff when transformers is upgraded: run tools/generate_class_defaults.py."""
    tool = ROOT / "tools" / "generate_class_defaults.py"
    run = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stdout[:2000] or run.stderr[-2000:]
