"""What the shells offer: the offers themselves, and each shell that is installed, for real."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from command import program, run
from console import furnish

from kvsize.capacity.gpus import gpus
from kvsize.commands import names
from kvsize.commands.completion import SHELLS
from kvsize.completing import FILES, VARIABLE, offers
from kvsize.engines import engine, engines
from kvsize.render import formats
from kvsize.sources import preset


def words(line: str) -> list[str]:
    return [word for word, _ in offers(line)]


# -- the first word --------------------------------------------------------------------------------
def test_the_first_word_is_a_command_or_a_model():
    assert words("kvsize ") == [*names(), *preset.presets(), FILES]
    assert words("kvsize ver") == ["verify", FILES]
    assert dict(offers("kvsize ver"))["verify"].startswith("Hold a figure against ")
    assert words("kvsize qwen3-32b-") == ["qwen3-32b-fp8", FILES]
    assert words("kvsize size qwen3-32b-") == ["qwen3-32b-fp8", FILES]


def test_any_case_and_aliases():
    assert words("kvsize Qwen3-32B-f") == ["qwen3-32b-fp8", FILES]
    assert offers("kvsize meta-llama-3.1-70b-") == [
        ("meta-llama-3.1-70b-instruct", "llama-3.1-70b"),
        (FILES, ""),
    ]


def test_a_path_is_left_to_the_shell():
    assert words("kvsize ./conf") == [FILES]
    assert words("kvsize llama-3.1-70b --output ") == [FILES]


def test_size_takes_any_number_of_models_and_explain_one():
    assert words("kvsize llama-3.1-70b qwen3-32b-") == ["qwen3-32b-fp8", FILES]
    assert words("kvsize explain llama-3.1-70b qwen3-32b-") == []


# -- options ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kvsize llama-3.1-70b --engine-", ["--engine-version"]),
        ("kvsize llama-3.1-70b --max-m", ["--max-model-len"]),
        ("kvsize --vers", ["--version"]),
        ("kvsize llama-3.1-70b --frob", []),
        ("kvsize x --engine sg", ["sglang"]),
        ("kvsize x --engine=sg", ["--engine=sglang"]),
        ("kvsize x --frob=sg", []),
        ("kvsize x --engine vllm,sg", ["vllm,sglang"]),
        ("kvsize x --engine sglang --engine-version ", list(engine("sglang").VERSIONS)),
        ("kvsize x --engine-version 5", ["5.24.0", "5.13.1"]),
        ("kvsize x.gguf --engine-version ", list(engine("llama.cpp").VERSIONS)),
        ("kvsize fit x --engine-version 0.33", ["0.33.0"]),
        ("kvsize x --kv-dtype ", list(engine("transformers").KV_DTYPES)),
        ("kvsize x --kv-cache-dtype bfl", ["bfloat16"]),
        ("kvsize x --engine llama.cpp --kv-dtype q8", ["q8_0"]),
        ("kvsize x -o max_c", ["max_cache_len="]),
        ("kvsize x --option cache=sta", ["cache=static"]),
        ("kvsize x -o max_cache_len=", []),
        ("kvsize x -o frob=", []),
        ("kvsize x --engine tensorrt-llm -o enable_attention_dp=t", ["enable_attention_dp=true"]),
        ("kvsize x --cache sta", ["static"]),
        ("kvsize fit x --gpu h100", ["h100", "h100-nvl"]),
        ("kvsize fit x --gpu loc", ["local"]),
        ("kvsize fit x --emit tr", ["trtllm"]),
        ("kvsize x --format ", formats()),
        ("kvsize fit x --format ", ["text", "markdown", "json"]),
        ("kvsize x --unit g", ["GiB"]),
        ("kvsize verify x --device m", ["meta"]),
        ("kvsize engines ", engines()),
        ("kvsize completion ", list(SHELLS)),
        ("kvsize x --ctx ", []),
        ("kvsize -- --eng", [FILES]),
        ("kvsize schema ", []),
    ],
)
def test_what_is_offered(line, expected):
    assert words(line) == expected


def test_every_gpu_is_offered():
    assert words("kvsize fit x --gpu ") == ["local", *(each.name for each in gpus())]


def test_every_option_of_every_command_is_offered():
    for name in names():
        offered = words(f"kvsize {name} -")
        assert "--help" in offered
        assert len(offered) == len(set(offered))


@pytest.mark.parametrize("name", engines())
def test_every_dtype_of_an_engine_is_one_it_takes(name):
    """Each goes on past the check of its name; an engine may still refuse it for a model."""
    from kvsize import EngineRefuses, load, size

    model = load("llama-3.1-8b")
    assert "auto" in engine(name).KV_DTYPES
    for dtype in engine(name).KV_DTYPES:
        try:
            assert size(model, engine=name, kv_dtype=dtype, context=1024).total_bytes > 0
        except EngineRefuses:
            continue


@pytest.mark.parametrize(
    "line", ["kvsize 'a b", 'kvsize "', "kvsize \\", "kvsize x -o '", "", " ", "kvsize", "kvsize #"]
)
def test_nothing_that_is_half_typed_is_an_error(line):
    said = program(**{VARIABLE: line})
    assert (said.code, said.err) == (0, "")


def test_what_makes_no_sense_is_met_with_silence():
    assert program(**{VARIABLE: "kvsize x --engine nothing --engine-version "}) == (0, "", "")


def test_completing_imports_no_hub_client_and_no_framework():
    code = (
        "import sys\nfrom kvsize.completing import offers\n"
        "for line in ('kvsize ', 'kvsize x --engine vllm -o ', 'kvsize fit x --gpu '): offers(line)\n"
        "print(*{'huggingface_hub', 'torch', 'rich', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("\n", "")


# -- the scripts -----------------------------------------------------------------------------------
def test_a_shell_that_is_not_known(capsys):
    assert run(capsys, "completion", "tcsh") == (
        2,
        "",
        "error: there is no completion for the shell 'tcsh'.\nhint: use one of bash, zsh, fish.\n",
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_what_its_shell_reads(shell, capsys):
    said = run(capsys, "completion", shell)
    assert VARIABLE in said.out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=said.out, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "breaks", "replies"),
    [
        ("kvsize qwen3-32b-", "=:@", ["qwen3-32b-fp8"]),
        ("kvsize x -o cache=sta", "=:@", ["static"]),
        ("kvsize x -o cache=sta", "", ["cache=static"]),
        ("kvsize x --engine=sg", "=:@", ["sglang"]),
        ("kvsize x --output ", "=:@", []),
        ("kvsize x --engine vllm,sg", "=:@", ["vllm,sglang"]),
    ],
)
def test_bash_replaces_what_follows_its_last_word_break(line, breaks, replies, tmp_path):
    script = (
        'eval "$(kvsize completion bash)"; COMP_WORDBREAKS=$2 COMP_LINE=$1 COMP_POINT=${#1}; '
        'complete -p kvsize >&2; _kvsize kvsize; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", line, breaks],
        check=True,
        capture_output=True,
        text=True,
        env=_environment(tmp_path),
    )
    assert done.stdout.split() == replies
    assert done.stderr == "complete -o default -F _kvsize kvsize\n"


START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(kvsize completion bash)"\n'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit && compinit -u -D && eval "$(kvsize completion zsh)"\n',
    ),
    "fish": (["fish", "--no-config", "-i"], "kvsize completion fish | source\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_line_typed_with_tabs_is_the_line_that_is_meant(shell, tmp_path):
    """In a terminal: unique starts and tabs, then return; the command writes what was meant."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    typed = (
        "kvsize qwen3-32b-\t--engine-v\t5.13\t-o max_ca\t8192 -o cache=sta\t"
        "--ctx 1k --uni\tGi\t--format js\t--output first.json\n"
        "kvsize conf\t--ctx 1k --format js\t--output second.json\n"
    )
    command, setup = START[shell]
    with _Terminal(command, tmp_path) as terminal:
        terminal.type(setup)
        for key in typed:
            terminal.type(key)
        terminal.wait_for(tmp_path / "second.json")
    first, second = (Path(tmp_path / f"{name}.json").read_text() for name in ("first", "second"))
    for meant in ('"model": "qwen3-32b-fp8"', '"engine_version": "5.13.1"', '"static"', '"8192"'):
        assert meant in first
    assert '"model": "config.json"' in second


def _environment(folder: Path) -> dict[str, str]:
    furnish(folder)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(folder),
        "TERM": "xterm",
        "PS1": "$ ",
    }


class _Terminal:
    """A program on a pseudo-terminal, whose output is read all the while."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.master, follower = pty.openpty()
        self.seen = b""
        self.process = subprocess.Popen(
            # A session's leader that opens a terminal is controlled by it, as shells want.
            ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(follower), *command],
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
        self.follower = follower

    def __enter__(self) -> Self:
        self.quiet(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.follower)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())
        self.quiet(0.3 if text in {"\t", "\n"} or len(text) > 1 else 0.01)

    def quiet(self, seconds: float) -> None:
        """Read until nothing came for that long."""
        while select.select([self.master], [], [], seconds)[0]:
            self.seen += os.read(self.master, 65536)

    def wait_for(self, file: Path) -> None:
        end = time.monotonic() + 30
        while not file.exists():
            self.quiet(0.2)
            assert time.monotonic() < end, self.seen.decode(errors="replace")
