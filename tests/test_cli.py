"""The command line: what it takes, what it says, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import program, run

import kvsize
from kvsize import cli
from kvsize.commands import names
from kvsize.errors import Exit

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096,
}

LLAMA_70B = """\
model      llama-3.1-70b (meta-llama/Llama-3.1-70B, preset)
attention  GQA, 64 query heads : 8 KV heads, head_dim 128; 80 layers
cache      transformers 5.24.0 DynamicCache
dtype      bfloat16

context   per token  per sequence  as MHA
32,768   320.00 KiB     10.00 GiB      8×

warning KV001: the MHA formula 2 · layers · heads · head_dim · bytes overcounts this model 8×: 80.00
  GiB against 10.00 GiB at 32,768 tokens.
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("KVSIZE_DEBUG", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    return str(path)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    said = run(capsys, *arguments, "--json")
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)["rows"]


# -- what it takes -----------------------------------------------------------------------------
def test_the_main_job(capsys):
    assert run(capsys, "llama-3.1-70b", "--ctx", "32k") == (0, LLAMA_70B, "")


def test_size_is_the_default_command(capsys):
    assert run(capsys, "size", "llama-3.1-70b", "--ctx", "32k") == (0, LLAMA_70B, "")


def test_options_may_come_first(capsys):
    assert run(capsys, "--ctx", "32k", "llama-3.1-70b") == (0, LLAMA_70B, "")


