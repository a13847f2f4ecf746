"""Every line of every command's EXAMPLES runs, as it would be typed."""

from __future__ import annotations

import importlib
import shutil

import pytest
from console import CONFIG, furnish, typed
from hub_server import serving

from kvsize import commands
from kvsize.errors import Exit

LONG = {"kvsize verify --all --state verify.jsonl": "builds every model type: many minutes"}
ON_THE_HUB = {
    "org/name": {"v1": CONFIG, "v2": {**CONFIG, "num_key_value_heads": 4}},
    "meta-llama/Llama-3.1-70B": {"main": CONFIG},
}
NEEDED = ("jq",)
MODULES = {name: importlib.import_module(f"kvsize.commands.{name}") for name in commands.names()}
EXAMPLES = [
    pytest.param(name, line, id=line, marks=[pytest.mark.conformance] if name == "verify" else [])
    for name, module in MODULES.items()
    for line in getattr(module, "EXAMPLES", "").removeprefix("\b\n").splitlines()
]


@pytest.fixture(scope="module")
def hub():
    with serving() as running:
        for hub_id, revisions in ON_THE_HUB.items():
            for revision, config in revisions.items():
                running.add(hub_id, {"config.json": config}, revision)
        yield running


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_runs(name, line, hub, tmp_path):
    if line in LONG:
        pytest.skip(LONG[line])
    if absent := [each for each in NEEDED if f"| {each}" in line and not shutil.which(each)]:
        pytest.skip(f"{absent[0]} is not installed")
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hub")}
    done = typed(f"set -o pipefail; {line}", furnish(tmp_path), **home)
    if done.returncode == Exit.MISSING_EXTRA in getattr(MODULES[name], "EXITS", {}):
        pytest.skip("needs an extra that is not installed")
    # No is an answer too.
    legal = {Exit.OK, Exit.NO} if Exit.NO in getattr(MODULES[name], "EXITS", {}) else {Exit.OK}
    assert done.returncode in legal, done.stdout
    assert "error:" not in done.stdout


def test_there_are_examples_for_the_commands_that_take_a_model():
    with_examples = {name for name, module in MODULES.items() if hasattr(module, "EXAMPLES")}
    assert {"size", "explain", "fit", "verify"} <= with_examples
    assert set(LONG) <= {each.id for each in EXAMPLES}
