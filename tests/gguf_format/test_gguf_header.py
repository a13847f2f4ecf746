"""The header reader against files that are right, and against files that lie."""

import struct

import gguf
import pytest

from kvsize.errors import ConfigError
from kvsize.gguf import header as reader
from tests.gguf_files import (
    ARRAY,
    F64,
    I64,
    STRING,
    U8,
    U32,
    U64,
    file_of,
    header,
    metadata,
    pair,
    text,
)

KIB = 1024


class File:
    """Bytes behind a `read(offset, length)` that remembers what was asked of it."""

    def __init__(self, data):
        self.data = data
        self.asked = []

    def read(self, offset, length):
        self.asked.append((offset, length))
        return self.data[offset : offset + length]


def read(data, **kwargs):
    return reader.read_header(File(data).read, "x.gguf", **kwargs)


def vocabulary(tokens):
    data = struct.pack("<IQ", STRING, len(tokens)) + b"".join(text(token) for token in tokens)
    return pair("tokenizer.ggml.tokens", ARRAY, data)


def test_every_value_type_is_read():
    pairs = [
        pair("a", 0, struct.pack("<B", 200)),
        pair("b", 1, struct.pack("<b", -1)),
        pair("c", 2, struct.pack("<H", 60000)),
        pair("d", 3, struct.pack("<h", -2)),
        pair("e", 4, struct.pack("<I", 4_000_000_000)),
        pair("f", 5, struct.pack("<i", -3)),
        pair("g", 6, struct.pack("<f", 0.5)),
        pair("h", 7, b"\x01"),
        pair("i", STRING, text("née")),
        pair("j", ARRAY, struct.pack("<IQ", U32, 2) + struct.pack("<2I", 1, 2)),
        pair("k", U64, struct.pack("<Q", 2**63)),
        pair("l", I64, struct.pack("<q", -4)),
        pair("m", F64, struct.pack("<d", 0.25)),
    ]
    found = read(file_of(pairs)).metadata
    assert found == {
        "a": 200,
        "b": -1,
        "c": 60000,
        "d": -2,
        "e": 4_000_000_000,
        "f": -3,
        "g": 0.5,
        "h": True,
        "i": "née",
        "j": [1, 2],
        "k": 2**63,
        "l": -4,
        "m": 0.25,
    }


def test_version_2_is_read():
    assert read(file_of([], version=2)).metadata == {}


def test_vocabulary_is_skipped_and_what_follows_is_read():
    tokens = [f"tok{i}" for i in range(50_000)]
    pairs = [vocabulary(tokens), pair("llama.block_count", U32, struct.pack("<I", 3))]
    found = read(file_of(pairs))
    assert found.metadata == {"tokenizer.ggml.tokens": None, "llama.block_count": 3}
    assert found.stopped_at is None


def test_long_number_arrays_are_not_kept():
    data = struct.pack("<IQ", U8, 2000) + bytes(2000)
    pairs = [pair("a", ARRAY, data), pair("b", U32, struct.pack("<I", 1))]
    assert read(file_of(pairs)).metadata == {"a": None, "b": 1}


def test_stops_at_the_vocabulary_after_one_range():
    whole = bytearray(header(metadata()) + vocabulary(["x" * 100] * 10_000))
    struct.pack_into("<Q", whole, 16, len(metadata()) + 1)
    file = File(bytes(whole))
    found = reader.read_header(file.read, "x.gguf", enough=lambda _: True)
    assert found.stopped_at == "tokenizer.ggml.tokens"
    assert found.metadata == metadata()
    assert file.asked == [(0, 64 * KIB)]


def test_reads_past_the_vocabulary_when_a_key_is_missing():
    keys = metadata()
    late = keys.pop("llama.block_count")
    whole = bytearray(header(keys) + vocabulary(["x" * 100] * 10_000))
    whole += pair("llama.block_count", U32, struct.pack("<I", late))
    struct.pack_into("<Q", whole, 16, len(keys) + 2)
    file = File(bytes(whole))
    found = reader.read_header(file.read, "x.gguf", enough=lambda m: "llama.block_count" in m)
    assert found.stopped_at is None
    assert found.metadata["llama.block_count"] == late
    ranges = [(0, 64), (64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024)]
    assert file.asked == [(start * KIB, length * KIB) for start, length in ranges]


