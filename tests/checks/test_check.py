"""`kvsize check` from the file to its exit code: each key, each mistake, each format."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
from command import run

from kvsize.checks.schema import FILE, generated

GOOD = """\
# Ours.
[[check]]
name = "small"
model = "llama-3.1-8b"
ctx = "32k"
[check.expect]
max_kv_per_sequence = "4GiB"
token_bytes = 131072   # pinned
"""


def check(text: str, **changes: str) -> str:
    """A file with one check of llama-3.1-8b, `text` under its name."""
    expect = changes.get("expect", 'max_total = "4GiB"')
    return f'[[check]]\nmodel = "llama-3.1-8b"\nctx = "32k"\n{text}\n[check.expect]\n{expect}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return tmp_path


def test_all_hold(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kvsize.toml").write_text(GOOD, "utf-8")
    said = run(capsys, "check")
    assert said.code == 0
    assert said.err == ""
    assert said.out == (
        "ok  small\n"
        "      llama-3.1-8b, transformers 5.24.0, bfloat16, 1 × 32,768 tokens\n"
        "  ok    max_kv_per_sequence  asked 4.00 GiB                found 4.00 GiB\n"
        "  ok    token_bytes          asked 128.00 KiB (131,072 B)  found 128.00 KiB (131,072 B)\n"
        "\n"
        "1 check holds.\n"
    )


def test_one_does_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kvsize.toml").write_text(GOOD.replace("4GiB", "3GiB"), "utf-8")
    said = run(capsys, "check")
    assert said.code == 1
    assert said.out.splitlines()[2:4] == [
        "  FAIL  max_kv_per_sequence  asked 3.00 GiB                found 4.00 GiB",
        "        1.00 GiB too much.",
    ]
    assert said.out.splitlines()[-1] == "1 check: 1 does not."


def test_pyproject_above_is_found(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[project]\nname = "x"\n\n' + GOOD.replace("[[check]]", "[[tool.kvsize.check]]").replace(
        "[check.expect]", "[tool.kvsize.check.expect]"
    )
    (here / "pyproject.toml").write_text(text, "utf-8")
    (here / "a" / "b").mkdir(parents=True)
    # Another tool's pyproject.toml on the way is passed by.
    (here / "a" / "pyproject.toml").write_text('[project]\nname = "y"\n', "utf-8")
    monkeypatch.chdir(here / "a" / "b")
    said = run(capsys, "check", "--json")
    told = json.loads(said.out)
    assert said.code == 0
    assert told["file"] == "../../pyproject.toml"
    assert [each["line"] for each in told["checks"][0]["assertions"]] == [10, 11]


def test_a_path_is_meant_from_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64}
    config |= {"num_attention_heads": 4, "torch_dtype": "bfloat16", "max_position_embeddings": 64}
    (here / "sub").mkdir()
    (here / "sub" / "config.json").write_text(json.dumps(config), "utf-8")
    (here / "sub" / "kvsize.toml").write_text(
        '[[check]]\nmodel = "config.json"\nexpect = { token_bytes = 512, total_bytes = 32768 }\n',
        "utf-8",
    )
    said = run(capsys, "check", "--config", "sub/kvsize.toml", "--json")
    assert said.code == 0
    assert json.loads(said.out)["checks"][0]["model"] == "./sub/config.json"


MEMORY = 'engine = "vllm"\nkv_memory = "40GiB"\nsequences = 8'


@pytest.mark.parametrize(
    ("key", "good", "bad", "found"),
    [
        ("fits", "true", "false", "true"),
        ("min_headroom", '"19.99%"', '"20%"', "19.99%"),
        ("min_sequences", "9", "10", "9"),
        ("min_context", "40944", "40945", "40,944"),
        ("max_kv_per_token", "131072", "131071", "128.00 KiB"),
        ("max_total", '"32GiB"', '"31GiB"', "32.00 GiB"),
        ("total_bytes", "34359738368", "1", "32.00 GiB (34,359,738,368 B)"),
        ("attention", '"GQA"', '"MHA"', "GQA"),
        ("layers", "32", "31", "32"),
        ("num_key_value_heads", "8", "32", "8"),
        ("head_dim", "128", "64", "128"),
        ("context_limit", "131072", "1", "131,072"),
    ],
)
def test_each_assertion(
    key: str,
    good: str,
    bad: str,
    found: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for value, code in ((good, 0), (bad, 1)):
        text = check(MEMORY, expect=f"{key} = {value}")
        (here / "kvsize.toml").write_text(text, "utf-8")
        said = run(capsys, "check", "--json")
        (assertion,) = json.loads(said.out)["checks"][0]["assertions"]
        assert (said.code, assertion["holds"]) == (code, code == 0)
        assert assertion["found_text"] == found


@pytest.mark.parametrize(
    ("sequences", "found"), [(11, "true"), (12, "not sure"), (14, "not sure"), (15, "false")]
)
def test_an_estimate_holds_only_at_both_ends(
    sequences: int, found: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for expected in ("true", "false"):
        text = f'gpu = "h100"\nsequences = {sequences}\nengine = "vllm"'
        (here / "kvsize.toml").write_text(check(text, expect=f"fits = {expected}"), "utf-8")
        said = run(capsys, "check", "--json")
        (assertion,) = json.loads(said.out)["checks"][0]["assertions"]
        assert assertion["found_text"] == found
        assert said.code == int(expected != found)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            check('gpuu = "h100"'),
            "kvsize.toml:4: unknown key `gpuu`.",
            "did you mean gpu",
        ),
        (
            check("", expect="max_totl = 1"),
            "kvsize.toml:6: unknown key `max_totl`.",
            "did you mean max_total?",
        ),
        ("[[chek]]\n", "kvsize.toml:1: unknown key `chek`.", "did you mean check?"),
        ("", "kvsize.toml:1: there are no checks.", "write one [[check]] for each check."),
        ("check = 3\n", "kvsize.toml:1: `check` is 3.", "write one [[check]] for each check."),
        (check("sequences = 0"), "kvsize.toml:4: `sequences` is 0.", "it is a whole number of"),
        (check("strict = 1"), "kvsize.toml:4: `strict` is 1.", "it is true or false."),
        (
            check("model = 3").replace('model = "llama-3.1-8b"\n', ""),
            "kvsize.toml:3: `model`",
            "it",
        ),
        (check('ctx = "32q"').replace('ctx = "32k"\n', ""), "kvsize.toml:3: `ctx`: '32q' is", ""),
        (check('gpu = "h1000"'), "kvsize.toml:4: `gpu`: ", ""),
        (
            check("", expect="fits = true"),
            "kvsize.toml:6: `fits` is asked, but no memory is stated.",
            "give gpu, gpu_memory or kv_memory; sizes need none.",
        ),
        (
            check('gpu = "h100"\ngpu_memory = "24GiB"'),
            "kvsize.toml:5: `gpu` and `gpu_memory` both say what memory there is.",
            "leave out one.",
        ),
        (check("gpus = 2"), "kvsize.toml:4: `gpus` changes nothing without a memory.", "give gpu"),
        ("[[check]]\nmodel = 'gpt2'\n", "kvsize.toml:1: a check expects nothing.", "write"),
        (check("").replace('model = "llama-3.1-8b"\n', ""), "kvsize.toml:1: a check has no", ""),
        (GOOD + GOOD, "kvsize.toml:11: two checks are named 'small'; the other is in line 2.", ""),
        ("a = \n", "kvsize.toml: not TOML: ", "correct the file"),
    ],
)
def test_a_wrong_file_is_exit_2_with_its_line(
    text: str, message: str, hint: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "kvsize.toml").write_text(text, "utf-8")
    said = run(capsys, "check")
    assert (said.code, said.out) == (2, "")
    first, second = said.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert second.startswith(f"hint: {hint}")


def test_every_check_is_run_and_a_failure_keeps_its_code(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "config.json").write_text("{", "utf-8")
    broken = check("").replace("llama-3.1-8b", "./config.json")
    wrong = check("", expect="layers = 1")
    (here / "kvsize.toml").write_text(broken + wrong + GOOD, "utf-8")
    said = run(capsys, "check", "--json")
    told = json.loads(said.out)
    assert (said.code, told["exit_code"]) == (3, 3)
    assert [each["holds"] for each in told["checks"]] == [False, False, True]


def test_github(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = here / "summary.md"
    summary.write_text("before\n", "utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    text = check('name = "a: 1%, b|c"', expect="layers = 31")
    (here / "kvsize.toml").write_text(text, "utf-8")
    said = run(capsys, "check", "--format", "github")
    assert said.code == 1
    assert said.out.splitlines()[-1] == (
        "::error file=kvsize.toml,line=6,title=a%3A 1%25%2C b|c::layers: asked 31, found 32. "
        "The figure is pinned, and has changed, to 1.032× what it was."
    )
    assert [line for line in said.out.splitlines() if line.startswith("::")] == [
        said.out.splitlines()[-1]
    ]
    assert summary.read_text("utf-8") == (
        "before\n**kvsize check**: 1 check: 1 does not.\n\n"
        "| | check | asked | found | why |\n| :--- | :--- | :--- | :--- | :--- |\n"
        "| ❌ | a: 1%, b\\|c | layers 31 | 32 | "
        "The figure is pinned, and has changed, to 1.032× what it was. |\n"
    )


def test_github_places_a_wrong_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kvsize.toml").write_text(check("strict = 1"), "utf-8")
    said = run(capsys, "check", "--format", "github")
    assert said.code == 2
    assert said.out == (
        "::error file=kvsize.toml,line=4,title=kvsize check::`strict` is 1. it is true or false.\n"
    )


def test_junit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = '<a & \\"b\\">\\u0001'
    text = check(f'name = "{name}"', expect="layers = 31\nhead_dim = 128")
    (here / "kvsize.toml").write_text(text + check("").replace("llama-3.1-8b", "nope-7b"), "utf-8")
    said = run(capsys, "check", "--format", "junit", "--output", "report.xml")
    assert (said.code, said.out) == (2, "")
    root = ET.parse(here / "report.xml").getroot()
    assert root.attrib == {"name": "kvsize check", "tests": "3", "failures": "1", "errors": "1"}
    bad, good, broken = root.iter("testcase")
    assert bad.attrib["name"] == '<a & "b">\\x01: layers'
    assert (bad.attrib["file"], bad.attrib["line"]) == ("kvsize.toml", "6")
    assert bad[0].tag == "failure"
    assert bad[0].attrib == {"message": "asked 31, found 32", "type": "layers"}
    assert list(good) == []
    assert (broken[0].tag, broken[0].attrib["type"]) == ("error", "UsageError")


def test_update_keeps_every_other_byte(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = here / "kvsize.toml"
    before = (
        "# head\r\n[[check]]\r\nmodel='llama-3.1-8b'\r\nctx = 1024\r\n[check.expect]\r\n"
        "token_bytes   =  1_0 # token_bytes = 5\r\n'layers' = 2\r\n\r\n"
        '[[check]]\r\nmodel = "gpt2"\r\nctx = 8\r\n'
        'expect = { attention = "GQA", sequence_bytes = "1KiB", max_total = "9GiB" }  # é\r\n'
    )
    file.write_bytes(before.encode())
    assert run(capsys, "check").code == 1
    assert run(capsys, "check", "--update").code == 0
    after = before.replace("1_0", "131072").replace("= 2\r", "= 32\r")
    after = after.replace('"GQA"', '"MHA"').replace('"1KiB"', "294912")
    assert file.read_bytes() == after.encode()
    assert run(capsys, "check", "--update").code == 0
    assert file.read_bytes() == after.encode()


def test_update_refuses_what_it_cannot_place(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = here / "kvsize.toml"
    one = '{ model = "llama-3.1-8b", ctx = 8, expect = { layers = 32 } }'
    text = f"check = [{one}, {one.replace('32', '3')}]\n"
    file.write_text(text, "utf-8")
    said = run(capsys, "check", "--update")
    assert said.code == 2
    assert said.err.startswith("error: kvsize.toml:1: a pinned figure is written in a way")
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--model llama-3.1-8b --ctx 32k --max-total 4GiB", 0, "1 check holds."),
        ("--model llama-3.1-8b --ctx 32k --max-total 3GiB", 1, "1 check: 1 does not."),
        ("--model llama-3.1-8b --kv-memory 40GiB --ctx 8k --no-fits", 1, "1 check: 1 does not."),
        ("--model llama-3.1-8b", 2, "error: nothing is expected."),
        ("--max-total 3GiB", 2, "error: --max-total states a check on the line, which needs"),
        ("--model llama-3.1-8b --fits", 2, "error: `fits` is asked, but no memory is stated."),
        ("--model x --update --max-total 1GiB", 2, "error: --update is about a file, and"),
        ("--model nope-7b --max-total 1GiB", 2, "error: no preset named 'nope-7b'."),
        ("--format tabel", 2, "error: --format is 'tabel'."),
        ("", 2, "error: there is no kvsize.toml here or above, and no pyproject.toml with"),
    ],
)
def test_on_the_line(
    words: str, code: int, told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(capsys, "check", *words.split())
    assert said.code == code
    line = said.err.splitlines()[0] if code == 2 else said.out.splitlines()[-1]
    assert line.startswith(told)


def test_the_schema_is_the_keys() -> None:
    assert FILE.read_text("utf-8") == generated()
    jsonschema.Draft7Validator.check_schema(json.loads(generated()))


LEGAL = [
    GOOD,
    check(
        'gpu = "h100"\nmemory_fraction = 0.9\nreserve = 0\ntp = 1\noptions = { block_size = 16 }'
    ),
    check(MEMORY, expect='fits = true\nmin_headroom = "10%"\nmin_context = 8'),
    check('kv_memory = "1.5 GB"', expect='min_headroom = "1GiB"'),
]
ILLEGAL = [
    *("sequences = 0", "sequences = true", 'sequences = "8"', "strict = 1", "gpuu = 1", "tp = 1.5"),
    *('name = ""', "kv_memory = -1", 'kv_memory = "1 foo"', "options = 3", "memory_fraction = 2"),
]


@pytest.mark.parametrize("text", LEGAL)
def test_schema_and_reader_take(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    jsonschema.validate(tomllib.loads(text), json.loads(generated()))
    (here / "kvsize.toml").write_text(text, "utf-8")
    assert run(capsys, "check").code in {0, 1}


@pytest.mark.parametrize("line", ILLEGAL)
def test_schema_and_reader_refuse(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tomllib

    text = check(line)
    with pytest.raises(jsonschema.ValidationError, match=r"."):
        jsonschema.validate(tomllib.loads(text), json.loads(generated()))
    (here / "kvsize.toml").write_text(text, "utf-8")
    assert run(capsys, "check").code == 2


def test_schema_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "--schema").out == generated()


# -- what must not be lost or half-written -----------------------------------------------------
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            check("", expect='attention = """MHA"""'),
            "kvsize.toml:6: a pinned figure is written in a way that cannot be rewritten in place.",
        ),
        (
            check("sequences = 999999999", expect="total_bytes = 1").replace('"32k"', '"999999m"'),
            "kvsize.toml:6: `total_bytes` is ",
        ),
        (
            check("", expect="layers = 1") + '[[check]]\nmodel = "nope-7b"\nexpect.layers = 1\n',
            "",
        ),
    ],
)
def test_update_writes_nothing_that_is_refused_next(
    text: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "kvsize.toml").write_text(text, "utf-8")
    said = run(capsys, "check", "--update")
    assert said.code == 2
    assert said.err.startswith(f"error: {told}" if told else "")
    assert (here / "kvsize.toml").read_text("utf-8") == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\ufeff" + GOOD, "kvsize.toml:1: it starts with a byte order mark."),
        ("a = " + "1" * 5000, "kvsize.toml: not TOML: exceeds the limit (4300 digits)"),
        (
            GOOD.replace('"llama-3.1-8b"', '"-"'),
            "kvsize.toml:2: the check of a file cannot read standard input.",
        ),
    ],
)
def test_files_that_no_toml_reader_expects(
    text: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "kvsize.toml").write_text(text, "utf-8")
    said = run(capsys, "check")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {told}")
    assert len(said.err.splitlines()) == 2


def test_a_summary_that_cannot_be_written_loses_no_annotation(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "nowhere" / "summary.md"))
    (here / "kvsize.toml").write_text(check('name = "a\\u001bb"', expect="layers = 31"), "utf-8")
    said = run(capsys, "check", "--format", "github")
    assert said.code == 1
    assert "::error file=kvsize.toml,line=6,title=a\\x1bb::layers: asked 31" in said.out
    assert "\x1b" not in said.out
