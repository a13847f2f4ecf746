"""`kvsize size --prompt P --new N`: what transformers' generate() leaves cached."""

from __future__ import annotations

import json

import pytest
from command import run

import kvsize
from kvsize.errors import Exit


def row(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (Exit.OK, "")
    found: dict[str, object] = json.loads(out)["rows"][0]
    return found


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_the_last_token_is_never_cached(capsys: pytest.CaptureFixture[str], cache: str) -> None:
    found = row(capsys, "llama-2-7b", "--prompt", "1000", "--new", "200", "--cache", cache)
    size = kvsize.size(kvsize.load("llama-2-7b"), context=1199, options={"cache": cache})
    assert found["context"] == 1199
    assert found["total_bytes"] == size.total_bytes == 1199 * 2 * 32 * 32 * 128 * 2
    assert found["options"] == {"prompt": 1000, "new_tokens": 200, "cache": cache}


def test_one_more_token_is_one_more_of_the_generation(capsys: pytest.CaptureFixture[str]) -> None:
    found = row(capsys, "llama-2-7b", "--prompt", "10", "--new", "20")
    assert found["token_bytes"] == 2 * 32 * 32 * 128 * 2


def test_an_encoder_decoder_reads_its_prompt_and_caches_the_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = row(capsys, "flan-t5-base", "--prompt", "100", "--new", "20", "--kv-dtype", "float32")
    token = 2 * 12 * 64 * 4
    assert found["context"] == 20
    assert found["total_bytes"] == 12 * (20 + 100) * token


def test_the_copies_of_its_steps_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = row(capsys, "gemma-3-27b", "--prompt", "4000", "--new", "2")
    layer = 2 * 16 * 128 * 2
    # The first step copies a window of every sliding layer while its prompt still lies there.
    assert found["prefill_bytes"] == 62 * 4000 * layer
    assert found["peak_bytes"] == 62 * 4000 * layer + 1024 * layer
    assert found["allocated_bytes"] == (10 * 4001 + 52 * 1024) * layer


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--prompt", "10"),
            "--prompt and --new say together how many tokens are cached, without --ctx.",
        ),
        (
            ("--prompt", "10", "--new", "2", "--ctx", "11"),
            "--prompt and --new say together how many tokens are cached, without --ctx.",
        ),
        (
            ("--prompt", "10", "--new", "2", "--engine", "vllm"),
            "--prompt and --new size transformers' generate(), not vllm.",
        ),
        (
            ("--prompt", "10", "--new", "0"),
            "--new is '0', and must be a whole number of at least 1.",
        ),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = run(capsys, "llama-2-7b", *arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert err.splitlines()[0] == f"error: {told}"


def test_where_an_offloaded_cache_lies_is_said() -> None:
    model = kvsize.load("gemma-3-27b")
    for cache, words in (
        ("offloaded", "Sliding layers move as well (offload_only_non_sliding is false)."),
        (
            "offloaded_static",
            "Sliding layers stay on the device (offload_only_non_sliding is true)",
        ),
    ):
        found = kvsize.size(model, context=4096, options={"cache": cache})
        assert any(words in note for note in found.notes)
        held = found.details["device_bytes"], found.details["cpu_bytes"]
        assert sum(int(str(part)) for part in held) == found.allocated_bytes
