"""GGUF files on this machine: whole, split, and named in each way."""

import os
import re
from pathlib import Path

import pytest

import kvsize
from kvsize.sources import find, gguf
from tests.gguf_files import metadata, write


def shards(folder, count, *, missing=()):
    paths = []
    for number in range(1, count + 1):
        path = folder / f"m-{number:05d}-of-{count:05d}.gguf"
        keys = metadata() if number == 1 else {"split.no": number - 1, "split.count": count}
        if number not in missing:
            write(path, keys)
        paths.append(path)
    return paths


def test_a_local_file(tmp_path):
    path = write(tmp_path / "Tiny-Q4_K_M.gguf", metadata())
    raw = find(str(path))
    assert raw.config == metadata()
    assert (raw.name, raw.where, raw.source) == ("Tiny-Q4_K_M", str(path), "gguf")
    assert raw.weight_bytes == path.stat().st_size


@pytest.mark.parametrize("kind", [str, Path, os.fspath])
def test_any_spelling_of_a_path(tmp_path, monkeypatch, kind):
    write(tmp_path / "m.gguf", metadata())
    monkeypatch.chdir(tmp_path)
    assert find(kind("m.gguf")).source == "gguf"
    assert find(kind(tmp_path / "m.gguf")).source == "gguf"
    assert find("./m.gguf").source == "gguf"


def test_a_path_of_org_and_name_is_a_file_when_it_is_there(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    write(tmp_path / "models" / "m.gguf", metadata())
    monkeypatch.chdir(tmp_path)
    assert find("models/m.gguf").where == "models/m.gguf"


def test_a_shard_stands_for_all_of_them(tmp_path):
    paths = shards(tmp_path, 3)
    for path in paths:
        raw = gguf.find(str(path))
        assert raw.config == metadata()
        assert raw.where == str(paths[0])
        assert raw.name == "m"
        assert raw.weight_bytes == sum(path.stat().st_size for path in paths)


def test_weights_are_unknown_while_a_shard_is_missing(tmp_path):
    first, *_ = shards(tmp_path, 3, missing={2})
    assert gguf.find(str(first)).weight_bytes is None


def test_without_the_first_shard_there_is_no_metadata(tmp_path):
    paths = shards(tmp_path, 2, missing={1})
    with pytest.raises(kvsize.ConfigError, match=r"m-00001-of-00002\.gguf: No such file") as caught:
        gguf.find(str(paths[1]))
    assert "the first shard must be there" in caught.value.hint


def test_a_renamed_later_shard_is_told(tmp_path):
    path = write(tmp_path / "part2.gguf", {"split.no": 1, "split.count": 2})
    with pytest.raises(kvsize.ConfigError, match=r"`general\.architecture` is missing"):
        kvsize.load(path)


@pytest.mark.parametrize("name", ["missing.gguf", "folder.gguf"])
def test_files_that_cannot_be_read(tmp_path, name):
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(kvsize.ConfigError, match=re.escape(name)):
        kvsize.load(tmp_path / name)
