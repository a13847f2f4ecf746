"""`kvsize.lock`: which commit of each Hub model a check reads, and the hash of its config.json.

A run reads the locked commit, from the cache where it is there, so that its figures are the same
on every machine; where it may ask the Hub it also says that the branch has a newer config. Presets
come with kvsize and files with the repository: neither needs a lock, nor does a GGUF file, whose
figures come from its own header.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvsize.checks.records import FileError
from kvsize.errors import ConfigError, Exit, HubError, KvsizeError, UsageError
from kvsize.loading import load
from kvsize.many import load_many
from kvsize.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kvsize.model import Model

NAME = "kvsize.lock"
_HUB_ID = re.compile(r"[^/@:]+/[^/@:]+(@.*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_AGAIN = "`kvsize check --lock` writes it anew."
_HEADER = (
    "# The config.json of each Hub model, as `kvsize check --lock` found it. Commit this file.\n"
)


@dataclass(frozen=True, slots=True)
class Locked:
    """One Hub model: the commit that is read, and the SHA-256 of its config.json."""

    revision: str
    config_sha256: str


@dataclass(slots=True)
class Models:
    """The models of a run, each loaded once, at the lock's commit where there is one.

    `locked`: what the lock file says, None without one; `strictly`: a model that is not locked,
    or whose config has changed since, is a failure instead of a note; `renew`: the lock is being
    written, so each is read as its branch is now.
    """

    locked: dict[str, Locked] | None = None
    offline: bool = False
    strictly: bool = False
    renew: bool = False
    found: dict[str, Locked] = field(default_factory=dict)
    _fetched: dict[str, Model | KvsizeError] = field(default_factory=dict)
    _loaded: dict[str, tuple[Model, tuple[str, ...]] | KvsizeError] = field(default_factory=dict)

    def fetch(self, names: Iterable[str]) -> None:
        """Read the models of `names` side by side, and what the Hub has now where that is told."""
        wanted: list[str] = []
        for name in dict.fromkeys(filter(is_hub_id, names)):
            entry = self._entry(name)
            if entry is None:
                wanted.append(name)
                continue
            hub_id, _, revision = name.partition("@")
            wanted.append(f"{hub_id}@{entry.revision}")
            if not self.offline and not _COMMIT.fullmatch(revision):
                wanted.append(name)
        if not wanted:
            return
        with progress(len(wanted)) as step:
            read_now = load_many(wanted, offline=self.offline, step=step)
        self._fetched.update(zip(wanted, read_now, strict=True))

    def _entry(self, name: str) -> Locked | None:
        return None if self.renew else (self.locked or {}).get(name)

    def _read(self, name: str) -> Model:
        found = self._fetched.get(name) or load(name, offline=self.offline)
        if isinstance(found, KvsizeError):
            raise found
        return found

    def load(self, name: str) -> tuple[Model, tuple[str, ...]]:
        """The model, with what there is to note; raises KvsizeError as `kvsize.load` does."""
        if name not in self._loaded:
            try:
                self._loaded[name] = self._load(name)
            except KvsizeError as error:
                self._loaded[name] = error
        found = self._loaded[name]
        if isinstance(found, KvsizeError):
            raise found
        return found

    def _load(self, name: str) -> tuple[Model, tuple[str, ...]]:
        entry = self._entry(name)
        if entry is not None:
            return self._at_lock(name, entry)
        model = self._read(name)
        if model.source != "hub" or not model.hub_id or not model.revision:
            return model, ()
        self.found[name] = Locked(model.revision, config_sha256(model.hub_id, model.revision))
        if self.renew or (self.locked is None and not self.strictly):
            return model, ()
        told = f"{name} is not in {NAME}"
        if self.strictly:
            raise UsageError(f"{told}.", "`kvsize check --lock` adds it.")
        return model, (f"{told}; `kvsize check --lock` adds it.",)

    def _at_lock(self, name: str, entry: Locked) -> tuple[Model, tuple[str, ...]]:
        hub_id, _, revision = name.partition("@")
        model = self._read(f"{hub_id}@{entry.revision}")
        if config_sha256(hub_id, entry.revision) != entry.config_sha256:
            msg = f"{name}: the config.json of {entry.revision} is not the one in {NAME}."
            raise ConfigError(msg, f"see which of the two is right; {_AGAIN}")
        self.found[name] = entry
        if self.offline or _COMMIT.fullmatch(revision):
            return model, ()
        changed = self._changed(name, hub_id, entry)
        if changed and self.strictly:
            msg = f"{changed}."
            raise Changed(msg, f"look at what changed; {_AGAIN}")
        return model, (f"{changed}; the figures are the locked one's. {_AGAIN}",) if changed else ()

    def _changed(self, name: str, hub_id: str, entry: Locked) -> str:
        """A sentence where the branch has another config by now; empty where not, or unknown."""
        try:
            newer = self._read(name)
        except HubError:
            return ""  # the locked commit was there; what the Hub would say now changes no figure
        except ConfigError:
            return f"{name} has a config.json that cannot be read since {entry.revision[:12]}"
        revision = newer.revision or ""
        if revision == entry.revision or config_sha256(hub_id, revision) == entry.config_sha256:
            return ""
        return f"{name}: config.json has changed, from {entry.revision[:12]} to {revision[:12]}"


class Changed(KvsizeError):
    """`--locked`: a Hub model's config is no longer the one that was locked."""

    exit_code = Exit.NO


def is_hub_id(name: str) -> bool:
    """Whether a model's name is a repo on the Hub whose config.json is read."""
    path = name.startswith((".", "~")) or name.lower().endswith((".gguf", ".json"))
    return not path and _HUB_ID.fullmatch(name) is not None


def config_sha256(hub_id: str, revision: str) -> str:
    """The SHA-256 of a config.json in the Hub client's cache, where it was just read from."""
    import hashlib
    from pathlib import Path

    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    if not isinstance(found, str):
        msg = f"{hub_id}: config.json of {revision} is not in the Hub client's cache."
        raise HubError(msg, "the cache is being changed by another program; try again.")
    return hashlib.sha256(Path(found).read_bytes()).hexdigest()


def read(path: Path) -> dict[str, Locked] | None:
    """What a lock file says, None where there is none; FileError where it is damaged."""
    try:
        parsed = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(path.name, 0, "the lock cannot be read.", _AGAIN) from error
    entries = parsed.get("model", [])
    if parsed.get("version") != 1 or not isinstance(entries, list):
        raise FileError(path.name, 0, "it is no lock of version 1.", _AGAIN)
    return dict(_entry(path, each) for each in entries)


def _entry(path: Path, entry: object) -> tuple[str, Locked]:
    values = entry if isinstance(entry, dict) else {}
    name, revision, digest = (str(values.get(key)) for key in ("id", "revision", "config_sha256"))
    if not (is_hub_id(name) and _COMMIT.fullmatch(revision) and _SHA256.fullmatch(digest)):
        msg = "a [[model]] needs an id, a revision (a commit) and a config_sha256."
        raise FileError(path.name, 0, msg, _AGAIN)
    return name, Locked(revision, digest)


def text(found: dict[str, Locked]) -> str:
    """The lock file; ids of the Hub hold nothing that TOML would want escaped."""
    blocks = [
        f'\n[[model]]\nid = "{name}"\nrevision = "{entry.revision}"\n'
        f'config_sha256 = "{entry.config_sha256}"\n'
        for name, entry in sorted(found.items())
    ]
    return f"{_HEADER}version = 1\n{''.join(blocks)}"
