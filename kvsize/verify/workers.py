"""Work done in forked processes: a few at a time, each with limits of time and memory."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
# Sends what it finds, as it comes.
Work = Callable[[str, Callable[[Any], None]], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process may take: seconds, and bytes that it may map as data."""

    seconds: int
    memory_bytes: int


@dataclass(slots=True)
class Job:
    """One name being worked on: what its process has sent, and how it ended if not well."""

    name: str
    receiver: Connection
    process: ForkProcess
    deadline: float
    found: list[Any] = field(default_factory=list)
    ended: str = ""

    def take(self) -> bool:
        """Receive one message; False where the process has closed its end."""
        try:
            self.found.append(self.receiver.recv())
        except (EOFError, ConnectionResetError):
            return False
        return True

    def end(self) -> None:
        """Leave no process and no pipe behind."""
        self.process.kill()
        self.process.join()
        self.receiver.close()


def in_processes(names: Iterable[str], work: Work, limits: Limits, jobs: int) -> Iterator[Job]:
    """Each name's job once it has ended, `jobs` of them at a time, in the order of their ends."""
    waiting = iter(names)
    running: list[Job] = []
    try:
        while True:
            while len(running) < jobs and (name := next(waiting, None)) is not None:
                running.append(_started(name, work, limits))
            if not running:
                return
            for job in _ended(running, limits):
                running.remove(job)
                yield job
    finally:
        for job in running:
            job.end()


def _started(name: str, work: Work, limits: Limits) -> Job:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_worker, args=(name, work, limits, sender), daemon=True)
    with warnings.catch_warnings(), _undisturbed():
        # Python 3.12 warns of a fork beside threads: the workers use none of the parent's.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    return Job(name, receiver, process, time.monotonic() + limits.seconds)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let signals wait: what is raised in the middle of a fork, Python prints and forgets."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker(name: str, work: Work, limits: Limits, sender: Connection) -> None:
    # Ctrl-C is the parent's, which ends its workers; should the parent be gone, the alarm does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    signal.alarm(2 * limits.seconds)
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    work(name, sender.send)
    sender.close()


def _ended(running: list[Job], limits: Limits) -> list[Job]:
    """Wait until something comes or a time is up; the jobs that have ended, with the reason."""
    soonest = min(job.deadline for job in running) - time.monotonic()
    ready = wait([job.receiver for job in running], max(soonest, 0))
    over = []
    for job in running:
        if job.receiver in ready and not job.take():
            job.process.join()
            code = job.process.exitcode
            job.ended = "" if code == 0 else f"its process ended with {code}"
        elif time.monotonic() >= job.deadline:
            job.ended = f"took longer than {limits.seconds} s"
        else:
            continue
        job.end()
        over.append(job)
    return over
