"""A list of models: how it is read, and how the Hub is asked for many of them."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import program, run
from hub_server import Hub, serving

from kvsize import lists
from kvsize.errors import UsageError
from kvsize.lists import Entry

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
}
# 2 layers × 2 (keys, values) × 2 heads × 16 × 2 bytes
TOKEN_BYTES = 256


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as running:
        yield running


def table(hub: Hub, folder: Path, names: list[str], *options: str, **env: str):
    """`kvsize table` as a program, with the real client and an empty Hub cache."""
    file = folder / "models.txt"
    file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub"), "HF_HUB_ETAG_TIMEOUT": "1"}
    said = program("table", "models.txt", "--json", *options, cwd=folder, **home, **env)
    rows = json.loads(said.out)["rows"] if said.out else []
    return said.code, [(row["model"], row["token_bytes"]) for row in rows], said.err


# -- the Hub ---------------------------------------------------------------------------------------
def test_calls_run_side_by_side_bounded_and_keep_their_order(hub, tmp_path):
    names = [f"acme/model-{i:02}" for i in range(24)]
    for i, name in enumerate(names):
        hub.add(name, {"config.json": {**LLAMA, "num_hidden_layers": 1 + i}})
    hub.delay_seconds = 0.05
    code, rows, err = table(hub, tmp_path, names, "--jobs", "4")
    assert (code, err) == (0, "")
    assert rows == [(name, (1 + i) * TOKEN_BYTES // 2) for i, name in enumerate(names)]
    assert hub.busiest == 4


def test_presets_and_files_among_them(hub, tmp_path):
    hub.add("acme/foo", {"config.json": LLAMA})
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    names = ["llama-3.1-70b", "acme/foo", "./config.json", "acme/foo"]
    code, rows, err = table(hub, tmp_path, names)
    assert (code, err) == (0, "")
    assert rows == [
        ("llama-3.1-70b", 327680),
        ("acme/foo", TOKEN_BYTES),
        ("./config.json", TOKEN_BYTES),
        ("acme/foo", TOKEN_BYTES),
    ]
    assert hub.requests().count("HEAD /acme/foo/resolve/main/config.json") <= 2  # client's own


def test_a_call_is_made_again_after_429_and_503(hub, tmp_path):
    for name in ("acme/busy", "acme/down", "acme/well"):
        hub.add(name, {"config.json": LLAMA})
    hub.troubles = {
        "acme/busy": [(429, {"Retry-After": "1"}), (429, {})],
        "acme/down": [(503, {}), (500, {})],
    }
    code, rows, err = table(hub, tmp_path, ["acme/busy", "acme/down", "acme/well"])
    assert (code, err) == (0, "")
    assert rows == [(f"acme/{name}", TOKEN_BYTES) for name in ("busy", "down", "well")]
    assert hub.troubles == {"acme/busy": [], "acme/down": []}


def test_the_patience_has_an_end(hub, tmp_path):
    hub.add("acme/foo", {"config.json": LLAMA})
    hub.troubles = {"acme/long": [(429, {"Retry-After": "3600"})] * 2, "acme/down": [(503, {})] * 9}
    code, rows, err = table(hub, tmp_path, ["acme/long", "acme/foo", "acme/down"])
    assert (code, rows) == (4, [("acme/foo", TOKEN_BYTES)])
    assert err.splitlines()[0] == (
        "error: models.txt:1: acme/long: the Hub takes no more requests from here for now (429)."
    )
    assert err.splitlines()[1].startswith("hint: wait 3600 seconds; ")
    assert err.splitlines()[2].endswith("has trouble of its own (503).")
    assert len(hub.troubles["acme/long"]) == 1  # asked once
    assert len(hub.troubles["acme/down"]) == 5  # asked four times


def test_a_model_that_fails_does_not_cost_the_others(hub, tmp_path):
    hub.add("acme/foo", {"config.json": LLAMA})
    hub.add("acme/bad", {"config.json": {**LLAMA, "num_key_value_heads": 3}})
    names = ["no-such", "acme/foo", "acme/missing", "acme/bad", "a/b/c", "qwen3-8b"]
    code, rows, err = table(hub, tmp_path, names)
    assert code == 2
    assert rows == [("acme/foo", TOKEN_BYTES), ("qwen3-8b", 147456)]
    told = err.splitlines()
    assert [line.split(": ")[:3] for line in told[::2]] == [
        ["error", "models.txt:1", "no preset named 'no-such'."],
        ["error", "models.txt:3", "acme/missing"],
        ["error", "models.txt:4", "acme/bad"],
        ["error", "models.txt:5", "a/b/c"],
    ]
    assert all(line.startswith("hint: ") for line in told[1::2])


def test_a_model_the_engine_refuses_and_a_guess(hub, tmp_path):
    hub.add("acme/foo", {"config.json": {**LLAMA, "torch_dtype": None}})
    code, rows, err = table(hub, tmp_path, ["acme/foo", "qwen3-8b"], "--strict")
    assert (code, rows) == (3, [("qwen3-8b", 147456)])
    assert err.startswith("error: models.txt:1: acme/foo: config.json: no dtype is stated")


def test_offline_asks_nothing(hub, tmp_path):
    hub.add("acme/foo", {"config.json": LLAMA})
    code, rows, err = table(hub, tmp_path, ["acme/foo", "qwen3-8b"], "--offline")
    assert (code, rows) == (4, [("qwen3-8b", 147456)])
    assert err.startswith("error: models.txt:1: acme/foo: config.json is not in the Hub cache")
    assert hub.asked == []


def test_without_a_hub_each_fails_at_once(hub, tmp_path):
    env = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    file = tmp_path / "models.txt"
    file.write_text("acme/a\nacme/b\nqwen3-8b\n", encoding="utf-8")
    said = program("table", str(file), cwd=tmp_path, HF_HOME=str(tmp_path / "hub"), **env)
    assert said.code == 4
    assert said.err.count("there is no connection to http://127.0.0.1:9") == 2
    assert "qwen3-8b" in said.out


def test_a_terminal_has_a_bar_and_a_pipe_has_none(hub, tmp_path):
    for i in range(6):
        hub.add(f"acme/m{i}", {"config.json": LLAMA})
    hub.delay_seconds = 0.2
    (tmp_path / "models.txt").write_text("".join(f"acme/m{i}\n" for i in range(6)), "utf-8")
    master, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "kvsize", "table", "models.txt", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hub"),
            "TERM": "xterm",
        },
    )
    os.close(follower)
    out, _ = child.communicate(timeout=60)
    shown = b""
    while select.select([master], [], [], 0.2)[0]:
        try:
            shown += os.read(master, 65536)
        except OSError:  # Linux says so at the end
            break
    os.close(master)
    assert child.returncode == 0
    assert "━" in shown.decode()
    assert out.decode().count("acme/m") == 6


# -- the list --------------------------------------------------------------------------------------
def listed(tmp_path: Path, content: str | bytes, name: str = "models.txt") -> list[Entry]:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [Entry(each.name, each.place.removeprefix(str(file))) for each in lists.read(str(file))]


def test_comments_blank_lines_and_any_line_ends(tmp_path):
    content = "\ufeff# all\r\n\r\n  org/name@v1#2  # why\r\n./a#b.json\n"
    assert listed(tmp_path, content) == [Entry("org/name@v1#2", ":3"), Entry("./a#b.json", ":4")]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("qwen3-8b,8\nqwen3-32b,32\n", ["qwen3-8b", "qwen3-32b"]),
        ("size,Model\n8,qwen3-8b\n\n32,qwen3-32b\n9\n", ["qwen3-8b", "qwen3-32b"]),
        ('model\n"./a, b/config.json"\n', ["./a, b/config.json"]),
    ],
)
def test_a_column_of_a_csv_file(tmp_path, content, names):
    assert [each.name for each in listed(tmp_path, content, "models.csv")] == names


def test_our_own_csv_is_a_list(tmp_path, capsys):
    said = run(capsys, "qwen3-8b", "qwen3-32b", "--ctx", "1k", "--format", "csv")
    assert [each.name for each in listed(tmp_path, said.out, "report.csv")] == [
        "qwen3-8b",
        "qwen3-32b",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "names no model"),
        ("# nothing\n\n", "names no model"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        ("qwen3-8b\n-\n", r":2: a list cannot name standard input \(-\)"),
    ],
)
def test_what_is_no_list(tmp_path, content, message):
    with pytest.raises(UsageError, match=message):
        listed(tmp_path, content)


def test_a_file_that_is_not_there_and_a_folder(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.txt: no such file or directory\.$"):
        lists.read(str(tmp_path / "nothing.txt"))
    with pytest.raises(UsageError, match=r": is a directory\.$"):
        lists.read(str(tmp_path))


def test_an_empty_name():
    with pytest.raises(UsageError, match=r"^the name of the list is empty\.$"):
        lists.read(" ")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"qwen3-8b\n")))
    assert lists.read("-") == [Entry("qwen3-8b", "standard input:1")]


# -- the table -------------------------------------------------------------------------------------
def test_a_line_for_each_model_without_parts_and_remarks(capsys, tmp_path):
    file = tmp_path / "models.txt"
    file.write_text("gemma-3-27b\ndeepseek-v3\n", encoding="utf-8")
    assert run(capsys, "table", str(file)) == (
        0,
        """\
