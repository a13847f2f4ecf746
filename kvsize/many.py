"""Many models at once: Hub calls side by side, bounded, tried again, in the order they were named."""

from __future__ import annotations

from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING

from kvsize.errors import HubError, KvsizeError
from kvsize.loading import load
from kvsize.sources import asks_hub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvsize.model import Model

JOBS = 8
TRIES = 4
# Doubled after each try that failed for want of an answer.
FIRST_WAIT_SECONDS = 1.0
# A Hub that wants more patience than this is told of instead.
LONGEST_WAIT_SECONDS = 60.0


def load_many(
    names: Iterable[str],
    *,
    jobs: int = JOBS,
    offline: bool = False,
    step: Callable[[str], None] = lambda _: None,
    first_wait: float = FIRST_WAIT_SECONDS,
) -> list[Model | KvsizeError]:
    """The model of each name, or what went wrong with it, in order.

    At most `jobs` Hub calls run at once. One that got no answer, a 429 or a 5xx is made again, three
    times at most, after `first_wait` seconds and twice as long each time, or when the Hub says. A
    name that comes twice is loaded once. `step` is called with a name when it is done with.
    """
    named = list(names)
    found: dict[str, Model | KvsizeError] = {}
    remote = [name for name in dict.fromkeys(named) if _is_remote(name)]
    for name in dict.fromkeys(named):
        if name not in remote:
            found[name] = _local(name)
            step(name)
    if remote:
        found |= _from_hub(remote, _Worker(first_wait, offline=offline), jobs, step)
    return [found[name] for name in named]


def _is_remote(name: str) -> bool:
    try:
        return asks_hub(name)
    except KvsizeError:
        return False  # no name at all: loading says why


def _local(name: str) -> Model | KvsizeError:
    try:
        return load(name)
    except KvsizeError as error:
        return error


def _from_hub(
    names: list[str], worker: _Worker, jobs: int, step: Callable[[str], None]
) -> dict[str, Model | KvsizeError]:
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from kvsize.sources.hub_errors import quiet

    # Held here throughout: what each call silences and restores is the whole process's.
    with quiet():
        pool = ThreadPoolExecutor(max_workers=min(jobs, len(names)))
        try:
            running = {pool.submit(worker.load, name): name for name in names}
            for done in as_completed(running):
                step(running[done])
            return {name: future.result() for future, name in running.items()}
        finally:
            worker.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """What the threads share: when the Hub may be asked again, and whether to stop waiting."""

    def __init__(self, first_wait: float, *, offline: bool) -> None:
        self.first_wait = first_wait
        self.offline = offline
        self.stop = Event()
        self._lock = Lock()
        self._not_before = 0.0

    def load(self, name: str) -> Model | KvsizeError:
        """The model, or the error of the last try."""
        attempt = 0
        while True:
            self.stop.wait(max(self._not_before - monotonic(), 0))
            try:
                return load(name, offline=self.offline)
            except HubError as error:
                said = error.retry_after
                attempt += 1
                if (
                    attempt == TRIES
                    or said is None
                    or said > LONGEST_WAIT_SECONDS
                    or self.stop.is_set()
                ):
                    return error
                wait = max(said, self.first_wait * 2 ** (attempt - 1))
                if said:  # the limit is on all calls from here
                    self._hold(wait)
                else:
                    self.stop.wait(wait)
            except KvsizeError as error:
                return error

    def _hold(self, seconds: float) -> None:
        with self._lock:
            self._not_before = max(self._not_before, monotonic() + seconds)