HOSTILE = {
    "no gguf": (b"PK\x03\x04" + bytes(40), "not a GGUF file"),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file"),
    "an old ggml file": (b"tjgg" + bytes(40), "not a GGUF file"),
    "empty": (b"", "ends at byte 0"),
    "only magic": (b"GGUF", "ends at byte 4"),
    "version 1": (file_of([], version=1), "GGUF version is 1"),
    "version 4": (file_of([], version=4), "GGUF version is 4"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
    "too many keys": (file_of([], count=2**63), "metadata keys"),
    "missing keys": (file_of([], count=1), "ends at byte 24"),
    "key of no bytes": (file_of([struct.pack("<Q", 0)]), "a key of 0 bytes"),
    "key as long as memory": (file_of([struct.pack("<Q", 2**60)]), "a key of"),
    "key that is no text": (file_of([struct.pack("<Q", 2) + b"\xff\xfe" + bytes(9)]), "UTF-8"),
    "the same key twice": (
        file_of([pair("a", U32, bytes(4)), pair("a", U32, bytes(4))]),
        "appears twice",
    ),
    "unknown type": (file_of([pair("a", 13, bytes(8))]), "unknown value type 13"),
    "endless string": (file_of([pair("a", STRING, struct.pack("<Q", 2**62))]), "past byte"),
    "string beyond the file": (file_of([pair("a", STRING, struct.pack("<Q", 999))]), "ends at"),
    "nested array": (
        file_of([pair("a", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(12))]),
        "an array of arrays",
    ),
    "array of unknown": (
        file_of([pair("a", ARRAY, struct.pack("<IQ", 99, 1) + bytes(12))]),
        "unknown element type 99",
    ),
    "endless array": (
        file_of([pair("a", ARRAY, struct.pack("<IQ", U64, 2**61))]),
        "past byte",
    ),
    "endless strings": (
        file_of([pair("a", ARRAY, struct.pack("<IQ", STRING, 2**61))]),
        "array of 2,305,843,009,213,693,952 strings",
    ),
    "strings beyond the file": (
        file_of([pair("a", ARRAY, struct.pack("<IQ", STRING, 1000) + bytes(80))]),
        "ends at",
    ),
    "a string's length that overflows": (
        file_of([pair("a", ARRAY, struct.pack("<IQQ", STRING, 2, 2**64 - 1))]),
        "past byte",
    ),
}


@pytest.mark.parametrize("size_known", [True, False])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_told(name, size_known):
    data, message = HOSTILE[name]
    with pytest.raises(ConfigError, match=message) as caught:
        read(data, size=len(data) if size_known else None)
    assert caught.value.message.startswith("x.gguf: ")


def test_hostile_lengths_ask_for_no_memory():
    data = file_of([pair("a", STRING, struct.pack("<Q", 2**62))])
    file = File(data)
    with pytest.raises(ConfigError, match="past byte 67,108,864"):
        reader.read_header(file.read, "x.gguf")
    assert file.asked == [(0, 64 * KIB)]


def test_every_truncation_is_told():
    whole = header(metadata())
    for length in range(len(whole)):
        with pytest.raises(ConfigError, match="ends at byte"):
            read(whole[:length])


def test_what_the_gguf_package_writes(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_head_count_kv([4, 0])
    writer.add_sliding_window_pattern([True, False])
    writer.add_causal_attention(value=False)
    writer.add_rope_freq_base(0.5)
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read(path.read_bytes()).metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.attention.head_count_kv": [4, 0],
        "llama.attention.sliding_window_pattern": [True, False],
        "llama.attention.causal": False,
        "llama.rope.freq_base": 0.5,
        "tokenizer.ggml.tokens": None,
    }
