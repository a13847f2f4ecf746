"""The Hub path, with the real client in a process of its own against a server on loopback.

The client reads its environment when it is imported, hence the processes; each answers for
several repos at once, since starting one takes most of a second.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, commit_of, serving

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
WITHOUT_HUB = "presets (`kvsize presets`) and local files need no Hub."
HEAD, GET = "HEAD /acme/foo/resolve/main/config.json", "GET /acme/foo/resolve/main/config.json"
# Every call in `calls` is made, whatever became of the one before; stderr must stay empty.
CHILD = """
import json, sys
import kvsize
from kvsize.sources import hub
said = []
for function, *arguments in json.load(sys.stdin):
    try:
        if function == "weight_bytes":
            said.append(hub.weight_bytes(*arguments))
            continue
        model = kvsize.load(arguments[0], offline=function == "offline")
        total = kvsize.size(model, context=10).total_bytes
        said.append([model.name, model.source, model.where, model.hub_id, model.revision, total])
    except kvsize.KvsizeError as error:
        said.append([int(error.exit_code), error.message, error.hint])
json.dump(said, sys.stdout)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as running:
        running.add("acme/foo", {"config.json": LLAMA})
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def ask(hub: Hub, home: Path, *calls: tuple[str, ...], **environment: str) -> list[Any]:
    """What the calls give in a new process with an empty home, `environment` added."""
    kept = {
        k: v for k, v in os.environ.items() if not k.lower().startswith(("hf_", "http", "all_"))
    }
    home.mkdir(exist_ok=True)
    settings = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(home),
        "USERPROFILE": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_ETAG_TIMEOUT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(calls).encode(),
        capture_output=True,
        check=True,
        timeout=120,
        cwd=home,
        env=kept | settings | environment,
    )
    assert done.stderr == b""
    said = json.loads(done.stdout)
    assert isinstance(said, list)
    return said


def loaded(hub_id: str, revision: str | None = None) -> list[object]:
    """What `ask` says of a model that was loaded: 2 layers × 2 heads × 16 × K and V × bf16 × 10."""
    name = f"{hub_id}@{revision}" if revision else hub_id
    commit = commit_of(hub_id, revision or "main")
    return [name, "hub", f"{name}: config.json", hub_id, commit, 2 * 2 * 16 * 2 * 2 * 10]


def test_a_model_is_fetched_once_and_then_only_checked(hub: Hub, home: Path) -> None:
    assert ask(hub, home, ("load", "acme/foo")) == [loaded("acme/foo")]
    assert hub.requests() == [HEAD, HEAD, GET]
    assert ask(hub, home, ("load", "acme/foo")) == [loaded("acme/foo")]
    assert hub.requests() == [HEAD, HEAD]
    assert [path.name for path in home.iterdir()] == ["hf"]


def test_the_client_is_told_who_asks_and_with_which_token(hub: Hub, home: Path) -> None:
    ask(hub, home, ("load", "acme/foo"))
    assert {asked.token for asked in hub.asked} == {None}
    assert {asked.agent.partition("/")[0] for asked in hub.asked} == {"kvsize"}
    hub.asked.clear()
    ask(hub, home, ("load", "acme/foo"), HF_TOKEN="hf_mine")
    assert {asked.token for asked in hub.asked} == {"Bearer hf_mine"}
    hub.asked.clear()
    (home / "hf" / "token").write_text("hf_stored", encoding="utf-8")
    ask(hub, home, ("load", "acme/foo"))
    assert {asked.token for asked in hub.asked} == {"Bearer hf_stored"}


def test_revisions(hub: Hub, home: Path) -> None:
    deeper = {**LLAMA, "num_hidden_layers": 4}
    hub.add("acme/foo", {"config.json": deeper}, "v2")
    hub.add("acme/foo", {"config.json": deeper}, "refs/pr/1")
    commit = commit_of("acme/foo", "v2")
    answers = ask(
        hub,
        home,
        ("load", "acme/foo"),
        ("load", "acme/foo@v2"),
        ("load", "acme/foo@refs/pr/1"),
        ("load", f"acme/foo@{commit}"),
        ("load", "acme/foo@v3"),
    )
    assert [answer[4:] for answer in answers[:4]] == [
        [commit_of("acme/foo", "main"), 2560],
        [commit, 5120],
        [commit_of("acme/foo", "refs/pr/1"), 5120],
        [commit, 5120],
    ]
    assert answers[1][:3] == ["acme/foo@v2", "hub", "acme/foo@v2: config.json"]
    assert answers[4] == [
        4,
        "acme/foo has no branch, tag or commit 'v3'.",
        f"{hub.url}/acme/foo/tree/main lists them; without @v3 it is main.",
    ]
    assert "HEAD /acme/foo/resolve/refs%2Fpr%2F1/config.json" in hub.requests()


