"""GGUF files on the Hub: one chosen among a repo's files, and its header read in ranges."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import (
    HfApi,
    constants,
    get_session,
    hf_hub_url,
    hf_raise_for_status,
    snapshot_download,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined] # a lazy export

from kvsize._version import __version__
from kvsize.gguf.header import READ_UNTIL, Header, Read, read_header
from kvsize.gguf.hparams import has_required_keys
from kvsize.model import Raw
from kvsize.record import replace
from kvsize.sources import hub
from kvsize.sources.gguf import read_local
from kvsize.sources.gguf_names import OnHub, choose, model_name
from kvsize.sources.hub_errors import Repo, asking

_LISTING = "list of files"
_PARTIAL_CONTENT = 206


def find(wanted: OnHub, *, offline: bool = False) -> Raw:
    """The metadata of the file that `wanted` names, and the size of all its shards.

    Two requests where the keys come before the vocabulary, as converters write them. `offline`
    reads a file that is in the client's cache. Raises UsageError where none or several files
    fit, HubError where the Hub does not give it, ConfigError where it is no GGUF.
    """
    named = f"{wanted.hub_id}@{wanted.revision}" if wanted.revision else wanted.hub_id
    repo = hub.repo_of(named)
    if offline or constants.HF_HUB_OFFLINE:
        return _cached(repo, wanted)
    with asking(repo, _LISTING):
        info = HfApi().model_info(
            repo.hub_id,
            revision=repo.revision,
            files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )
    sizes = {entry.rfilename: entry.size for entry in info.siblings or ()}
    files = choose(wanted, sizes)
    # By its commit: a branch may move between two ranges.
    header = _read(Repo(repo.hub_id, info.sha), files[0], sizes.get(files[0]))
    return Raw(
        config=_noted(header),
        name=f"{repo}/{model_name(files[0])}",
        where=f"{repo}: {files[0]}",
        source="gguf",
        hub_id=repo.hub_id,
        revision=info.sha,
        weight_bytes=_total(sizes.get(file) for file in files),
    )


def _cached(repo: Repo, wanted: OnHub) -> Raw:
    with asking(repo, wanted.file or _LISTING):
        folder = Path(snapshot_download(repo.hub_id, revision=repo.revision, local_files_only=True))
    present = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]
    file = choose(wanted, present)[0]
    return replace(
        read_local(folder / file),
        name=f"{repo}/{model_name(file)}",
        where=f"{repo}: {file}",
        hub_id=repo.hub_id,
        revision=folder.name,
    )


def _read(repo: Repo, file: str, size: int | None) -> Header:
    with asking(repo, file):
        return read_header(
            _ranges(repo, file), f"{repo.hub_id}: {file}", size=size, enough=has_required_keys
        )


def _ranges(repo: Repo, file: str) -> Read:
    """Reads parts of a file, and no more of it even from a server that ignores ranges."""
    url = hf_hub_url(repo.hub_id, file, revision=repo.revision)
    headers = build_hf_headers(library_name="kvsize", library_version=__version__)

    def read(offset: int, length: int) -> bytes:
        part = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        with get_session().stream(
            "GET",
            url,
            headers=headers | part,
            follow_redirects=True,
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        ) as response:
            hf_raise_for_status(response)
            partial = response.status_code == _PARTIAL_CONTENT
            return _first(response.iter_bytes(), 0 if partial else offset, length)

    return read


def _first(chunks: Iterable[bytes], skip: int, length: int) -> bytes:
    """`length` bytes after the first `skip`; fewer only where the stream ends."""
    data = bytearray()
    for chunk in chunks:
        data += chunk[skip:]
        skip = max(0, skip - len(chunk))
        if len(data) >= length:
            break
    return bytes(data[:length])


def _noted(header: Header) -> dict[str, object]:
    """The metadata, with the key before which reading stopped."""
    stopped = {} if header.stopped_at is None else {READ_UNTIL: header.stopped_at}
    return {**header.metadata, **stopped}


def _total(sizes: Iterable[int | None]) -> int | None:
    """Bytes of all shards; None where the Hub does not list one."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)
