"""`kvsize.lock` with the real Hub client against a server on loopback, each run a process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Said, program
from hub_server import Hub, commit_of, serving

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 64,
}
FILE = '[[check]]\nname = "foo"\nmodel = "acme/foo"\n[check.expect]\ntoken_bytes = 256\n'
COMMIT = commit_of("acme/foo", "main")
LOCK = (
    "# The config.json of each Hub model, as `kvsize check --lock` found it. Commit this file.\n"
    "version = 1\n\n[[model]]\n"
    f'id = "acme/foo"\nrevision = "{COMMIT}"\n'
    f'config_sha256 = "{hashlib.sha256(json.dumps(CONFIG).encode()).hexdigest()}"\n'
)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as running:
        running.add("acme/foo", {"config.json": CONFIG})
        yield running


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "kvsize.toml").write_text(FILE, "utf-8")
    return tmp_path


def check(hub: Hub, here: Path, *options: str, home: str = "home") -> Said:
    env = {"HF_HOME": str(here / home), "HF_ENDPOINT": hub.url, "HF_HUB_ETAG_TIMEOUT": "1"}
    return program("check", *options, cwd=here, **env)


def test_lock_is_written_and_read(hub: Hub, here: Path) -> None:
    said = check(hub, here, "--lock")
    assert (said.code, said.err) == (0, "")
    assert (here / "kvsize.lock").read_text("utf-8") == LOCK
    hub.requests()
    # The locked commit is in the cache: nothing is asked.
    said = check(hub, here, "--offline", "--locked")
    assert (said.code, said.err, hub.requests()) == (0, "", [])
    assert said.out.endswith("1 check holds.\n")
    # Another machine reads the same commit.
    said = check(hub, here, "--locked", home="elsewhere")
    assert said.code == 0
    assert f"HEAD /acme/foo/resolve/{COMMIT}/config.json" in hub.requests()


def test_a_changed_config_is_told_and_locked_refuses_it(hub: Hub, here: Path) -> None:
    old = commit_of("acme/foo", "old")
    hub.add("acme/foo", {"config.json": CONFIG}, "old")
    hub.add("acme/foo", {"config.json": {**CONFIG, "num_hidden_layers": 3}})
    (here / "kvsize.lock").write_text(LOCK.replace(COMMIT, old), "utf-8")
    told = f"acme/foo: config.json has changed, from {old[:12]} to "
    said = check(hub, here)
    assert said.code == 0
    assert told in " ".join(said.out.split())
    said = check(hub, here, "--locked")
    assert said.code == 1
    assert f"error: {told}" in " ".join(said.out.split())


def test_another_hash_is_an_error(hub: Hub, here: Path) -> None:
    digest = LOCK.split('"')[-2]
    (here / "kvsize.lock").write_text(LOCK.replace(digest, "0" * 64), "utf-8")
    said = check(hub, here)
    assert said.code == 3
    told = " ".join(said.out.split())
    assert f"error: acme/foo: the config.json of {COMMIT} is not the one in kvsize.lock." in told


def test_a_model_that_is_not_locked(hub: Hub, here: Path) -> None:
    (here / "kvsize.lock").write_text("version = 1\n", "utf-8")
    said = check(hub, here)
    assert said.code == 0
    assert "note: acme/foo is not in kvsize.lock; `kvsize check --lock` adds it." in said.out
    said = check(hub, here, "--locked")
    assert said.code == 2
    assert "error: acme/foo is not in kvsize.lock." in said.out


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        ("version = ", "the lock cannot be read."),
        ("version = 2\n", "it is no lock of version 1."),
        (LOCK.replace(COMMIT, "main"), "a [[model]] needs an id, a revision (a commit) and a"),
    ],
)
def test_a_damaged_lock(lock: str, message: str, hub: Hub, here: Path) -> None:
    (here / "kvsize.lock").write_text(lock, "utf-8")
    said = check(hub, here)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: kvsize.lock: {message}")


def test_a_lock_is_not_written_without_every_model(hub: Hub, here: Path) -> None:
    (here / "kvsize.toml").write_text(FILE + FILE.replace("foo", "none"), "utf-8")
    said = check(hub, here, "--lock")
    assert said.code == 4
    assert not (here / "kvsize.lock").exists()


def test_offline_without_the_cache(hub: Hub, here: Path) -> None:
    said = check(hub, here, "--offline")
    assert (said.code, hub.requests()) == (4, [])
