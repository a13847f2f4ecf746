"""A small Hub on loopback: repos in memory, the headers that the official client needs.

`repos` maps org/name to {revision: {file: content}}; "main" is the default branch. Those in `gated`
want the token hf_accepted. A repo whose name says so misbehaves: see `_SCENES`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_API = re.compile(r"/api/models/([^/]+/[^/?]+?)(?:/revision/([^/?]+))?(?:\?.*)?")


def commit_of(hub_id: str, revision: str) -> str:
    """The commit that a branch or tag of this server's repos stands for."""
    return hashlib.sha1(f"{hub_id}@{revision}".encode()).hexdigest()


@dataclass(frozen=True)
class Asked:
    """One request, as far as tests look at it."""

    method: str
    path: str
    token: str | None
    agent: str
    range: str | None


@dataclass
class Hub:
    """The server's repos and what it was asked for; `url` is its HF_ENDPOINT."""

    url: str
    repos: dict[str, dict[str, Mapping[str, bytes]]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    troubles: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    """By repo: the answers, status and headers, that come before it is well again."""
    delay_seconds: float = 0.0
    """What every answer takes at least."""
    running: int = 0
    busiest: int = 0
    """The most requests that were answered at once."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, hub_id: str, files: Mapping[str, object], revision: str = "main") -> None:
        """Put files, given as bytes or as what their JSON holds, at a revision of a repo."""
        contents = {
            name: content if isinstance(content, bytes) else json.dumps(content).encode()
            for name, content in files.items()
        }
        self.repos.setdefault(hub_id, {})[revision] = contents

    def requests(self) -> list[str]:
        """`HEAD /org/name/resolve/main/config.json`, in order; the list starts anew."""
        told = [f"{one.method} {one.path}" for one in self.asked]
        self.asked.clear()
        return told


# Status, X-Error-Code and X-Error-Message, as the Hub gives them, by a repo's name.
_SCENES = {
    "private": (401, "RepoNotFound", "Repository not found"),
    "unauthorized": (401, "", "Invalid credentials in Authorization header"),
    "disabled": (403, "", "Access to this resource is disabled."),
    "forbidden": (403, "", "This token may not read repos."),
    "limited": (429, "", "Too many requests"),
    "broken": (500, "", "Internal error"),
    "away": (503, "", "Maintenance"),
    "teapot": (418, "", ""),
}
_SLOW_SECONDS = 3


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._counted()

    def do_GET(self) -> None:
        self._counted()

    def _counted(self) -> None:
        hub = self.hub
        with hub.lock:
            hub.running += 1
            hub.busiest = max(hub.busiest, hub.running)
        time.sleep(hub.delay_seconds)
        try:
            self._answer()
        finally:
            with hub.lock:
                hub.running -= 1

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path = self.path
        token = self.headers.get("authorization")
        agent = self.headers.get("user-agent", "")
        part = self.headers.get("range")
        self.hub.asked.append(Asked(self.command, path, token, agent, part))
        if match := _RESOLVE.fullmatch(path):
            self._file(match[1], unquote(match[2]), unquote(match[3]), token)
        elif match := _API.fullmatch(path):
            self._listing(match[1], unquote(match[2] or "main"))
        else:
            self._send(404)

    def _file(self, hub_id: str, revision: str, file: str, token: str | None) -> None:
        scene = hub_id.partition("/")[2]
        if scene in _SCENES:
            status, code, told = _SCENES[scene]
            headers = {"X-Error-Code": code, "X-Error-Message": told, "Retry-After": "7"}
            return self._send(status, {k: v for k, v in headers.items() if v})
        if troubles := self.hub.troubles.get(hub_id):
            return self._send(*troubles.pop(0))
        if scene == "slow":
            time.sleep(_SLOW_SECONDS)
        if hub_id in self.hub.gated and token != "Bearer hf_accepted":
            code = 401 if token is None else 403
            return self._send(code, {"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"})
        if hub_id not in self.hub.repos:
            status = 401 if token is None else 404
            return self._send(status, {"X-Error-Code": "RepoNotFound"})
        for name, contents in self.hub.repos[hub_id].items():
            if revision in {name, commit_of(hub_id, name)}:
                return self._content(contents, file, commit_of(hub_id, name), scene)
        return self._send(404, {"X-Error-Code": "RevisionNotFound"})

    def _content(self, contents: Mapping[str, bytes], file: str, commit: str, scene: str) -> None:
        if file not in contents:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        content = contents[file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if scene == "mirror":  # a web server that is no Hub
            headers = {}
        if scene == "huge" and file == "config.json":
            headers["X-Linked-Size"] = str(10**9)
        part = _RANGE.fullmatch(self.headers.get("range", ""))
        if part is None or scene == "rangeless":
            return self._send(200, headers, content)
        first, last = int(part[1]), min(int(part[2]), len(content) - 1)
        if first > last:
            return self._send(416)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self._send(206, headers, content[first : last + 1])

    def _listing(self, hub_id: str, revision: str) -> None:
        found = self.hub.repos.get(hub_id, {}).get(revision)
        if found is None or hub_id.endswith("/unlisted"):
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        siblings = [{"rfilename": name, "size": len(found[name])} for name in found]
        body = {"id": hub_id, "sha": commit_of(hub_id, revision), "siblings": siblings}
        return self._send(200, {}, json.dumps(body).encode())

    def _send(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that stopped waiting is what the slow scene is for."""


@contextmanager
def serving() -> Iterator[Hub]:
    """A running server on a free port of this machine."""
    hub = Hub("")
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