cache  transformers 5.24.0 DynamicCache
dtype  bfloat16

model        attention  context  per token  per sequence  as MHA
gemma-3-27b  GQA 32:16   32,768  80.00 KiB      2.91 GiB  10.67×
deepseek-v3  MLA         32,768  68.62 KiB      2.14 GiB  24.89×
""",
        "",
    )


def test_a_guess_is_told_all_the_same(capsys, tmp_path):
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    file = tmp_path / "models.txt"
    file.write_text(f"qwen3-8b\n{tmp_path}/config.json\n", encoding="utf-8")
    said = run(capsys, "table", str(file), "--ctx", "1k")
    assert said.code == 0
    assert "warning KV006: " in said.out
    assert "KV001" not in said.out


def test_csv_has_everything(capsys, tmp_path):
    file = tmp_path / "models.txt"
    file.write_text("gemma-3-27b\n", encoding="utf-8")
    said = run(capsys, "table", str(file), "--format", "csv")
    assert "sliding window:52:435781632;full attention:10:2684354560" in said.out
    assert "KV001;KV002;KV003;KV009" in said.out


def test_where_all_fail_a_file_stays_as_it_is(capsys, tmp_path):
    file, kept = tmp_path / "models.txt", tmp_path / "out.txt"
    file.write_text("no-such\n", encoding="utf-8")
    kept.write_text("before", encoding="utf-8")
    said = run(capsys, "table", str(file), "--output", str(kept))
    assert (said.code, said.out, kept.read_text("utf-8")) == (2, "", "before")


def test_what_is_wrong_with_all_is_told_once(capsys, tmp_path):
    file = tmp_path / "models.txt"
    file.write_text("qwen3-8b\n\nqwen3-32b\ngemma-3-27b\n", encoding="utf-8")
    assert run(capsys, "table", str(file), "-o", "frob=1") == (
        2,
        "",
        f"error: {file}:1 and 2 more: engine transformers has no option 'frob'.\n"
        "hint: `kvsize engines transformers` lists them.\n",
    )
    said = run(capsys, "table", "nothing.txt", "--engine", "vlm")
    assert said.err.startswith("error: no engine named 'vlm'.\n")


@pytest.mark.parametrize("jobs", ["0", "65", "many"])
def test_jobs_are_bounded(capsys, tmp_path, jobs):
    said = run(capsys, "table", "models.txt", "--jobs", jobs)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: --jobs is {jobs}" if jobs == "65" else "error: --jobs is '")
