"""A DynamoDB of canned answers over real HTTP: what comes back is exactly what a test wrote."""

from __future__ import annotations

import json
import threading
import zlib
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
DATE_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` replace those that AWS sends, None takes one away; `sent` bytes of a body come."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str | None] = field(default_factory=dict)
    sent: int | None = None
    drop: bool = False

    def all_headers(self) -> dict[str, str]:
        headers: dict[str, str | None] = {
            "Date": DATE,
            "Content-Type": "application/x-amz-json-1.0",
            "Content-Length": str(len(self.body)),
            "x-amz-crc32": str(zlib.crc32(self.body)),
            **self.headers,
        }
        return {name: value for name, value in headers.items() if value is not None}


def failure(code: str, message: str = "", status: int = 400) -> Answer:
    """An error as DynamoDB writes it."""
    said = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
    return Answer(json.dumps(said).encode(), status)


@dataclass(frozen=True, slots=True)
class Asked:
    operation: str
    params: dict[str, Any]
    headers: dict[str, str]


class CannedAws:
    """Gives its answers in order; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.asked: list[Asked] = []
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                canned._reply(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> CannedAws:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _reply(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length", 0))
        params = json.loads(request.rfile.read(length) or b"{}")
        operation = request.headers["X-Amz-Target"].rsplit(".", 1)[-1]
        self.asked.append(Asked(operation, params, dict(request.headers)))
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if answer.drop:
            request.close_connection = True
            return
        request.send_response_only(answer.status)
        for name, value in answer.all_headers().items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(answer.body[: answer.sent])
        if answer.sent is not None or "Content-Length" not in answer.all_headers():
            request.close_connection = True
