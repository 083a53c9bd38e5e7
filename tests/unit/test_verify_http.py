"""Asking the service over HTTP: Arrow and the as-of header in, errors with the service's words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from connector.client import Address, ServiceClient, ServiceRefused
from connector.compare.replica import ARROW_STREAM, HttpAsk
from connector.errors import ServiceUnreachable
from tests.e2e.harness import free_port


class Answers(BaseHTTPRequestHandler):
    """Echoes what it was asked as a one-row Arrow stream; refuses what mentions 'bad'."""

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["sql"]
        if "bad" in query:
            body, status = b'{"error": {"code": "bad_query", "message": "No such table."}}', 400
        else:
            row = {"query": query, **{n: str(self.headers[n]) for n in ("Accept", "Authorization")}}
            table = pa.Table.from_pylist([row])
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            body, status = sink.getvalue().to_pybytes(), 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Dynaduck-As-Of", "1970-01-01T00:00:07Z")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def ask(url: str, token: str | None = None) -> HttpAsk:
    return HttpAsk(ServiceClient(Address.of_url(url, token)))


def test_rows_come_as_arrow_with_what_they_cover(url: str) -> None:
    """The query goes out as UTF-8, the token as a bearer's."""
    answer = ask(url, token="t0")("SELECT 'é\x00'")
    assert answer.covered_until_ms == 7000
    assert answer.table.to_pylist() == [
        {"query": "SELECT 'é\x00'", "Accept": ARROW_STREAM, "Authorization": "Bearer t0"}
    ]


def test_a_refusal_is_told_in_the_services_words(url: str) -> None:
    """What the service says of a query that it refuses is what the operator reads."""
    with pytest.raises(ServiceRefused, match="No such table"):
        ask(url)("bad")


def test_no_service_is_said(url: str) -> None:
    """The address that does not answer is named."""
    port = free_port()
    with pytest.raises(ServiceUnreachable, match=str(port)):
        ask(f"http://127.0.0.1:{port}")("SELECT 1")