def test_a_model_named_like_a_command(capsys, tmp_path, monkeypatch):
    (tmp_path / "explain").mkdir()
    (tmp_path / "explain" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert rows(capsys, "size", "explain", "--ctx", "8")[0]["total_bytes"] == 2 * 2 * 8 * 64 * 2


@pytest.mark.parametrize("option", ["--ctx", "--context", "--max-model-len"])
def test_names_of_the_context(capsys, config, option):
    assert [row["context"] for row in rows(capsys, config, option, "1k,32_768,1m")] == [
        1024,
        32768,
        1048576,
    ]


@pytest.mark.parametrize("option", ["--batch", "--sequences"])
def test_names_of_the_sequences(capsys, config, option):
    found = rows(capsys, config, "--ctx", "10", option, "1,3")
    assert [(row["sequences"], row["total_bytes"]) for row in found] == [(1, 5120), (3, 15360)]


@pytest.mark.parametrize("option", ["--kv-dtype", "--kv-cache-dtype"])
def test_names_of_the_dtype(capsys, config, option):
    row = rows(capsys, config, "--ctx", "10", option, "float32")[0]
    assert (row["kv_dtype"], row["total_bytes"]) == ("float32", 10240)


@pytest.mark.parametrize("option", ["--tp", "--tensor-parallel-size"])
def test_names_of_tensor_parallelism(capsys, config, option):
    row = rows(capsys, config, "--ctx", "10", option, "2")[0]
    assert row["tensor_parallel_size"] == 2
    assert row["rank_bytes"] == [2560, 2560]


@pytest.mark.parametrize("option", ["--pp", "--pipeline-parallel-size"])
def test_names_of_pipeline_parallelism(capsys, option):
    row = rows(capsys, "llama-3.1-70b", "--ctx", "1k", "--engine", "sglang", option, "2")[0]
    assert row["pipeline_parallel_size"] == 2


def test_without_a_context_a_few_up_to_the_limit(capsys, config):
    assert [row["context"] for row in rows(capsys, config)] == [1024, 4096]


def test_rows_are_models_by_contexts_by_sequences(capsys, config):
    found = rows(capsys, config, "llama-3.1-70b", "--ctx", "1k,2k", "--batch", "1,2")
    assert [(row["model"], row["context"], row["sequences"]) for row in found] == [
        (model, context, sequences)
        for model in (config, "llama-3.1-70b")
        for context in (1024, 2048)
        for sequences in (1, 2)
    ]


def test_the_engines_own_options(capsys, config):
    spelled = ("-o", "cache=static", "--option", "max_cache_len=100")
    row = rows(capsys, config, "--ctx", "10", *spelled)[0]
    assert (row["cache"], row["total_bytes"]) == ("StaticCache", 51200)
    assert row["options"] == {"cache": "static", "max_cache_len": "100"}


def test_cache_is_short_for_an_option(capsys, config):
    assert rows(capsys, config, "--ctx", "10", "--cache", "static")[0]["cache"] == "StaticCache"


def test_an_older_engine(capsys):
    found = [
        rows(capsys, "deepseek-v3", "--ctx", "1k", "--engine-version", version)[0]["total_bytes"]
        for version in ("5.24.0", "5.13.1")
    ]
    assert found == [71_958_528, 5_117_050_880]


def test_strict_accepts_what_is_stated(capsys):
    assert run(capsys, "llama-3.1-70b", "--ctx", "32k", "--strict") == (0, LLAMA_70B, "")


def test_a_fixed_unit(capsys):
    said = run(capsys, "llama-3.1-70b", "--ctx", "32k", "--unit", "gib")
    assert "32,768   0.00031 GiB     10.00 GiB      8×\n" in said.out


def test_json_is_a_format(capsys, config):
    assert run(capsys, config, "--json") == run(capsys, config, "--format", "json")


def test_standard_input():
    said = program("-", "--ctx", "10", "--json", stdin=json.dumps(LLAMA))
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["rows"][0]["total_bytes"] == 5120


def test_offline_keeps_the_hub_client_off_the_network():
    said = program("org/name", "--offline", HF_ENDPOINT="http://127.0.0.1:9")
    assert (said.code, said.out) == (4, "")
    assert said.err.startswith("error: org/name: ")
    assert said.err.count("\n") == 2


def test_offline_is_what_the_hub_client_reads(capsys, config, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert run(capsys, config, "--offline").code == 0
    assert os.environ["HF_HUB_OFFLINE"] == "1"


# -- where it goes -----------------------------------------------------------------------------
def test_output_replaces_a_file_at_once(capsys, config, tmp_path):
    target = tmp_path / "report.csv"
    target.write_text("old", encoding="utf-8")
    said = run(capsys, config, "--ctx", "10", "--format", "csv", "--output", str(target))
    assert said == (0, "", "")
    assert target.read_bytes().startswith(b"model,hub_id,")
    assert target.read_bytes().count(b"\r\n") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "report.csv"]


def test_output_keeps_a_symbolic_link(capsys, config, tmp_path):
    (tmp_path / "real").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to("real")
    run(capsys, config, "--output", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8").startswith("model ")


def test_output_to_a_device_leaves_it_one(capsys, config):
    assert run(capsys, config, "--output", os.devnull) == (0, "", "")
    assert Path(os.devnull).is_char_device()


def test_output_that_cannot_be_written(capsys, config, tmp_path):
    missing = tmp_path / "no" / "report"
    assert run(capsys, config, "--output", str(missing)) == (
        2,
        "",
        f"error: cannot write to {missing}: No such file or directory.\n"
        "hint: name a file in a folder that exists and can be written.\n",
    )


def test_a_failure_leaves_the_output_file_alone(capsys, config, tmp_path):
    target = tmp_path / "report"
    target.write_text("old", encoding="utf-8")
    assert run(capsys, config, "no-such-model", "--output", str(target)).code == 2
    assert target.read_text(encoding="utf-8") == "old"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KVSIZE": KVSIZE},
    )


KVSIZE = f"{sys.executable} -m kvsize"


def test_a_reader_that_stops_early(config):
    contexts = ",".join(map(str, range(1, 300)))  # more than a pipe holds
    done = shell(f"($KVSIZE {config} --json --ctx {contexts}; echo $? >&2) | true")
    assert (done.stdout, done.stderr) == ("", "141\n")


def test_a_full_disk(config):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    done = shell(f"$KVSIZE {config} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "error: cannot write to standard output: No space left on device."
    )


def test_a_closed_standard_output(config):
    done = shell(f"$KVSIZE {config} >&-")
    assert (done.returncode, done.stderr) == (
        2,
        "error: standard output is closed.\nhint: name a file to write to: --output FILE.\n",
    )


def test_an_encoding_without_the_characters(config):
    said = program(config, "--ctx", "10", PYTHONIOENCODING="ascii")
    assert (said.code, said.err) == (0, "")
    assert "GQA" not in said.out
    assert "MHA, 4 query heads : 4 KV heads, head_dim 16; 2 layers" in said.out


def test_colours_are_for_terminals_only(config):
    said = program(config, "--ctx", "10", NO_COLOR="", FORCE_COLOR="1")
    assert "\x1b" not in said.out


# -- how it fails ------------------------------------------------------------------------------
FAILURES = [
    (
        ["no-such-model"],
        2,
        "no preset named 'no-such-model'.",
        "`kvsize presets` lists all of them.",
    ),
    (
        ["lama-3.1-70b"],
        2,
        "no preset named 'lama-3.1-70b'.",
        None,
    ),
    (
        ["llama-3.1-70b", "--ctx", "many"],
        2,
        "'many' is not a number of tokens.",
        "write 32768, 32_768, 32k (= 32 × 1024) or 1m (= 1024 × 1024).",
    ),
    (
        ["llama-3.1-70b", "--batch", "0"],
        2,
        "--batch is '0', and must be a whole number of at least 1.",
        "write --batch 1, or a larger whole number.",
    ),
    (
        ["llama-3.1-70b", "--tp", "-1"],
        2,
        "--tp is '-1', and must be a whole number of at least 1.",
        "write --tp 1, or a larger whole number.",
    ),
    (
        ["llama-3.1-70b", "--format", "yaml"],
        2,
        "no output format named 'yaml'.",
        "use one of csv, html, json, latex, markdown, rst, table, tsv.",
    ),
    (
        ["llama-3.1-70b", "--unit", "GB"],
        2,
        "--unit is 'GB', which is not a unit of bytes here.",
        "use one of B, KiB, MiB, GiB, TiB.",
    ),
    (
        ["llama-3.1-70b", "-o", "cache"],
        2,
        "--option 'cache' is not NAME=VALUE.",
        "write it as in -o max_cache_len=4096.",
    ),
    (
        ["llama-3.1-70b", "-o", "cache=static", "--cache", "dynamic"],
        2,
        "the engine option 'cache' is given twice.",
        "give each option once; --cache KIND is -o cache=KIND.",
    ),
    (
        ["llama-3.1-70b", "--engine", "vlm"],
        2,
        "no engine named 'vlm'.",
        None,
    ),
    (
        ["llama-3.1-70b", "--frob"],
        2,
        None,
        "`kvsize size --help` shows what it takes.",
    ),
    (
        ["llama-3.1-70b", "--ctx"],
        2,
        "option '--ctx' requires an argument.",
        None,
    ),
    (["size"], 2, "missing argument 'MODEL...'.", "`kvsize size --help` shows what it takes."),
    (["explain"], 2, "missing argument 'MODEL'.", "`kvsize explain --help` shows what it takes."),
    (
        ["-", "llama-3.1-70b", "-"],
        2,
        "standard input (-) is named 2 times, and can be read once.",
        "name the other models by a file or a preset.",
    ),
    (
        ["explain", "llama-3.1-70b", "--ctx", "1k,2k"],
        2,
        "--ctx takes one value here.",
        "give one of them.",
    ),
    (
        ["explain", "llama-3.1-70b", "--format", "table"],
        2,
        "no format named 'table' for an explanation.",
        "use one of text, markdown, json.",
    ),
    (
        ["presets", "--search", "no-such-thing"],
        2,
        "no preset has 'no-such-thing' in its name, aliases or Hub id.",
        "`kvsize presets` lists all of them; any Hub id or config.json works too.",
    ),
    (
        ["llama-3.1-70b", "--ctx", "8k", "--cache", "static", "-o", "max_cache_len=4096"],
        1,
        "a StaticCache of max_cache_len 4096 cannot hold 8192 tokens.",
        "give max_cache_len at least 8192.",
    ),
]


@pytest.mark.parametrize(("arguments", "code", "message", "hint"), FAILURES)
def test_a_failure_is_two_lines(capsys, arguments, code, message, hint):
    said = run(capsys, *arguments)
    assert (said.code, said.out) == (code, "")
    first, second = said.err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("hint: ")
    assert message is None or first == f"error: {message}"
    assert hint is None or second == f"hint: {hint}"


def test_one_bad_model_of_several_prints_nothing(capsys, config):
    said = run(capsys, config, "no-such-model", config)
    assert (said.code, said.out) == (2, "")


def test_a_bad_config_says_where(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "num_key_value_heads": 3}), encoding="utf-8")
    said = run(capsys, str(path))
    assert (said.code, said.out) == (3, "")
    assert said.err.splitlines()[0] == (
        f"error: {path}: `num_key_value_heads` 3 does not divide `num_attention_heads` 4."
    )