def test_a_commit_that_is_in_the_cache_is_not_asked_for(hub: Hub, home: Path) -> None:
    commit = commit_of("acme/foo", "main")
    ask(hub, home, ("load", "acme/foo"))
    hub.requests()
    assert ask(hub, home, ("load", f"acme/foo@{commit}"))[0][4] == commit
    assert hub.requests() == []


def test_offline_comes_from_the_cache(hub: Hub, home: Path) -> None:
    ask(hub, home, ("load", "acme/foo"))
    hub.requests()
    cached, missing = ask(hub, home, ("offline", "acme/foo"), ("offline", "acme/bar"))
    assert cached == loaded("acme/foo")
    not_cached = [
        4,
        "acme/bar: config.json is not in the Hub cache, and offline mode forbids fetching it.",
        (
            "where there is a network, run `hf download acme/bar config.json`; "
            f"cache: {home / 'hf' / 'hub'}."
        ),
    ]
    assert missing == not_cached
    by_variable = ask(hub, home, ("load", "acme/foo"), ("load", "acme/bar"), HF_HUB_OFFLINE="1")
    assert by_variable == [loaded("acme/foo"), not_cached]
    assert hub.requests() == []


def test_a_gated_repo(hub: Hub, home: Path) -> None:
    hub.add("acme/gated", {"config.json": LLAMA})
    hub.gated.add("acme/gated")
    page = f"{hub.url}/acme/gated"
    assert ask(hub, home, ("load", "acme/gated")) == [
        [
            4,
            "acme/gated is gated, and no access token was sent.",
            f"accept its licence at {page}, then log in with `hf auth login`, or set HF_TOKEN.",
        ]
    ]
    assert ask(hub, home, ("load", "acme/gated"), HF_TOKEN="hf_other") == [
        [
            4,
            "acme/gated is gated, and this access token has no access to it.",
            f"accept its licence at {page} as the token's owner, and let the token read it.",
        ]
    ]
    assert ask(hub, home, ("load", "acme/gated"), HF_TOKEN="hf_accepted") == [loaded("acme/gated")]
    # As with the client itself, a copy that was fetched while there was access is used.
    assert ask(hub, home, ("load", "acme/gated")) == [loaded("acme/gated")]


def test_a_preset_stands_in_for_a_gated_or_unreachable_repo(hub: Hub, home: Path) -> None:
    llama = "meta-llama/Llama-3.1-70B"
    hub.add(llama, {"config.json": LLAMA})
    hub.gated.add(llama)
    (gated,) = ask(hub, home, ("load", llama))
    assert gated[2] == (
        f"accept its licence at {hub.url}/{llama}, then log in with `hf auth login`, or set "
        "HF_TOKEN; or take the preset: `kvsize llama-3.1-70b`."
    )
    (unreachable,) = ask(hub, home, ("load", llama), HF_ENDPOINT="http://127.0.0.1:9")
    assert unreachable[2] == (
        "check the network, HF_ENDPOINT and the proxy settings; "
        "`kvsize llama-3.1-70b` is built in and needs no Hub."
    )


LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
WITHOUT_TOKEN = {
    "nothing": (
        "acme/nothing: {url} has no such model, or it is private.",
        f"check the spelling; for a private repo {LOG_IN}.",
    ),
    "private": (
        "acme/private: {url} has no such model, or it is private.",
        f"check the spelling; for a private repo {LOG_IN}.",
    ),
    "unauthorized": ("acme/unauthorized: the Hub asks for an access token (401).", f"{LOG_IN}."),
    "disabled": (
        "acme/disabled: access to this repo is disabled.",
        f"see {{url}}/acme/disabled; {WITHOUT_HUB}",
    ),
    "forbidden": (
        "acme/forbidden: the Hub refused with status 403 (This token may not read repos).",
        "see {url}/acme/forbidden, and check what the access token permits.",
    ),
    "teapot": (
        "acme/teapot: the Hub refused with status 418 (no reason given).",
        "see {url}/acme/teapot, and check what the access token permits.",
    ),
    "limited": (
        "acme/limited: the Hub takes no more requests from here for now (429).",
        f"wait 7 seconds; the limit is higher with a token: {LOG_IN}.",
    ),
    "broken": (
        "acme/broken: {url} has trouble of its own (500).",
        f"try again later; {WITHOUT_HUB}",
    ),
    "away": ("acme/away: {url} has trouble of its own (503).", f"try again later; {WITHOUT_HUB}"),
    "slow": (
        "acme/slow: {url} did not answer in time.",
        "check the network, or raise HF_HUB_ETAG_TIMEOUT, now 1 s; " + WITHOUT_HUB,
    ),
    "mirror": (
        "{url} does not answer as a Hugging Face Hub does.",
        f"check HF_ENDPOINT and the proxy settings; {WITHOUT_HUB}",
    ),
}
WITH_TOKEN = {
    "nothing": (
        "acme/nothing: {url} has no such model, or it is private.",
        "check the spelling; a private repo needs a token of its owner's.",
    ),
    "private": (
        "acme/private: the Hub does not accept the access token that was sent (401).",
        "it may have expired: log in anew with `hf auth login`, or change HF_TOKEN.",
    ),
    "unauthorized": (
        "acme/unauthorized: the Hub does not accept the access token that was sent (401).",
        "it may have expired: log in anew with `hf auth login`, or change HF_TOKEN.",
    ),
}


