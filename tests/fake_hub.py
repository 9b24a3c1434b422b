"""A model hub on this machine: the few answers of the Hugging Face hub that fetching a model needs, and its faults."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """files: name in the repository -> content. cut_after: bytes after which the next download breaks off, once.
    wrong: files whose stated checksum is not theirs. requests: (method, path, first byte asked for)."""

    repo: str
    files: dict[str, Path]
    cut_after: int | None = None
    wrong: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    url: str = ""

    def sha256(self, name: str) -> str:
        return "0" * 64 if name in self.wrong else hashlib.sha256(self.files[name].read_bytes()).hexdigest()

    def info(self) -> dict[str, object]:
        siblings = []
        for name, path in self.files.items():
            size = path.stat().st_size
            lfs = {"sha256": self.sha256(name), "size": size, "pointerSize": 134}
            siblings.append({"rfilename": name, "size": size, "blobId": "0" * 40, "lfs": lfs})
        return {
            "id": self.repo,
            "modelId": self.repo,
            "sha": COMMIT,
            "siblings": siblings,
            "tags": [],
            "private": False,
        }


class Handler(BaseHTTPRequestHandler):
    """Answers for server.hub."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        start = int(self.headers.get("Range", "bytes=0-").split("=")[1].split("-")[0])
        hub.requests.append((self.command, path, start))
        resolve = f"/{hub.repo}/resolve/{COMMIT}/"
        if path.startswith(f"/api/models/{hub.repo}"):
            self.send(200, json.dumps(hub.info()).encode(), {"Content-Type": "application/json"}, with_body)
        elif path.startswith(resolve) and path.removeprefix(resolve) in hub.files:
            self.send_file(hub, path.removeprefix(resolve), start, with_body)
        else:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)

    def send_file(self, hub: Hub, name: str, start: int, with_body: bool) -> None:
        data = hub.files[name].read_bytes()
        headers = {"ETag": f'"{hub.sha256(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        if with_body and hub.cut_after is not None:
            keep, hub.cut_after = hub.cut_after, None
            self.send(206 if start else 200, body, headers, with_body, keep)
            self.close_connection = True
            return
        self.send(206 if start else 200, body, headers, with_body)

    def send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool, keep: int | None = None) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body if keep is None else body[:keep])


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = hub  # type: ignore[attr-defined]
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
