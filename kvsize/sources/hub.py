"""Models on the Hugging Face Hub, through the official client.

Token (HF_TOKEN or the login), HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, the timeouts and the cache
are the client's own. Nothing is fetched but config.json; the weights' size is asked for only by
`weight_bytes`.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvsize._version import __version__
from kvsize.errors import ConfigError, HubError, KvsizeError, UsageError
from kvsize.model import Raw
from kvsize.sources.contents import CONFIG, Place, refuse_other, without_config
from kvsize.sources.parsing import LARGEST_CONFIG_BYTES, parse, read_file, too_large
from kvsize.units import MIB

try:  # by itself and first: the client reads its settings here, and may refuse them
    from huggingface_hub.constants import HF_HUB_ETAG_TIMEOUT
except ValueError as _error:
    _msg = f"the Hub client refuses its settings ({_error})."
    raise UsageError(_msg, "correct the HF_* environment variables.") from _error

from huggingface_hub import (
    HfApi,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    FileMetadataError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RevisionNotFoundError,
)

from kvsize.sources.hub_errors import Repo, asking, quiet, told

_COMMIT = re.compile(r"[0-9a-f]{40}")
# What git forbids in the names of branches and tags (git-check-ref-format); `refs/pr/1` is one.
_NO_REVISION = re.compile(r"^$|\.\.|[\s~^:?*\[\\]|^[/.-]|[/.]$")
# One line of some 100 bytes per tensor: DeepSeek-V3's 58 layers of 256 experts have 89,088.
_LARGEST_INDEX_BYTES = 100 * MIB


def find(text: str, *, offline: bool = False) -> Raw:
    """The config of the repo `org/name` or `org/name@revision` (a branch, tag or commit).

    `offline`, as HF_HUB_OFFLINE=1, takes it from the client's cache. Raises UsageError for a
    malformed name, HubError where the Hub does not give the file, ConfigError where it is no
    config.
    """
    repo = repo_of(text)
    where = f"{repo}: {CONFIG}"
    path = _config_file(repo, offline=offline)
    with asking(repo, CONFIG):
        config = parse(read_file(path, where), where)
    refuse_other(config, where)
    # The client keeps files in models--org--name/snapshots/COMMIT/.
    return Raw(config, str(repo), where, "hub", hub_id=repo.hub_id, revision=path.parent.name)


def weight_bytes(hub_id: str, revision: str | None = None) -> int | None:
    """Bytes of the weight files that transformers would load, their headers included.

    None where the repo has none under transformers' names. Asks the Hub, once or (sharded
    weights) twice; raises HubError as `find` does.
    """
    repo = Repo(hub_id, revision)
    with asking(repo, "list of files"):
        info = HfApi().model_info(
            hub_id, revision=revision, files_metadata=True, timeout=HF_HUB_ETAG_TIMEOUT
        )
    sizes = {entry.rfilename: entry.size or 0 for entry in info.siblings or ()}
    for name in ("model.safetensors", "pytorch_model.bin"):
        if name in sizes:
            return sizes[name]
        if (index := f"{name}.index.json") in sizes:
            return sum(sizes.get(shard, 0) for shard in _shards(repo, index))
    return None


def _shards(repo: Repo, index: str) -> set[str]:
    """The files an index names; each maps its tensors to the file they are in."""
    where = f"{repo}: {index}"
    path = _download(repo, index)
    with asking(repo, index):
        listed = parse(read_file(path, where, _LARGEST_INDEX_BYTES), where)
    weight_map = listed.get("weight_map")
    if not isinstance(weight_map, dict):
        msg = f"{where} has no `weight_map`."
        raise ConfigError(msg, f"see {repo.page}/tree/main; the upload seems incomplete.")
    return {str(shard) for shard in weight_map.values()}


def repo_of(text: str) -> Repo:
    """The repo and revision that `org/name@revision` names; UsageError where it names none."""
    hub_id, at, revision = text.partition("@")
    try:
        hf_hub_url(hub_id, CONFIG)  # makes no request; checks the name
    except HFValidationError as error:
        reason = str(error).partition(":")[0].strip().rstrip(".")
        msg = f"'{hub_id}' cannot be a repo on the Hub: {reason}."
        raise UsageError(msg, "name it org/name; a path on this machine starts with ./") from error
    if at and _NO_REVISION.search(revision):
        msg = f"'{revision}' cannot be the name of a branch, tag or commit."
        raise UsageError(msg, f"write {hub_id}@main, or leave out what follows {hub_id}.")
    return Repo(hub_id, revision or None)


def _config_file(repo: Repo, *, offline: bool) -> Path:
    """The cached config.json of `repo`, fetched or checked for a newer one unless `offline`."""
    cached = _cached(repo) if offline or _COMMIT.fullmatch(repo.revision or "") else None
    if cached is not None:
        return cached
    if offline:
        raise told(OfflineModeIsEnabled(), repo, CONFIG)
    try:
        with quiet():
            size = _size_bytes(repo)
    except RevisionNotFoundError as error:
        raise told(error, repo, CONFIG) from error
    except RemoteEntryNotFoundError as error:
        raise _no_config(repo, error) from error
    except Exception as error:  # the client's HTTP library changes with its version
        # As the client does: without an answer, the copy that was fetched last is good enough.
        if (cached := _cached(repo)) is None:
            raise told(error, repo, CONFIG) from error
        return cached
    if size is not None and size > LARGEST_CONFIG_BYTES:
        raise too_large(f"{repo}: {CONFIG}", size)
    return _download(repo, CONFIG)


def _size_bytes(repo: Repo) -> int | None:
    """One request and no more: the client's own download repeats failing ones for minutes."""
    url = hf_hub_url(repo.hub_id, CONFIG, revision=repo.revision)
    timeout = HF_HUB_ETAG_TIMEOUT
    metadata = get_hf_file_metadata(
        url, timeout=timeout, library_name="kvsize", library_version=__version__
    )
    if metadata.commit_hash is None or metadata.etag is None:
        raise FileMetadataError
    return metadata.size


def _cached(repo: Repo) -> Path | None:
    found = try_to_load_from_cache(repo.hub_id, CONFIG, revision=repo.revision)
    return Path(found) if isinstance(found, str) else None


def _download(repo: Repo, file: str) -> Path:
    with asking(repo, file):
        path = hf_hub_download(
            repo.hub_id,
            file,
            revision=repo.revision,
            library_name="kvsize",
            library_version=__version__,
        )
    return Path(path)


def _no_config(repo: Repo, error: RemoteEntryNotFoundError) -> KvsizeError:
    """Says what a repo without a config.json is, if the Hub lists its files."""
    timeout = HF_HUB_ETAG_TIMEOUT
    try:
        with quiet():
            info = HfApi().model_info(repo.hub_id, revision=repo.revision, timeout=timeout)
    except Exception:  # noqa: BLE001 - the list would only improve the message
        return told(error, repo, CONFIG)
    place = Place(
        shown=str(repo),
        prefix=f"{repo.hub_id}/",
        names=[entry.rfilename for entry in info.siblings or ()],
        read=lambda name: read_file(_download(repo, name), f"{repo}: {name}"),
        fetch=f"hf download {repo.hub_id}",
    )
    return HubError(*without_config(place))