@pytest.mark.parametrize(
    ("scenes", "environment"), [(WITHOUT_TOKEN, {}), (WITH_TOKEN, {"HF_TOKEN": "hf_mine"})]
)
def test_refusals(
    hub: Hub, home: Path, scenes: Mapping[str, tuple[str, str]], environment: dict[str, str]
) -> None:
    hub.add("acme/slow", {"config.json": LLAMA})
    hub.add("acme/mirror", {"config.json": LLAMA})
    answers = ask(hub, home, *(("load", f"acme/{scene}") for scene in scenes), **environment)
    for (message, hint), answer in zip(scenes.values(), answers, strict=True):
        assert answer == [4, message.format(url=hub.url), hint.format(url=hub.url)]
    # One request each: the client's own repetitions would keep the user waiting for minutes.
    assert len(hub.requests()) == len(scenes)


def test_without_an_answer_the_cached_copy_serves(hub: Hub, home: Path) -> None:
    ask(hub, home, ("load", "acme/foo"))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
    answers = ask(hub, home, ("load", "acme/foo"), ("load", "acme/bar"), HF_ENDPOINT=nobody)
    assert answers[0] == loaded("acme/foo")
    assert answers[1][0] == 4
    assert answers[1][1].startswith(f"acme/bar: there is no connection to {nobody} (")
    assert answers[1][2] == f"check the network, HF_ENDPOINT and the proxy settings; {WITHOUT_HUB}"


def test_settings_that_the_client_refuses(hub: Hub, home: Path) -> None:
    assert ask(hub, home, ("load", "acme/foo"), HF_ENDPOINT="127.0.0.1") == [
        [
            4,
            (
                "acme/foo: asking 127.0.0.1 failed (UnsupportedProtocol: Request URL is missing an "
                "'http://' or 'https://' protocol.)."
            ),
            f"check the network, HF_ENDPOINT and the proxy settings; {WITHOUT_HUB}",
        ]
    ]
    code = "import kvsize\ntry: kvsize.load('a/b')\nexcept kvsize.UsageError as e: print(e, e.hint)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        env={**os.environ, "HF_HUB_ETAG_TIMEOUT": "x", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == (
        "the Hub client refuses its settings (invalid literal for int() with base 10: 'x'). "
        "correct the HF_* environment variables.\n"
    )


def test_a_cache_that_cannot_be_written(hub: Hub, home: Path) -> None:
    home.mkdir()
    (home / "hf").write_text("a file", encoding="utf-8")
    (answer,) = ask(hub, home, ("load", "acme/foo"))
    assert answer[0] == 4
    assert answer[1].startswith("acme/foo: the Hub cache cannot keep config.json (")
    assert answer[2] == f"let HF_HOME be a folder you may write to; now {home / 'hf' / 'hub'}."


def test_what_cannot_be_a_repo(hub: Hub, home: Path) -> None:
    answers = ask(hub, home, ("load", "acme/foo@"), ("load", "acme/foo@a..b"), ("load", "ac--me/x"))
    assert answers == [
        [
            2,
            "'' cannot be the name of a branch, tag or commit.",
            "write acme/foo@main, or leave out what follows acme/foo.",
        ],
        [
            2,
            "'a..b' cannot be the name of a branch, tag or commit.",
            "write acme/foo@main, or leave out what follows acme/foo.",
        ],
        [
            2,
            "'ac--me/x' cannot be a repo on the Hub: Cannot have -- or .. in repo_id.",
            "name it org/name; a path on this machine starts with ./",
        ],
    ]
    assert hub.requests() == []


