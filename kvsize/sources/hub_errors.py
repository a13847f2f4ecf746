"""What the Hub client says, told in two lines: which repo, what is wrong, what to do.

The client's exceptions are those of huggingface_hub 1.0 to 2.4; its HTTP library is httpx in 1.x
and httpx2 in 2.x, so transport errors are told apart by the names that both give them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from huggingface_hub import constants, get_token
from huggingface_hub import logging as client_log
from huggingface_hub.errors import (
    DisabledRepoError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

from kvsize.errors import HubError, KvsizeError

_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


@dataclass(frozen=True, slots=True)
class Repo:
    """A model repo at a revision (None: its main branch)."""

    hub_id: str
    revision: str | None = None

    def __str__(self) -> str:
        """As the user writes it: `org/name` or `org/name@revision`."""
        return f"{self.hub_id}@{self.revision}" if self.revision else self.hub_id

    @property
    def page(self) -> str:
        """The address of its model page."""
        return f"{constants.ENDPOINT}/{self.hub_id}"


@contextmanager
def asking(repo: Repo, file: str) -> Iterator[None]:
    """Runs the client's calls for `file` of `repo`; their failures are told as HubErrors."""
    try:
        with quiet():
            yield
    except KvsizeError:
        raise
    except Exception as error:  # the client's HTTP library changes with its version
        raise told(error, repo, file) from error


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, log lines or warnings: stderr is for kvsize's own two lines."""
    verbosity, bars = client_log.get_verbosity(), not are_progress_bars_disabled()
    client_log.set_verbosity(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disable_progress_bars()
        try:
            yield
        finally:
            client_log.set_verbosity(verbosity)
            if bars:
                enable_progress_bars()


def told(error: Exception, repo: Repo, file: str) -> HubError:
    """The error to raise for `error`, met while the client was asked for `file` of `repo`."""
    match error:
        case LocalEntryNotFoundError() if isinstance(error.__cause__, Exception):
            return told(error.__cause__, repo, file)
        case LocalEntryNotFoundError() | OfflineModeIsEnabled():
            msg = f"{repo}: {file} is not in the Hub cache, and offline mode forbids fetching it."
            command = f"`hf download {repo.hub_id} {file}`"
            return HubError(msg, f"where there is a network, run {command}; cache: {_cache()}.")
        case FileMetadataError():
            msg = f"{constants.ENDPOINT} does not answer as a Hugging Face Hub does."
            return HubError(msg, f"check HF_ENDPOINT and the proxy settings; {_without_hub(repo)}.")
        case HfHubHTTPError():
            return _answered(error, repo, file)
        case OSError():
            msg = f"{repo}: the Hub cache cannot keep {file} ({error.strerror or error})."
            return HubError(msg, f"let HF_HOME be a folder you may write to; now {_cache()}.")
        case _:
            return _transport(error, repo)


def _answered(error: HfHubHTTPError, repo: Repo, file: str) -> HubError:
    """The Hub answered, and the answer is no."""
    match error:
        case GatedRepoError():
            return _gated(repo)
        case RevisionNotFoundError():
            msg = f"{repo.hub_id} has no branch, tag or commit '{repo.revision}'."
            hint = f"{repo.page}/tree/main lists them; without @{repo.revision} it is main."
            return HubError(msg, hint)
        case RemoteEntryNotFoundError():
            return HubError(f"{repo} has no {file}.", f"see {repo.page}/tree/main for its files.")
        case DisabledRepoError():
            msg = f"{repo}: access to this repo is disabled."
            return HubError(msg, f"see {repo.page}; {_without_hub(repo)}.")
        case RepositoryNotFoundError():
            return _not_found(error, repo)
        case _:
            return _status(error, repo)


def _gated(repo: Repo) -> HubError:
    if get_token() is None:
        msg = f"{repo} is gated, and no access token was sent."
        hint = f"accept its licence at {repo.page}, then {_LOG_IN}"
    else:
        msg = f"{repo} is gated, and this access token has no access to it."
        hint = f"accept its licence at {repo.page} as the token's owner, and let the token read it"
    preset = _preset(repo)
    return HubError(
        msg, f"{hint}; or take the preset: `kvsize {preset}`." if preset else f"{hint}."
    )


def _preset(repo: Repo) -> str | None:
    """The built-in model that stands for this repo."""
    from kvsize.sources.preset import catalogue

    same = (name for name, found in catalogue().items() if found.get("hub_id") == repo.hub_id)
    return next(same, None)


def _without_hub(repo: Repo) -> str:
    preset = _preset(repo)
    return (
        f"`kvsize {preset}` is built in and needs no Hub"
        if preset
        else "presets (`kvsize presets`) and local files need no Hub"
    )


def _not_found(error: RepositoryNotFoundError, repo: Repo) -> HubError:
    if error.response.status_code == 401 and get_token() is not None:
        return _token_refused(repo)
    msg = f"{repo.hub_id}: {constants.ENDPOINT} has no such model, or it is private."
    if get_token() is None:
        return HubError(msg, f"check the spelling; for a private repo {_LOG_IN}.")
    return HubError(msg, "check the spelling; a private repo needs a token of its owner's.")


def _token_refused(repo: Repo) -> HubError:
    msg = f"{repo}: the Hub does not accept the access token that was sent (401)."
    return HubError(
        msg, "it may have expired: log in anew with `hf auth login`, or change HF_TOKEN."
    )


def _cache() -> str:
    return constants.HF_HUB_CACHE


def _status(error: HfHubHTTPError, repo: Repo) -> HubError:
    """An answer that has no exception of its own in the client."""
    status = error.response.status_code
    if status == 401:
        if get_token() is not None:
            return _token_refused(repo)
        return HubError(f"{repo}: the Hub asks for an access token (401).", f"{_LOG_IN}.")
    if status == 429:
        wait = error.response.headers.get("retry-after", "")
        hint = f"wait {wait} seconds" if wait.isdigit() else "wait a few minutes"
        msg = f"{repo}: the Hub takes no more requests from here for now (429)."
        hint += f"; the limit is higher with a token: {_LOG_IN}."
        return HubError(msg, hint, retry_after=int(wait) if wait.isdigit() else 0)
    if status >= 500:
        msg = f"{repo}: {constants.ENDPOINT} has trouble of its own ({status})."
        return HubError(msg, f"try again later; {_without_hub(repo)}.", retry_after=0)
    reason = error.response.headers.get("x-error-message", "no reason given").rstrip(".")
    msg = f"{repo}: the Hub refused with status {status} ({reason})."
    return HubError(msg, f"see {repo.page}, and check what the access token permits.")


def _transport(error: Exception, repo: Repo) -> HubError:
    kind = type(error).__name__
    if kind.endswith("Timeout"):
        msg = f"{repo}: {constants.ENDPOINT} did not answer in time."
        wait = f"HF_HUB_ETAG_TIMEOUT, now {constants.HF_HUB_ETAG_TIMEOUT} s"
        hint = f"check the network, or raise {wait}; {_without_hub(repo)}."
        return HubError(msg, hint, retry_after=0)
    hint = f"check the network, HF_ENDPOINT and the proxy settings; {_without_hub(repo)}."
    if kind == "ConnectError":
        msg = f"{repo}: there is no connection to {constants.ENDPOINT} ({error})."
        return HubError(msg, hint)
    # A connection that broke: another may hold.
    msg = f"{repo}: asking {constants.ENDPOINT} failed ({kind}: {error})."
    return HubError(msg, hint, retry_after=0)
