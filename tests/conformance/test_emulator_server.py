"""The HTTP server itself, and the command that runs it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Emulator
from tests.conformance.emulated import a_table, raw, send


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


def talk(aws: Emulator, data: bytes) -> bytes:
    """Sends bytes, half-closes, and reads to the end."""
    port = int(aws.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_one_connection_serves_many_requests(aws: Emulator) -> None:
    """Keep-alive is kept, also for errors."""
    connection = http.client.HTTPConnection(aws.url.removeprefix("http://"), timeout=5)
    connection.connect()
    sock = connection.sock
    for operation in ("ListTables", "MakeCoffee", "ListTables"):
        connection.request("POST", "/", b"{}", {"X-Amz-Target": f"DynamoDB_20120810.{operation}"})
        connection.getresponse().read()
        assert connection.sock is sock
    connection.close()


def test_two_requests_in_one_packet_get_two_answers(aws: Emulator) -> None:
    """Requests that arrive together are answered in order."""
    one = (
        b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    assert talk(aws, one + one).count(b'{"TableNames":[]}') == 2


def test_a_chunked_body_and_expect_continue_are_understood(aws: Emulator) -> None:
    """Both ways in which SDKs send bodies without knowing or wanting their length first."""
    answer = talk(
        aws,
        b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\n"
        b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\nTrailer: z\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert answer.endswith(b'{"TableNames":[]}')
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nshort",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\n" + b"X: " + b"y" * 70_000,
    ],
)
def test_what_is_no_request_ends_only_its_connection(aws: Emulator, data: bytes) -> None:
    """Bad bytes get no answer and disturb nobody."""
    assert talk(aws, data) == b""
    assert raw(aws, "ListTables", {}).status == 200


def test_the_server_survives_what_it_cannot_do(aws: Emulator) -> None:
    """Requests of any shape are answered, and the server goes on."""
    for body in (b'{"TransactItems": 1}', b'{"TransactItems": [1]}', b'{"RequestItems": [1]}'):
        for operation in ("TransactWriteItems", "BatchWriteItem", "Query"):
            assert raw(aws, operation, body).status in (400, 500)
    assert send(aws, "PATCH", "/bucket/key", b"", {}).status >= 400
    assert send(aws, "GET", "/", b"", {}).status == 200
    assert raw(aws, "ListTables", {}).status == 200


def test_many_connections_at_once(aws: Emulator) -> None:
    """200 clients write together and nothing is lost."""
    a_table(aws)
    failed: list[int] = []

    def write(number: int) -> None:
        answer = raw(aws, "PutItem", {"TableName": "orders", "Item": {"pk": {"S": str(number)}}})
        if answer.status != 200:
            failed.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert aws.client("dynamodb").scan(TableName="orders")["Count"] == 200


def test_stopping_leaves_no_thread_behind() -> None:
    """Connections and the listener end with the emulator."""
    before = set(threading.enumerate())
    with Emulator() as emulator:
        raw(emulator, "ListTables", {})
        idle = socket.create_connection(("127.0.0.1", int(emulator.url.rpartition(":")[2])))
        raw(emulator, "ListTables", {})
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    idle.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_where_it_is_and_ends_on_a_signal(number: signal.Signals) -> None:
    """`main` prints one ready line with the URL, answers there, and exits 0 on either signal."""
    code = "from emulator.server import main; raise SystemExit(main(0, shards=3))"
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"Emulator ready: (http://127\.0\.0\.1:\d+) \((.*)\)\n", line)
        assert match, line
        assert match[2] == "region us-east-1, 3 shards per stream"
        connection = http.client.HTTPConnection(match[1].removeprefix("http://"), timeout=10)
        connection.request("GET", "/_emulator/state")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
        assert (process.returncode, rest, errors) == (0, "", "")
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_said_in_a_sentence(aws: Emulator) -> None:
    """The command exits 2 with the cause and what to do, without a traceback."""
    port = int(aws.url.rpartition(":")[2])
    code = f"from emulator.server import main; raise SystemExit(main({port}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Choose another port; 0 takes a free one.\n"
    )
