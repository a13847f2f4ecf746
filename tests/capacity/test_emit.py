"""Serve commands, to the letter."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import gguf_files
import pytest

import kvsize
from kvsize.capacity.emit import Serve, command, engine_of
from kvsize.capacity.layout import Layout
from kvsize.errors import UsageError


def serve(source: Any = "llama-3.1-70b", **changes: Any) -> Serve:
    stated: dict[str, Any] = {
        "layout": Layout(tensor_parallel_size=8),
        "context": 32768,
        "sequences": 41,
        "sequence_bytes": 1_342_177_280,
        "kv_dtype": "auto",
        "fraction": Fraction(92, 100),
        "kv_memory": None,
        "tokens": 1_367_808,
    }
    return Serve(model=kvsize.load(source), **{**stated, **changes})


def test_vllm() -> None:
    assert command("vllm", serve()) == (
        "# --max-model-len 32768: one such sequence takes 1.25 GiB of each GPU's cache\n"
        "# --max-num-seqs 41: as many at full length as the cache holds; more would wait\n"
        "# --gpu-memory-utilization 0.92: the share of memory this answer counts on\n"
        "vllm serve meta-llama/Llama-3.1-70B \\\n"
        "  --tensor-parallel-size 8 \\\n"
        "  --max-model-len 32768 \\\n"
        "  --max-num-seqs 41 \\\n"
        "  --gpu-memory-utilization 0.92"
    )


def test_vllm_with_a_known_memory_and_dtype() -> None:
    layout = Layout(
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        data_parallel_size=2,
        decode_context_parallel_size=2,
        shared_experts=True,
    )
    lines = command("vllm", serve(layout=layout, kv_dtype="fp8", kv_memory=40 * 2**30)).splitlines()
    assert [line.strip(" \\") for line in lines if not line.startswith("#")] == [
        "vllm serve meta-llama/Llama-3.1-70B",
        "--tensor-parallel-size 4",
        "--pipeline-parallel-size 2",
        "--data-parallel-size 2",
        "--decode-context-parallel-size 2",
        "--enable-expert-parallel",
        "--max-model-len 32768",
        "--max-num-seqs 41",
        "--kv-cache-dtype fp8",
        "--kv-cache-memory-bytes 42949672960",
    ]


def test_sglang() -> None:
    layout = Layout(tensor_parallel_size=8, data_parallel_size=8, attention_dp=True)
    lines = command("sglang", serve(layout=layout, fraction=Fraction(9, 10))).splitlines()
    assert lines[0] == "# --enable-dp-attention: each group of ranks keeps its own requests' cache"
    assert lines[4:] == [
        "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B \\",
        "  --tp 8 \\",
        "  --dp 8 \\",
        "  --enable-dp-attention \\",
        "  --context-length 32768 \\",
        "  --max-running-requests 41 \\",
        "  --mem-fraction-static 0.9",
    ]
    known = command("sglang", serve(kv_memory=2**30)).splitlines()
    assert known[-1] == "  --max-total-tokens 1367808"


def test_llama_cpp(tmp_path: Any) -> None:
    path = gguf_files.write(tmp_path / "tiny.gguf", gguf_files.metadata())
    found = command("llama.cpp", serve(path, layout=Layout(), sequences=4, kv_dtype="q8_0"))
    assert found.splitlines()[4:] == [
        f"llama-server -m {path} \\",
        "  -c 131072 \\",
        "  -np 4 \\",
        "  -ngl 999 \\",
        "  -ctk q8_0 -ctv q8_0",
    ]


def test_trtllm_puts_into_a_file_what_has_no_flag() -> None:
    layout = Layout(tensor_parallel_size=8, data_parallel_size=8, attention_dp=True)
    found = command("trtllm", serve(layout=layout, kv_dtype="fp8", fraction=Fraction(9, 10)))
    assert found.splitlines()[4:] == [
        "trtllm-serve meta-llama/Llama-3.1-70B \\",
        "  --tp_size 8 \\",
        "  --max_seq_len 32768 \\",
        "  --max_batch_size 41 \\",
        "  --kv_cache_free_gpu_memory_fraction 0.9 \\",
        "  --extra_llm_api_options kvsize.yaml",
        "# kvsize.yaml",
        "enable_attention_dp: true",
        "kv_cache_config:",
        "  dtype: fp8",
    ]


def test_there_are_four_commands() -> None:
    assert engine_of("trtllm") == "tensorrt-llm"
    with pytest.raises(
        UsageError, match="--emit tgi: there is no serve command of that name"
    ) as error:
        engine_of("tgi")
    assert error.value.hint == "use one of vllm, sglang, llama.cpp, trtllm."
