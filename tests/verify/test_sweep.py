"""`kvsize verify --all`: processes with limits, one verdict for each type, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from command import run

from kvsize.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvsize.verify import sweep, text, variants, workers
from kvsize.verify.state import State
from kvsize.verify.trial import Outcome, Run, runs

pytestmark = pytest.mark.conformance

LIMITS = workers.Limits(seconds=30, memory_bytes=8 << 30)
PLAIN = {"plain": variants.VARIANTS["plain"]}


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """The command takes SIGTERM over, which in a test is pytest's process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def case(status: str, name: str = "whole, dynamic 5+3", detail: str = "") -> dict[str, str]:
    return {"variant": "plain", "status": status, "case": name, "detail": detail}


# Processes.


def test_what_a_process_sends_comes_back() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        for index in range(3):
            send((name, index))

    jobs = {job.name: job for job in workers.in_processes("abc", work, LIMITS, 2)}
    assert {name: job.found for name, job in jobs.items()} == {
        name: [(name, 0), (name, 1), (name, 2)] for name in "abc"
    }
    assert {job.ended for job in jobs.values()} == {""}


def test_a_process_that_hangs_is_ended_and_what_it_sent_is_kept() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        send(os.getpid())
        if name == "hangs":
            time.sleep(600)

    limits = workers.Limits(seconds=1, memory_bytes=8 << 30)
    started = time.monotonic()
    jobs = {job.name: job for job in workers.in_processes(["hangs", "ends"], work, limits, 2)}
    assert time.monotonic() - started < 20
    assert jobs["ends"].ended == ""
    assert jobs["hangs"].ended == "took longer than 1 s"
    with pytest.raises(ProcessLookupError):
        os.kill(jobs["hangs"].found[0], 0)


def test_a_process_that_sends_on_and_on_is_ended_too() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        while True:
            send(name)
            time.sleep(0.01)

    limits = workers.Limits(seconds=1, memory_bytes=8 << 30)
    (job,) = workers.in_processes(["busy"], work, limits, 1)
    assert job.ended == "took longer than 1 s"


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os._exit(3), "its process ended with 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its process ended with -9"),
    ],
)
def test_a_process_that_dies_is_told(end: Callable[[], None], told: str) -> None:
    (job,) = workers.in_processes(["dies"], lambda name, send: end(), LIMITS, 1)
    assert (job.found, job.ended) == ([], told)


def test_memory_is_limited() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        try:
            bytearray(16 << 30)
        except MemoryError:
            send("refused")

    (job,) = workers.in_processes(["greedy"], work, LIMITS, 1)
    assert job.found == ["refused"]


def test_no_more_processes_than_jobs() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        send(time.monotonic())
        time.sleep(0.2)
        send(time.monotonic())

    jobs = list(workers.in_processes("abcdef", work, LIMITS, 2))
    starts = sorted(job.found[0] for job in jobs)
    ends = sorted(job.found[1] for job in jobs)
    assert all(ends[i] < starts[i + 2] for i in range(4))


def test_leaving_early_ends_the_processes() -> None:
    def work(name: str, send: Callable[[Any], None]) -> None:
        send(os.getpid())
        if name != "first":
            time.sleep(600)

    jobs = workers.in_processes(["first", "second"], work, LIMITS, 2)
    assert next(jobs).name == "first"
    second = jobs.gi_frame.f_locals["running"][0]
    jobs.close()
    assert not second.process.is_alive()


# Verdicts.


@pytest.mark.parametrize(
    ("cases", "status", "exact"),
    [
        (["exact", "exact", "not built"], "exact", {"dynamic": 2}),
        (["exact", "differs", "not built"], "differs", {"dynamic": 1}),
        (["noted", "refused", "not built"], "not built", {}),
        ([], "not built", {}),
    ],
)
def test_one_verdict(cases: list[str], status: str, exact: dict[str, int]) -> None:
    found = sweep.judged("some", [case(status) for status in cases])
    assert (found.status, found.exact) == (status, exact)
    assert [c["status"] for c in found.cases] == [s for s in cases if s != "exact"]


def test_decoding_alone_shows_no_cache() -> None:
    found = sweep.judged("some", [case("exact", "whole, greedy decoding")])
    assert (found.status, found.exact) == ("not built", {"greedy": 1})


def test_the_table() -> None:
    results = [
        sweep.judged("b", [case("exact"), case("exact", "whole, static 5+3")]),
        sweep.judged("a", [case("exact"), case("not built", "whole, static 5+3", "no room")]),
        sweep.judged("c", [case("exact"), case("differs", detail="layer 1: 3 not 4")]),
        sweep.judged("longer", [case("not built", "", "ValueError: no")]),
    ]
    version = importlib_version("transformers")
    assert text.sweep_text(results) == (
        "c       differs: layer 1: 3 not 4\n"
        "a       exact: 1 dynamic; no static cache: no room\n"
        "b       exact: 1 dynamic, 1 static\n"
        "longer  not built: ValueError: no\n"
        "\n"
        f"2 exact, 1 differs, 1 not built: 4 exact comparisons with transformers {version}.\n"
    )