def test_strict_refuses_an_assumed_dtype(capsys, tmp_path):
    path = tmp_path / "config.json"
    without = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    path.write_text(json.dumps(without), encoding="utf-8")
    assert run(capsys, str(path), "--strict") == (
        3,
        "",
        f"error: {path}: no dtype is stated, and --strict forbids to assume bfloat16.\n"
        "hint: give the dtype it runs in, such as --kv-dtype bfloat16.\n",
    )
    assert run(capsys, str(path), "--strict", "--kv-dtype", "bfloat16").code == 0


def test_strict_refuses_the_generic_rule(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "frob"}), encoding="utf-8")
    said = run(capsys, str(path), "--strict")
    assert (said.code, said.out) == (3, "")
    assert said.err == (
        f"error: {path}: KV008: model type 'frob' is not one kvsize knows; sized by the generic "
        "rule.\nhint: leave out --strict to get the figure with a warning.\n"
    )


def test_debugging_shows_the_traceback():
    said = program("no-such-model", KVSIZE_DEBUG="1")
    assert said.code == 2
    assert said.err.startswith("Traceback (most recent call last):\n")
    assert said.err.splitlines()[-2] == "error: no preset named 'no-such-model'."


def test_debugging_in_this_process(capsys, monkeypatch):
    monkeypatch.setenv("KVSIZE_DEBUG", "1")
    said = run(capsys, "no-such-model")
    assert said.err.splitlines()[0] == "Traceback (most recent call last):"
    assert said.err.splitlines()[-1] == "hint: `kvsize presets` lists all of them."


