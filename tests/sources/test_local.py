"""Files, folders and standard input: what is read, and what each kind of bad input says."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import kvsize
from kvsize.sources import find, parsing

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
AGAIN = "correct the file there, or fetch the published config.json again."
GIVE = "give the config.json of a model."
BESIDE = "give the config.json beside it."
NAME_ONE = "name a config.json, or a folder that holds one."
ELSEWHERE = "a model on the Hub is org/name; `kvsize presets` lists the built-in ones."


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: str, content: bytes | str | Mapping[str, object]) -> None:
    """Write a file, with the folders it needs; a mapping as JSON."""
    if isinstance(content, Mapping):
        content = json.dumps(content)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def told(source: object, kind: type[kvsize.KvsizeError] = kvsize.ConfigError) -> tuple[str, str]:
    """Message and hint of the error that loading `source` raises, whose exit code is checked."""
    with pytest.raises(kvsize.KvsizeError, match=r"\S") as caught:
        kvsize.load(source)  # type: ignore[arg-type]
    assert type(caught.value) is kind
    assert caught.value.exit_code == {kvsize.ConfigError: 3, kvsize.UsageError: 2}[kind]
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("typed", "name", "where"),
    [
        ("./config.json", "./config.json", "./config.json"),
        ("config.json", "config.json", "config.json"),
        ("./my-model", "./my-model", "./my-model/config.json"),
        ("./my-model/", "./my-model", "./my-model/config.json"),
        ("my-model", "my-model", "my-model/config.json"),
        ("some/where", "some/where", "some/where/config.json"),
        ("a/b/c/x.json", "a/b/c/x.json", "a/b/c/x.json"),
        (".", ".", "./config.json"),
        ("~/my-model", "~/my-model", "~/my-model/config.json"),
    ],
)
def test_paths(typed: str, name: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv("USERPROFILE", str(Path.cwd()))
    for file in ("config.json", "my-model/config.json", "some/where/config.json", "a/b/c/x.json"):
        write(file, LLAMA)
    raw = find(typed)
    assert (raw.name, raw.where, raw.source, raw.config) == (name, where, "file", LLAMA)
    assert kvsize.load(typed).name == name


def test_a_path_object_is_always_a_path() -> None:
    write("plain", LLAMA)
    assert find(Path("plain")).source == "file"
    assert told(Path("org/name")) == (
        "org/name: there is no such file or folder.",
        f"there is no folder org either; {ELSEWHERE}",
    )


def test_a_folder_here_hides_a_hub_id_as_in_transformers() -> None:
    write("org/name/config.json", LLAMA)
    assert find("org/name").source == "file"
    Path("org/empty").mkdir()
    assert told("org/empty") == (
        "org/empty is empty.",
        "give a folder that holds a model's config.json.",
    )


def test_only_a_model_folder_hides_a_preset() -> None:
    write("llama-3.1-70b", b"")
    assert find("llama-3.1-70b").source == "preset"
    Path("llama-3.1-70b").unlink()
    Path("llama-3.1-70b").mkdir()
    assert find("llama-3.1-70b").source == "preset"
    write("llama-3.1-70b/config.json", LLAMA)
    assert find("llama-3.1-70b").source == "file"


def test_a_bare_name_that_no_preset_has_is_what_is_here() -> None:
    write("mine", LLAMA)
    assert find("mine").source == "file"
    write("tok/tokenizer.json", b"{}")
    assert told("tok")[0] == "tok has no config.json: it holds a tokenizer only."


def test_a_byte_order_mark_is_let_in() -> None:
    write("config.json", b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert find("./config.json").config == LLAMA


def test_infinity_is_let_in_where_it_is_no_dimension() -> None:
    write("config.json", json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    assert len(kvsize.load("./config.json").layers) == 2


def test_a_key_twice_with_one_value_is_let_in() -> None:
    write("config.json", json.dumps(LLAMA)[:-1] + ', "model_type": "llama"}')
    assert find("./config.json").config == LLAMA


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"", "there is nothing in it.", GIVE),
        (b" \n\t ", "there is nothing in it.", GIVE),
        (b"\xef\xbb\xbf", "there is nothing in it.", GIVE),
        (b"[1, 2]", "the JSON is a list, not an object.", GIVE),
        (b'"config"', "the JSON is a string, not an object.", GIVE),
        (b"true", "the JSON is true, not an object.", GIVE),
        (b"null", "the JSON is null, not an object.", GIVE),
        (b"12", "the JSON is 12, not an object.", GIVE),
        (b"NaN", "the JSON is NaN, not an object.", GIVE),
        (
            b'{\n  "a": 1\n  "b": 2\n}',
            "not JSON at line 3, column 3: expecting ',' delimiter.",
            AGAIN,
        ),
        (b"hidden_size: 4096\n", "not JSON at line 1, column 1: expecting value.", AGAIN),
        (b'{"a": 1}\n{"a": 2}', "not JSON at line 2, column 1: extra data.", AGAIN),
        (
            b'{"a": "x\ny"}',
            "not JSON at line 1, column 9: invalid control character at.",
            AGAIN,
        ),
        (
            '{"model_type": "é"}'.encode("latin-1"),
            "byte 16 is not UTF-8 text.",
            "give a config.json saved as UTF-8.",
        ),
        ("{}".encode("utf-16"), "this is UTF-16 text, not JSON.", "save it as UTF-8."),
        (b"\xfe\xff\0{\0}", "this is UTF-16 text, not JSON.", "save it as UTF-8."),
        (b"{}\0\0", "this is binary data, not JSON.", GIVE),
        (
            b"GGUF\x03\0\0\0",
            "this is a GGUF model, not JSON.",
            "give it a name that ends in .gguf, and kvsize reads its header.",
        ),
        (
            (40).to_bytes(8, "little") + b'{"weight":{"dtype":"F32"}}',
            "this is a safetensors file, not JSON.",
            "give the config.json that belongs to it, or the folder that holds both.",
        ),
        (
            b"PK\x03\x04archive/data.pkl",
            "this is a zip archive (torch keeps weights in one), not JSON.",
            "give the config.json that belongs to it, or the folder that holds both.",
        ),
        (
            b"\x80\x04\x95.",
            "this is a pickle (torch keeps weights in one), not JSON.",
            "give the config.json that belongs to it, or the folder that holds both.",
        ),
        (b"\x1f\x8b\x08", "this is gzip-compressed data, not JSON.", "unpack it first."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "this is a Git LFS pointer to the file, not JSON.",
            "run `git lfs pull` to get it.",
        ),
        (
            b"\n<!doctype html>",
            "this is a web page, not JSON.",
            "download the raw file: its address has /resolve/ in place of /blob/.",
        ),
        (
            b'{"hidden_size": 1, "x": {"hidden_size": 2}, "hidden_size": 3}',
            "the key `hidden_size` stands twice in one object, with two values.",
            "the file contradicts itself; keep the one that is meant.",
        ),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number in it has thousands of digits.", AGAIN),
        (
            rb'{"model_type": "\ud800"}',
            r"a string holds half a surrogate pair (\ud800 to \udfff).",
            AGAIN,
        ),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "the JSON nests more than 64 deep.", GIVE),
        (b'{"a":' * 1_000 + b"1" + b"}" * 1_000, "the JSON nests more than 64 deep.", GIVE),
        (b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}", "the JSON nests more than 64 deep.", GIVE),
    ],
)
def test_content_that_is_no_config(content: bytes, message: str, hint: str) -> None:
    write("config.json", content)
    assert told("./config.json") == (f"./config.json: {message}", hint)


def test_nesting_up_to_the_limit_is_read() -> None:
    nested = '{"a":' * 63 + "1" + "}" * 63
    write("config.json", json.dumps(LLAMA)[:-1] + f', "deep": {nested}}}')
    assert kvsize.load("./config.json").model_type == "llama"


def test_a_surrogate_pair_is_one_character() -> None:
    write("config.json", json.dumps({**LLAMA, "note": "😀"}))
    assert find("./config.json").config["note"] == "😀"


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (
            {"peft_type": "LORA", "base_model_name_or_path": "org/base"},
            "an adapter's config",
            "the cache is its base model's: `kvsize org/base`.",
        ),
        (
            {"peft_type": "LORA", "base_model_name_or_path": None},
            "an adapter's config",
            "the cache is its base model's; give that model's name.",
        ),
        ({"metadata": {}, "weight_map": {}}, "an index of weight files", BESIDE),
        (
            {"_class_name": "X", "_diffusers_version": "0.30"},
            "a part of a diffusers pipeline",
            "a diffusion pipeline keeps no KV cache; give a language model.",
        ),
        (
            {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8},
            "its maker's own params.json",
            "fetch the model in transformers' format; its repo on the Hub has a config.json.",
        ),
        ({"tokenizer_class": "LlamaTokenizer"}, "a tokenizer's config", BESIDE),
        ({"added_tokens": [], "model": {}}, "a tokenizer", BESIDE),
        ({"image_processor_type": "X"}, "an image processor's config", BESIDE),
        ({"do_sample": True, "top_p": 0.9}, "a generation config", BESIDE),
    ],
)
def test_other_json_files_of_a_model(content: dict[str, object], what: str, hint: str) -> None:
    write("file.json", content)
    assert told("file.json") == (f"file.json: this is {what}, not a model's config.json.", hint)
    assert told(content) == (f"the mapping: this is {what}, not a model's config.json.", hint)


def test_a_huge_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write("config.json", b"{")
    os.truncate("config.json", 200 * 2**20)
    monkeypatch.setattr(parsing, "read_stream", None)
    assert told("./config.json") == (
        "./config.json: 200.00 MiB is more than any config.json has; kvsize reads up to 20.00 MiB.",
        GIVE,
    )


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_endless_stream_is_read_no_further_than_the_limit() -> None:
    assert told("/dev/zero") == (
        "/dev/zero: the input is more than any config.json has; kvsize reads up to 20.00 MiB.",
        GIVE,
    )


@pytest.mark.parametrize(
    ("files", "told_of", "hint"),
    [
        (
            {"Q-Q8_0.gguf": "", "Q-Q4_K_M.gguf": "", "mmproj-F16.gguf": ""},
            "it holds GGUF files, Q-Q4_K_M.gguf, Q-Q8_0.gguf",
            "name one of them: `kvsize ./m/Q-Q4_K_M.gguf`.",
        ),
        (
            {f"Q-0000{i}-of-00004.gguf": "" for i in (1, 2, 3, 4)},
            "it holds GGUF files, Q-00001-of-00004.gguf",
            "name one of them: `kvsize ./m/Q-00001-of-00004.gguf`.",
        ),
        (
            {f"{name}.gguf": "" for name in ("a b", "c", "d", "e", "f")},
            "it holds GGUF files, a b.gguf, c.gguf, d.gguf and 2 more",
            "name one of them: `kvsize './m/a b.gguf'`.",
        ),
        (
            {"adapter_config.json": '{"base_model_name_or_path": "org/base"}'},
            "it holds an adapter",
            "the cache is its base model's: `kvsize org/base`.",
        ),
        (
            {"adapter_config.json": "not JSON", "adapter_model.safetensors": ""},
            "it holds an adapter",
            "the cache is its base model's; give that model's name.",
        ),
        (
            {"model_index.json": "{}", "unet/config.json": "{}"},
            "it is a diffusers pipeline",
            "a diffusion pipeline keeps no KV cache; give a language model.",
        ),
        (
            {"mlc-chat-config.json": "{}"},
            "it is compiled for MLC",
            "name the model that it was made from.",
        ),
        (
            {"genai_config.json": "{}", "model.onnx": ""},
            "it is for ONNX Runtime",
            "name the model that it was made from.",
        ),
        (
            {"modules.json": "[]", "0_Transformer/config.json": "{}"},
            "it is a sentence-transformers model",
            "an embedding model keeps no KV cache; give a language model.",
        ),
        (
            {"params.json": "{}", "consolidated.safetensors": "", "tokenizer.model": ""},
            "it is in its maker's original format (params.json)",
            "fetch the model in transformers' format; its repo on the Hub has a config.json.",
        ),
        (
            {"b/config.json": "{}", "a/config.json": "{}"},
            "the file is further down, a/config.json, b/config.json",
            "name it: `kvsize ./m/a/config.json`.",
        ),
        (
            {"model.safetensors": "", "tokenizer.json": ""},
            "it holds weights only",
            "get the config.json of the same model, and name that.",
        ),
        (
            {"tokenizer.json": "", "tokenizer_config.json": "", "README.md": ""},
            "it holds a tokenizer only",
            "name the model that the tokenizer belongs to.",
        ),
    ],
)
def test_a_folder_without_a_config(files: dict[str, str], told_of: str, hint: str) -> None:
    for name, content in files.items():
        write(f"m/{name}", content)
    assert told("./m") == (f"./m has no config.json: {told_of}.", hint)


def test_a_folder_of_anything_else_is_told_by_its_names() -> None:
    for name in ("d.txt", "c.txt", "a.txt", "b.txt"):
        write(f"m/{name}", "")
    Path("m/loop").symlink_to("loop")
    assert told("m/") == (
        "m/ has no config.json, only a.txt, b.txt, c.txt and 2 more.",
        "name a model's own folder or repo, or its config.json.",
    )


def test_a_mistyped_path_is_answered_with_near_names() -> None:
    write("my-model/config.json", LLAMA)
    assert told("./my-modle") == (
        "./my-modle: there is no such file or folder.",
        f"did you mean my-model? {ELSEWHERE}",
    )
    assert told("my-model/confg.json") == (
        "my-model/confg.json: there is no such file or folder.",
        f"did you mean config.json? {ELSEWHERE}",
    )
    assert told("/nowhere/at/all.json") == (
        "/nowhere/at/all.json: there is no such file or folder.",
        f"there is no folder /nowhere/at either; {ELSEWHERE}",
    )


def test_paths_that_lead_nowhere() -> None:
    write("file.json", LLAMA)
    Path("link.json").symlink_to("gone.json")
    Path("loop.json").symlink_to("loop.json")
    Path("odd/config.json").mkdir(parents=True)
    assert told("link.json") == ("link.json links to a file that is gone.", NAME_ONE)
    assert told("./file.json/config.json") == (
        "./file.json/config.json: a part of this path is a file, not a folder.",
        NAME_ONE,
    )
    assert told("./odd") == (
        "./odd: its config.json is a folder.",
        "give a file with a model's config.",
    )
    long = f"./{'x' * 300}"
    assert told(long) == (f"{long}: it cannot be read (file name too long).", NAME_ONE)
    assert told("loop.json") == (
        "loop.json: it cannot be read (too many levels of symbolic links).",
        NAME_ONE,
    )


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write("config.json", LLAMA)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert told("./config.json") == (
        "./config.json: reading it is not permitted.",
        "make it readable: `chmod u+r ./config.json`.",
    )


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        (
            "",
            "the model's name is empty.",
            "give a preset (`kvsize presets`), org/name, a path, or - for stdin.",
        ),
        (
            " \t",
            "the model's name is empty.",
            "give a preset (`kvsize presets`), org/name, a path, or - for stdin.",
        ),
        (
            "llama\x1b[2J",
            r"'llama\x1b[2J' holds control characters, and is no model's name.",
            "to give a config's content, pipe it in: `kvsize - < config.json`.",
        ),
        (
            "a\0b",
            r"'a\x00b' holds control characters, and is no model's name.",
            "to give a config's content, pipe it in: `kvsize - < config.json`.",
        ),
        (
            "x" * 5000,
            f"'{'x' * 40}…' has 5,000 characters, and is no model's name.",
            "to give a config's content, pipe it in: `kvsize - < config.json`.",
        ),
        (
            "https://huggingface.co/org/name/tree/main",
            (
                "https://huggingface.co/org/name/tree/main is an address; "
                "a model on the Hub is named org/name."
            ),
            "give org/name.",
        ),
        (
            "hf://org/name",
            "hf://org/name is an address; a model on the Hub is named org/name.",
            "give org/name.",
        ),
        (
            5,
            "a model is named by a string, a path or a mapping, not by int.",
            "of a transformers config object, give the `to_dict()`.",
        ),
        (
            None,
            "a model is named by a string, a path or a mapping, not by NoneType.",
            "of a transformers config object, give the `to_dict()`.",
        ),
    ],
)
def test_names_that_cannot_be_meant(source: object, message: str, hint: str) -> None:
    assert told(source, kvsize.UsageError) == (message, hint)


def test_a_file_name_that_is_no_text_is_escaped() -> None:
    name = os.fsdecode(b"./caf\xe9")
    try:
        write(f"{name}/config.json", LLAMA)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert find(name).name == "./caf\\udce9"


def piped(data: bytes) -> subprocess.CompletedProcess[bytes]:
    """`kvsize.load("-")` in a process of its own, with `data` on its standard input."""
    code = (
        "import kvsize\n"
        "try: model = kvsize.load('-')\n"
        "except kvsize.KvsizeError as e: print(int(e.exit_code), e.message, e.hint, sep='|')\n"
        "else: print(model.name, model.source, model.where, len(model.layers), sep='|')\n"
    )
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", code],
        input=data,
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps(LLAMA).encode(), "stdin|stdin|standard input|2"),
        (b"\xef\xbb\xbf" + json.dumps(LLAMA).encode(), "stdin|stdin|standard input|2"),
        (b"", f"3|standard input: there is nothing in it.|{GIVE}"),
        (
            b"GGUF",
            (
                "3|standard input: this is a GGUF model, not JSON.|"
                "give it a name that ends in .gguf, and kvsize reads its header."
            ),
        ),
        (b"\xff", "3|standard input: byte 0 is not UTF-8 text.|give a config.json saved as UTF-8."),
        (
            b" " * (20 * 2**20 + 1),
            (
                "3|standard input: the input is more than any config.json has; "
                f"kvsize reads up to 20.00 MiB.|{GIVE}"
            ),
        ),
    ],
)
def test_standard_input(data: bytes, said: str) -> None:
    done = piped(data)
    assert done.stderr == b""
    assert done.stdout.decode().splitlines() == [said]


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    message = (
        "standard input cannot be read.",
        "pipe a config.json into kvsize, or name the file.",
    )
    monkeypatch.setattr(sys, "stdin", None)
    assert told("-") == message
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    monkeypatch.setattr(sys, "stdin", closed)
    assert told("-") == message


def test_a_mapping_is_taken_as_it_is() -> None:
    raw = find({**LLAMA, "_name_or_path": "org/name"})
    assert (raw.name, raw.where, raw.source) == ("org/name", "the mapping", "mapping")
    assert find({**LLAMA, "_name_or_path": ""}).name == "config"
    assert kvsize.load(LLAMA).layers == kvsize.load({**LLAMA, "head_dim": 16}).layers