def importlib_version(name: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(name)


def test_both_caches_with_prompts_shorter_and_longer_than_the_window() -> None:
    assert [run.name for run in runs(8)] == [
        "dynamic 5+3",
        "dynamic 19+3",
        "static 5+3",
        "static 19+3",
    ]


def test_a_prediction_that_is_wrong_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsize.verify import trial
    from kvsize.verify.toys import Dims, toy_config

    monkeypatch.setattr(trial, "tensors", lambda model, request: [])
    raw = toy_config("llama", Dims())
    (outcome,) = trial.trial("llama", raw, [Run("dynamic", 5, 3)], decode=False)
    assert outcome == Outcome(
        "differs", "whole, dynamic 5+3", "layer 0: layers predicted 0, real 4"
    )


def test_what_a_class_raises_is_the_reason() -> None:
    from kvsize.verify import trial

    raw = {"model_type": "llama", "hidden_size": 60, "num_attention_heads": 7}
    (outcome,) = trial.trial("llama", raw, [Run("dynamic", 5, 3)], decode=False)
    assert (outcome.status, outcome.case) == ("not built", "")
    assert "60" in outcome.detail


def test_a_hanging_type_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "trial", lambda *args, **kwargs: time.sleep(600))
    limits = workers.Limits(seconds=1, memory_bytes=8 << 30)
    (result,) = sweep.sweep(["llama"], {}, PLAIN, limits)
    assert (result.model_type, result.status) == ("llama", "not built")
    assert result.reason == "took longer than 1 s"


def test_known_results_are_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        os._exit(9)

    monkeypatch.setattr(sweep, "trial", fail)
    known = sweep.judged("gpt2", [case("exact")])
    found = list(sweep.sweep(["llama", "gpt2"], {"gpt2": known}, PLAIN))
    assert found[0] is known
    assert found[1].reason == "its process ended with 9"


# The state file.


def test_results_come_back_from_the_file(tmp_path: Path) -> None:
    state = State(tmp_path / "state.jsonl", variants.VARIANTS)
    assert state.results() == {}
    results = [sweep.judged("gpt2", [case("exact")]), sweep.judged("llama", [case("differs")])]
    for result in results:
        state.add(result)
    assert state.results() == {"gpt2": results[0], "llama": results[1]}


def test_results_of_other_runs_are_not_used(tmp_path: Path) -> None:
    """With fewer dimensions, or another transformers, the answer might be another."""
    file = tmp_path / "state.jsonl"
    State(file, variants.VARIANTS).add(sweep.judged("gpt2", [case("exact")]))
    assert State(file, variants.WIDE).results() == {}
    row = json.loads(file.read_text())
    row["for"]["versions"]["transformers"] = "4.57.6"
    file.write_text(json.dumps(row) + "\n")
    assert State(file, variants.VARIANTS).results() == {}


@pytest.mark.parametrize("line", ["{", "[]", "3", "{}", '{"for": 1}', "\x00"])
def test_a_corrupt_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "state.jsonl"
    state = State(file, PLAIN)
    state.add(sweep.judged("gpt2", [case("exact")]))
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(UsageError, match=r"state\.jsonl: line 2 is no result of") as raised:
        state.results()
    assert raised.value.hint == "delete that line, or name another file."


def test_a_state_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        State(tmp_path, PLAIN).results()
    with pytest.raises(UsageError, match="cannot be written"):
        State(tmp_path / "none" / "state.jsonl", PLAIN).add(sweep.judged("gpt2", []))


# The command.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all", "--only", "zzz"], "error: no model type of transformers contains 'zzz'.\n"),
        (["gpt2", "--all"], "error: verify takes one MODEL, or --all.\n"),
        ([], "error: no model is named, nor --all.\n"),
        (
            ["--all", "--ctx", "8k"],
            "error: --all chooses contexts, batches, caches and dtypes itself.\n",
        ),
        (["gpt2", "--only", "x"], "error: --only, --state and --wide belong to --all.\n"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    said = run(capsys, "verify", *arguments)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert said.err.startswith(message)


def test_a_difference_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the type, the tensor, and what it was predicted to be."""
    from kvsize.verify import trial

    monkeypatch.setattr(trial, "tensors", lambda model, request: [])
    said = run(capsys, "verify", "--all", "--only", "gpt2")
    assert (said.code, said.err) == (Exit.NO, "")
    assert said.out.startswith("gpt2  differs: layer 0: layers predicted 0, real 4\n\n0 exact, 1 ")


def _listen() -> None:
    """A shell starts what runs in the background deaf to SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "state.jsonl"
    command = [sys.executable, "-m", "kvsize", "verify", "--all", "--only", "gpt_"]
    command += ["--state", str(file), "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=_listen,  # noqa: PLW1509 - no thread is running
    ) as first:
        until = time.monotonic() + 100
        while not (file.exists() and file.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        first.send_signal(number)
        out, err = first.communicate(timeout=100)
    assert (first.returncode, out) == (Exit.INTERRUPTED, "")
    assert "Traceback" not in err
    before = file.read_text()
    done = [json.loads(line)["model_type"] for line in before.splitlines()]
    assert 0 < len(done) < 5
    second = subprocess.run(command, capture_output=True, check=False, timeout=400)
    assert second.returncode == 0
    found = [result["model_type"] for result in json.loads(second.stdout)["types"]]
    assert found[: len(done)] == sorted(done)
    assert len(found) == len(set(found)) > len(done)
    assert file.read_text().startswith(before)