def test_content_that_is_no_config(hub: Hub, home: Path) -> None:
    hub.add("acme/bad", {"config.json": b"{"})
    hub.add("acme/huge", {"config.json": LLAMA})
    hub.add("acme/adapter", {"config.json": {"peft_type": "LORA"}})
    bad, huge, adapter = ask(
        hub, home, ("load", "acme/bad"), ("load", "acme/huge"), ("load", "acme/adapter")
    )
    assert bad[:2] == [
        3,
        (
            "acme/bad: config.json: not JSON at line 1, column 2: "
            "expecting property name enclosed in double quotes."
        ),
    ]
    assert huge == [
        3,
        (
            "acme/huge: config.json: 953.67 MiB is more than any config.json has; "
            "kvsize reads up to 20.00 MiB."
        ),
        "give the config.json of a model.",
    ]
    assert adapter[:2] == [
        3,
        "acme/adapter: config.json: this is an adapter's config, not a model's config.json.",
    ]
    assert "GET /acme/huge/resolve/main/config.json" not in hub.requests()


def test_repos_without_a_config(hub: Hub, home: Path) -> None:
    hub.add("acme/gguf", {"Foo-Q4_K_M.gguf": b"GGUF", "Foo-Q8_0.gguf": b"GGUF", "README.md": b""})
    hub.add(
        "acme/lora",
        {"adapter_config.json": {"base_model_name_or_path": "acme/foo"}, "README.md": b""},
    )
    hub.add("acme/tokenizer", {"tokenizer.json": b"{}", "README.md": b""})
    hub.add("acme/nested", {"hf/config.json": LLAMA})
    hub.add("acme/unlisted", {"README.md": b""})
    hub.add("acme/tokenizer", {}, "bare")
    names = ("gguf", "lora", "tokenizer", "nested", "unlisted", "tokenizer@bare")
    assert ask(hub, home, *(("load", f"acme/{name}") for name in names)) == [
        [
            4,
            "acme/gguf has no config.json: it holds GGUF files, Foo-Q4_K_M.gguf, Foo-Q8_0.gguf.",
            "name one of them: `kvsize acme/gguf/Foo-Q4_K_M.gguf`.",
        ],
        [
            4,
            "acme/lora has no config.json: it holds an adapter.",
            "the cache is its base model's: `kvsize acme/foo`.",
        ],
        [
            4,
            "acme/tokenizer has no config.json: it holds a tokenizer only.",
            "name the model that the tokenizer belongs to.",
        ],
        [
            4,
            "acme/nested has no config.json: the file is further down, hf/config.json.",
            (
                "`hf download acme/nested hf/config.json` prints where it is kept; "
                "give kvsize that path."
            ),
        ],
        [
            4,
            "acme/unlisted has no config.json.",
            f"see {hub.url}/acme/unlisted/tree/main for its files.",
        ],
        [
            4,
            "acme/tokenizer@bare is empty.",
            "give a folder that holds a model's config.json.",
        ],
    ]


def test_weight_bytes(hub: Hub, home: Path) -> None:
    shards = {
        "model-00001-of-00002.safetensors": b"x" * 10,
        "model-00002-of-00002.safetensors": b"yy",
    }
    tensors = {f"layer.{i}": name for i, name in enumerate([*shards, *shards])}
    index = {"metadata": {"total_size": 11}, "weight_map": tensors}
    hub.add("acme/one", {"model.safetensors": b"x" * 7, "pytorch_model.bin": b"x" * 9})
    hub.add(
        "acme/shards", {**shards, "model.safetensors.index.json": index, "other.safetensors": b"z"}
    )
    hub.add("acme/torch", {"pytorch_model.bin": b"x" * 5})
    hub.add("acme/mad", {"model.safetensors.index.json": {"metadata": {}}})
    names = ("one", "shards", "torch", "foo", "mad", "nothing")
    assert ask(hub, home, *(("weight_bytes", f"acme/{name}") for name in names)) == [
        7,
        12,
        5,
        None,
        [
            3,
            "acme/mad: model.safetensors.index.json has no `weight_map`.",
            f"see {hub.url}/acme/mad/tree/main; the upload seems incomplete.",
        ],
        [
            4,
            f"acme/nothing: {hub.url} has no such model, or it is private.",
            f"check the spelling; for a private repo {LOG_IN}.",
        ],
    ]
    assert ask(hub, home, ("weight_bytes", "acme/one", "v2"))[0][:2] == [
        4,
        f"acme/one: {hub.url} has no such model, or it is private.",
    ]
