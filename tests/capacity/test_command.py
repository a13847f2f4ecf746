"""`kvsize fit` and `kvsize gpus` as they are typed: text, JSON, exit codes, two-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_files
import pytest
from deployments import GIB, TINY

from kvsize import cli
from kvsize.capacity.answer import Answer
from kvsize.capacity.render import adding_up

KNOWN = ["fit", "llama-3.1-8b", "--kv-memory", "40GiB"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    found = capsys.readouterr()
    return code, found.out, found.err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = said(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_a_known_memory_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *KNOWN, "--ctx", "8k,32k") == (
        0,
        "llama-3.1-8b in vllm 0.33.0\n"
        "\n"
        "Memory of one GPU\n"
        "                          bytes\n"
        "  cache memory        40.00 GiB\n"
        "  left for the cache  40.00 GiB\n"
        "  cache memory: --kv-memory.\n"
        "\n"
        "What fits\n"
        "  context  sequences  bound by  cache tokens  one more needs, per GPU\n"
        "    8,192         39  memory         327,680                 2.00 MiB\n"
        "   32,768          9  memory         327,680                 2.00 MiB\n"
        "  Longest context for 1 sequence: 131,072, bound by the model's context limit.\n"
        "\n"
        "Notes\n"
        "  vLLM holds one block back (the null block) that its logged concurrency counts.\n",
        "",
    )


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, *KNOWN, "--ctx", "32k", "--emit", "vllm", "--format", "markdown")
    assert "| context | sequences | bound by | cache tokens | one more needs, per GPU |" in out
    assert "| 32,768 | 9 | memory | 327,680 | 2.00 MiB |" in out
    assert "```sh\n# --max-model-len 32768:" in out
    assert out.endswith("counts.\n")


def test_json_has_the_fields_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = data(capsys, *KNOWN, "--ctx", "32k", "--sequences", "9")
    assert code == 0
    assert list(found) == ["schema_version", "fits", *Answer.__dataclass_fields__]
    assert (found["schema_version"], found["fits"]) == (1, True)
    assert found["verdicts"] == [
        {
            "context": 32768,
            "sequences": 9,
            "fits": True,
            "sure": True,
            "needed_bytes": 9 * 4 * GIB + 2**21,
            "left_bytes": 40 * GIB,
            "sentence": (
                "fits: 9 sequences × 32,768 tokens need 36.00 GiB; 40.00 GiB are left for the cache."
            ),
        }
    ]


def test_no_is_exit_1_with_both_figures_and_ways_out(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = data(capsys, *KNOWN, "--ctx", "32k", "--sequences", "20")
    assert (code, found["fits"]) == (1, False)
    assert found["verdicts"][0]["sentence"] == (
        "does not fit: 20 sequences × 32,768 tokens need 80.00 GiB; 40.00 GiB are left for the cache."
    )
    assert [way["flags"] for way in found["remedies"]] == [
        "--ctx 16368",
        "--sequences 9",
        "--kv-dtype fp8",
    ]


def test_the_ledger_in_json_adds_up_to_the_byte(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = data(capsys, "fit", "llama-3.1-70b", "--gpu", "h100", "--gpus", "8", "--ctx", "32k")
    entries = found["budget"]["entries"]
    assert entries[0]["label"] == "GPU memory"
    low, best, high = (sum(entry["columns"][index] for entry in entries) for index in range(3))
    assert low > best > high
    laid = found["layouts"][0]
    assert (laid["layout"]["tensor_parallel_size"], laid["kv_bytes"]) == (8, best)
    span = found["capacities"][0]["sequences"]
    assert 1 < span["least"] < span["best"] < span["most"]


def test_the_layout_is_the_one_stated(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--gpu", "h200", "--gpus", "8", "--tp", "8", "--dp", "8", "--ctx", "16k"]
    code, found = data(
        capsys, "fit", "deepseek-v3", *arguments, "--engine", "sglang", "--sequences", "64"
    )
    assert (code, found["gpus"], found["layout"]["attention_dp"]) == (0, 8, True)
    code, found = data(
        capsys, "fit", "llama-3.1-8b", "--gpu", "h100", "--tp", "2", "--dp", "3", "--ctx", "8k"
    )
    assert (found["gpus"], found["layout"]["attention_dp"]) == (6, False)


def test_the_fewest_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ctx", "32k", "--sequences", "50", "--gpu", "h100", "--reserve", "4GiB"]
    code, found = data(capsys, "fit", "llama-3.1-70b", *arguments)
    assert (code, found["gpus"]) == (0, 10)
    assert found["reason"] == "no fewer than 10 GPUs hold 50 sequences"
    plain = found["layouts"][1]["layout"]
    assert (plain["pipeline_parallel_size"], found["layouts"][1]["sequences"] >= 50) == (1, True)


def test_the_longest_context(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = data(capsys, *KNOWN, "--sequences", "4")
    assert (code, found["capacities"]) == (0, [])
    assert found["longest"]["context"] == {"least": 81_904, "best": 81_904, "most": 81_904}
    code, found = data(capsys, *KNOWN, "--ctx", "8k", "--max-ctx")
    assert found["longest"]["context"]["best"] == 131_072


def test_a_gguf_file_in_slots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "tiny.gguf", gguf_files.metadata())
    arguments = ["--gpu", "rtx3060", "--engine", "llama.cpp", "--parallel", "4"]
    code, found = data(capsys, "fit", str(path), *arguments)
    assert (code, found["engine"], found["longest"]["sequences"]) == (0, "llama.cpp", 4)
    assert found["longest"]["binding"] == "the model's context limit"


def test_real_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--lengths", "2k:70,8k:25,32k:5", "--engine", "sglang"]
    code, found = data(capsys, *KNOWN, *arguments, "--sequences", "40")
    assert (code, found["traffic"]["sequences"]) == (0, 40)
    assert found["verdicts"][0]["sentence"] == (
        "fits: 40 sequences of these lengths; 40 overflow the cache with a probability of at most "
        "1 %."
    )
    code, found = data(capsys, *KNOWN, *arguments, "--sequences", "41")
    assert (code, found["fits"]) == (1, False)
    _, out, _ = said(capsys, *KNOWN, *arguments)
    assert "StaticCache          4.00 GiB  84.4 %                  6.40" in out


def test_emit_chooses_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = data(capsys, *KNOWN, "--ctx", "8k", "--emit", "trtllm")
    assert found["engine"] == "tensorrt-llm"
    assert found["command"].splitlines()[-2:] == [
        "  --max_seq_len 8192 \\",
        "  --max_batch_size 40",
    ]


def test_gpus_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "gpus", "--search", "l40s")
    assert code == 0
    assert out == (
        "Accelerators\n"
        "  name  accelerator          memory  figure  from\n"
        "  l40s  NVIDIA L40S 48GB  44.99 GiB  driver  46068 MiB: nvidia-smi of this card, "
        "modal-labs/modal-client#2797\n"
    )
    _, found = data(capsys, "gpus")
    assert len(found["gpus"]) >= 60
    assert found["gpus"][0]["memory_bytes"] == 81_559 * 2**20


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["llama-3.1-8b"], 2, "no memory is stated, so nothing can be said to fit."),
        (["llama-3.1-8b", "--gpu", "h1000"], 2, "no GPU named 'h1000'."),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--gpu-memory", "24GiB"],
            2,
            "--gpu and --gpu-memory both name a GPU.",
        ),
        (
            ["llama-3.1-8b", "--gpu-memory", "24"],
            2,
            "--gpu-memory is 24 bytes, which is no GPU's memory.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--tp", "3", "--ctx", "8k"],
            1,
            "vllm: 32 attention heads must be divisible by tensor_parallel_size 3.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--gpus", "4", "--tp", "2"],
            2,
            "TP 2 takes 2 GPUs, and --gpus says 4.",
        ),
        (
            [
                "deepseek-v3",
                "--engine",
                "sglang",
                "--gpu",
                "h200",
                "--gpus",
                "8",
                "--tp",
                "8",
                "--dp",
                "3",
            ],
            2,
            "--dp 3 does not divide --tp 8.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--engine", "sglang", "--emit", "vllm"],
            2,
            "--emit vllm prints a command for vllm, and --engine is sglang.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--engine", "sglang", "--kv-dtype", "fp8"],
            2,
            "sglang has no KV dtype 'fp8'.",
        ),
        (["llama-3.1-8b", "--gpu", "h100", "--engine", "abacus"], 2, "no engine named 'abacus'."),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--weights", "fat"],
            2,
            "--weights is 'fat', which is neither a size nor a dtype of weights.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--memory-fraction", "1.5"],
            2,
            "'1.5' is not a share.",
        ),
        (
            ["llama-3.1-8b", "--gpu", "h100", "--ctx", "1m"],
            1,
            "vllm: max_model_len 1,048,576 is greater than the 131,072 of the model.",
        ),
        (
            ["llama-3.1-8b", "--kv-memory", "1GiB", "--emit", "vllm", "--ctx", "128k"],
            2,
            "--emit vllm: there is nothing to serve, because nothing fits.",
        ),
        (
            ["llama-3.1-8b", "--kv-memory", "9GiB", "--format", "svg"],
            2,
            "no output format named 'svg' here.",
        ),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_errors_are_two_lines(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, error: str
) -> None:
    found, out, err = said(capsys, "fit", *arguments)
    assert (found, out) == (code, "")
    lines = err.splitlines()
    assert lines[0] == f"error: {error}"
    assert (len(lines), lines[1][:6]) == (2, "hint: ")


def test_output_goes_to_a_file_even_for_no(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "fit.json"
    arguments = ["--ctx", "32k", "--sequences", "20", "--json", "--output", str(path)]
    assert said(capsys, *KNOWN, *arguments) == (1, "", "")
    assert json.loads(path.read_text(encoding="utf-8"))["fits"] is False


def test_one_unit_for_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, *KNOWN, "--ctx", "32k", "--unit", "MiB")
    assert "  cache memory        40,960.00 MiB\n" in out


def test_lines_shown_add_up_to_the_sum_shown() -> None:
    thirds = [GIB // 3] * 3
    assert adding_up(thirds, "GiB") == ["0.33 GiB", "0.34 GiB", "0.33 GiB", "1.00 GiB"]
    assert adding_up([5, -7], "B") == ["5 B", "-7 B", "-2 B"]


def test_fit_imports_no_torch_and_no_hub_client(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(TINY))
    script = (
        "import sys\n"
        "from kvsize import cli\n"
        "code = cli.run(['fit', 'llama-3.1-8b', '--gpu', 'h100', '--ctx', '8k'])\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'pydantic', 'numpy'}\n"
        "assert not heavy & {name.partition('.')[0] for name in sys.modules}\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
