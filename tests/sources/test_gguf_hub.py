"""GGUF files on the Hub: the real client in a process of its own against a server on loopback."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.hub_server import Hub, commit_of, serving

from kvsize import UsageError
from kvsize.sources.gguf_names import OnHub, choose, model_name, on_hub, shard_names
from tests.gguf_files import ARRAY, STRING, U32, header, metadata, pair, text

KIB = 1024
TOTAL = 8 * 1024 * 2 * 2 * 64 * 2  # eight layers of 1,024 cells
CHILD = """
import json, sys
import kvsize
said = []
for name, offline in json.load(sys.stdin):
    try:
        model = kvsize.load(name, offline=offline)
        size = kvsize.size(model, context=1024, engine="llama.cpp")
        said.append([model.name, model.where, model.hub_id, model.revision, model.weight_bytes,
                     size.total_bytes, list(size.notes)])
    except kvsize.KvsizeError as error:
        said.append([type(error).__name__, error.message, error.hint])
json.dump(said, sys.stdout)
"""


def vocabulary() -> bytes:
    """200 kB of tokens."""
    tokens = b"".join(text("x" * 92) for _ in range(2000))
    return pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2000) + tokens)


def file(*, late: str | None = None) -> bytes:
    """A header with a vocabulary; the key `late` comes after it."""
    keys = metadata()
    after = b"" if late is None else pair(late, U32, struct.pack("<I", int(str(keys.pop(late)))))
    whole = bytearray(header(keys) + vocabulary() + after)
    struct.pack_into("<Q", whole, 16, len(metadata()) + 1)
    return bytes(whole)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as running:
        yield running


def ask(hub: Hub, home: Path, *names: str, offline: bool = False, **environment: str) -> list[Any]:
    """What loading each name says, in a new process with an empty home."""
    kept = {
        k: v for k, v in os.environ.items() if not k.lower().startswith(("hf_", "http", "all_"))
    }
    settings = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HOME": str(home),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([[name, offline] for name in names]).encode(),
        capture_output=True,
        check=True,
        timeout=120,
        cwd=home,
        env=kept | settings | environment,
    )
    assert done.stderr == b""
    said: list[Any] = json.loads(done.stdout)
    return said


def ranges(hub: Hub) -> list[str | None]:
    return [asked.range for asked in hub.asked if "/resolve/" in asked.path]


def test_a_quantization_is_read_in_two_requests(hub: Hub, tmp_path: Path) -> None:
    content = file()
    hub.add("acme/foo-GGUF", {"foo-Q4_K_M.gguf": content, "foo-Q8_0.gguf": b"", "README.md": b""})
    (said,) = ask(hub, tmp_path, "acme/foo-GGUF:Q4_K_M", HF_TOKEN="hf_mine")
    commit = commit_of("acme/foo-GGUF", "main")
    assert said == [
        "acme/foo-GGUF/foo-Q4_K_M",
        "acme/foo-GGUF: foo-Q4_K_M.gguf",
        "acme/foo-GGUF",
        commit,
        len(content),
        TOTAL,
        ["The remote header was read up to `tokenizer.ggml.tokens`; later keys were not."],
    ]
    assert hub.asked[1].path == f"/acme/foo-GGUF/resolve/{commit}/foo-Q4_K_M.gguf"
    assert [asked.token for asked in hub.asked] == ["Bearer hf_mine"] * 2
    assert hub.asked[1].agent.startswith("kvsize/")
    assert ranges(hub) == [f"bytes=0-{64 * KIB - 1}"]
    assert len(hub.asked) == 2


def test_a_file_by_its_path_and_revision(hub: Hub, tmp_path: Path) -> None:
    hub.add("acme/foo", {"deep/er/m.gguf": file()}, revision="v2")
    (said,) = ask(hub, tmp_path, "acme/foo@v2/deep/er/m.gguf")
    assert said[:4] == [
        "acme/foo@v2/m",
        "acme/foo@v2: deep/er/m.gguf",
        "acme/foo",
        commit_of("acme/foo", "v2"),
    ]


def test_shards_count_together_and_the_first_is_read(hub: Hub, tmp_path: Path) -> None:
    parts = {f"Q8_0/m-Q8_0-0000{n}-of-00003.gguf": file() if n == 1 else b"x" for n in (1, 2, 3)}
    hub.add("acme/foo", parts)
    for_tag, for_file = ask(
        hub, tmp_path, "acme/foo:q8_0", "acme/foo/Q8_0/m-Q8_0-00003-of-00003.gguf"
    )
    assert for_tag == for_file
    assert for_tag[1] == "acme/foo: Q8_0/m-Q8_0-00001-of-00003.gguf"
    assert for_tag[4] == len(file()) + 2


def test_the_range_grows_when_a_key_is_late(hub: Hub, tmp_path: Path) -> None:
    hub.add("acme/foo", {"m.gguf": file(late="llama.block_count")})
    (said,) = ask(hub, tmp_path, "acme/foo/m.gguf")
    assert said[5:] == [TOTAL, []]
    assert ranges(hub) == [
        f"bytes={a * KIB}-{b * KIB - 1}" for a, b in ((0, 64), (64, 128), (128, 256))
    ]


def test_a_server_that_ignores_ranges(hub: Hub, tmp_path: Path) -> None:
    hub.add("acme/rangeless", {"m.gguf": file(late="llama.block_count")})
    (said,) = ask(hub, tmp_path, "acme/rangeless/m.gguf")
    assert said[5] == TOTAL


def test_what_cannot_be_read_is_told(hub: Hub, tmp_path: Path) -> None:
    hub.add("acme/foo", {"m-Q4_K_M.gguf": b"GGUF", "m-Q8_0.gguf": file(), "m-UD-Q8_0.gguf": file()})
    hub.add("acme/gated", {"m.gguf": file()})
    hub.add("acme/plain", {"config.json": {}})
    said = ask(
        hub,
        tmp_path,
        "acme/foo:Q4_K_M",
        "acme/foo:Q8_0",
        "acme/foo:Q2_K",
        "acme/foo/m-Q4_K.gguf",
        "acme/plain:Q8_0",
        "acme/gated/m.gguf",
        "acme/nowhere:Q8_0",
        "acme/foo@v9:Q8_0",
    )
    told = [(kind, message) for kind, message, _ in said]
    assert told[:5] == [
        ("ConfigError", "acme/foo: m-Q4_K_M.gguf: it ends at byte 4, inside its header."),
        ("UsageError", "acme/foo has 2 GGUF files for 'Q8_0'."),
        ("UsageError", "acme/foo has no GGUF file for 'Q2_K'."),
        ("UsageError", "acme/foo has no file m-Q4_K.gguf."),
        ("UsageError", "acme/plain has no GGUF file for 'Q8_0'."),
    ]
    assert [kind for kind, _ in told[5:]] == ["HubError"] * 3
    assert said[1][2] == "name one of them: acme/foo/m-Q8_0.gguf or acme/foo/m-UD-Q8_0.gguf."
    assert said[2][2] == "it has Q4_K_M, Q8_0, UD-Q8_0."
    assert (
        said[3][2]
        == "did you mean m-Q4_K_M.gguf or m-Q8_0.gguf or m-UD-Q8_0.gguf? it has Q4_K_M, Q8_0, UD-Q8_0."
    )
    assert said[4][2] == "acme/plain has no GGUF files."


def test_offline_a_cached_file_is_read(hub: Hub, tmp_path: Path) -> None:
    commit = commit_of("acme/foo", "main")
    folder = tmp_path / "hub" / "models--acme--foo"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit, encoding="utf-8")
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "m-Q8_0.gguf").write_bytes(file())
    cached, absent = ask(hub, tmp_path, "acme/foo:Q8_0", "acme/bar:Q8_0", offline=True)
    assert cached[:6] == [
        "acme/foo/m-Q8_0",
        "acme/foo: m-Q8_0.gguf",
        "acme/foo",
        commit,
        len(file()),
        TOTAL,
    ]
    assert absent[0] == "HubError"
    (by_environment,) = ask(hub, tmp_path, "acme/foo/m-Q8_0.gguf", HF_HUB_OFFLINE="1")
    assert by_environment == cached
    assert hub.asked == []


# -- names --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("acme/foo:Q4_K_M", OnHub("acme/foo", None, tag="Q4_K_M")),
        ("acme/foo@v1:Q4_K_M", OnHub("acme/foo", "v1", tag="Q4_K_M")),
        ("acme/foo/m.gguf", OnHub("acme/foo", None, file="m.gguf")),
        ("acme/foo@v1/a/b.GGUF", OnHub("acme/foo", "v1", file="a/b.GGUF")),
        ("m.gguf", None),
        ("acme/m.gguf", None),
        ("./acme/foo/m.gguf", None),
        ("../acme/foo/m.gguf", None),
        ("/acme/foo/m.gguf", None),
        ("~/acme/foo/m.gguf", None),
    ],
)
def test_what_a_name_points_to(name: str, expected: OnHub | None) -> None:
    assert on_hub(name) == expected


def test_a_file_that_is_here_is_no_hub_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme" / "foo").mkdir(parents=True)
    (tmp_path / "acme" / "foo" / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert on_hub("acme/foo/m.gguf") is None


FILES = [
    "M-BF16-00001-of-00002.gguf",
    "M-BF16-00002-of-00002.gguf",
    "M-F16.gguf",
    "M-Q4_K_M.gguf",
    "M-Q4_K_S.gguf",
    "UD-Q2_K_XL/M-UD-Q2_K_XL-00001-of-00002.gguf",
    "UD-Q2_K_XL/M-UD-Q2_K_XL-00002-of-00002.gguf",
    "imatrix_unsloth.gguf",
    "mmproj-F16.gguf",
    "README.md",
]


@pytest.mark.parametrize(
    ("tag", "files"),
    [
        ("Q4_K_M", ["M-Q4_K_M.gguf"]),
        ("q4_k_s", ["M-Q4_K_S.gguf"]),
        ("F16", ["M-F16.gguf"]),
        ("BF16", ["M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf"]),
        ("Q2_K_XL", FILES[5:7]),
        ("UD-Q2_K_XL", FILES[5:7]),
    ],
)
def test_the_file_of_a_tag(tag: str, files: list[str]) -> None:
    assert choose(OnHub("acme/foo", None, tag=tag), FILES) == files


@pytest.mark.parametrize("tag", ["Q4_K", "Q4", "16", "Q8_0", "imatrix_unsloth"])
def test_part_of_a_tag_is_no_tag(tag: str) -> None:
    with pytest.raises(UsageError, match="has no GGUF file for") as caught:
        choose(OnHub("acme/foo", None, tag=tag), FILES)
    assert caught.value.hint == "it has BF16, F16, Q4_K_M, Q4_K_S, UD-Q2_K_XL."


def test_files_without_quantizations_are_listed() -> None:
    with pytest.raises(UsageError, match="has no GGUF file for 'x'") as caught:
        choose(OnHub("acme/foo", None, tag="x"), ["a.gguf", "b.gguf"])
    assert caught.value.hint == "it has a.gguf, b.gguf."


def test_shards() -> None:
    assert shard_names("m.gguf") == ["m.gguf"]
    assert shard_names("a/m-00002-of-00002.gguf") == [
        "a/m-00001-of-00002.gguf",
        "a/m-00002-of-00002.gguf",
    ]
    assert model_name("a/m-00002-of-00002.gguf") == "m"
    assert model_name("a/m.GGUF") == "m"