def test_no_traceback_otherwise():
    said = program("no-such-model")
    assert said == (
        2,
        "",
        "error: no preset named 'no-such-model'.\nhint: `kvsize presets` lists all of them.\n",
    )


def test_a_bug_is_told_in_two_lines(capsys, monkeypatch):
    def broken(_: list[str]) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(cli, "run", broken)
    assert cli.main() == Exit.INTERNAL == 70
    assert capsys.readouterr() == (
        "",
        "error: internal: ZeroDivisionError: division by zero.\n"
        "hint: this is a bug in kvsize; set KVSIZE_DEBUG=1 for the traceback, and report it.\n",
    )


def test_an_interrupt_is_quiet(capsys, monkeypatch):
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert cli.main() == Exit.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "")


# -- the other commands ------------------------------------------------------------------------
def test_the_version(capsys):
    assert run(capsys, "--version") == (0, f"kvsize {kvsize.__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(capsys, arguments):
    said = run(capsys, *arguments)
    assert (said.code, said.err) == (0, "")
    for command in names():
        assert f"\n  {command} " in said.out
    assert "kvsize llama-3.1-70b --ctx 32k" in said.out


@pytest.mark.parametrize("command", names())
def test_each_command_has_help(capsys, command):
    said = run(capsys, command, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: kvsize {command} ")


def test_presets_can_be_searched(capsys):
    said = run(capsys, "presets", "--search", "llama-3.1-70B")
    assert said.out.splitlines()[0].split() == [
        "preset",
        "attention",
        "layers",
        "context",
        "on",
        "the",
        "Hub",
    ]
    found = [line.split() for line in said.out.splitlines()[1:]]
    assert ["llama-3.1-70b", "GQA", "64:8", "80", "131,072", "meta-llama/Llama-3.1-70B"] in found
    assert all("llama" in line[0] for line in found)


def test_presets_as_json(capsys):
    said = run(capsys, "presets", "--json")
    found = {each["name"]: each for each in json.loads(said.out)}
    assert len(found) >= 150
    assert found["llama-3.1-70b"] | {"aliases": [], "weight_bytes": 0} == {
        "name": "llama-3.1-70b",
        "hub_id": "meta-llama/Llama-3.1-70B",
        "aliases": [],
        "model_type": "llama",
        "attention": "GQA",
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "layers": 80,
        "context_limit": 131072,
        "weight_bytes": 0,
    }


def test_engines_are_listed(capsys):
    said = run(capsys, "engines")
    names = [line.split()[0] for line in said.out.splitlines()]
    assert names == sorted(names)
    assert {"transformers", "vllm", "llama.cpp"} <= set(names)


def test_one_engine(capsys):
    said = run(capsys, "engines", "transformers")
    assert said.out.startswith("transformers: Hugging Face transformers: ")
    assert "  max_cache_len " in said.out
    assert "\nnot modelled:\n" in said.out


def test_the_schema_is_json(capsys):
    said = run(capsys, "schema")
    assert json.loads(said.out)["title"] == "Report"
