"""DynamoDB and its streams out of canned pages, in a process of its own.

Owns the pages and how many of them each shard shows: `Canned` starts the process and drives it.
Answers what a reader of one table asks, with lengths, CRC and Date as AWS sends them, and as
little work as possible. Pages of streams are made before they are asked for; those of Scan are
filled in on the way out.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench import data

TABLE: Final = "bench"
TABLE_ARN: Final = f"arn:aws:dynamodb:eu-west-1:123456789012:table/{TABLE}"
STREAM_ARN: Final = f"{TABLE_ARN}/stream/2026-01-01T00:00:00.000"
LISTED_AT_ONCE: Final = 100
ROOT: Final = Path(__file__).resolve().parents[1]


class Pages:
    """What is served. Handlers of any thread call `answer`."""

    def __init__(self, *, rows: int, shards: int) -> None:
        self._rows = rows
        self._shards = shards
        self._records = 1000
        self._pages: dict[int, list[bytes]] = {}
        self._released: dict[int, int] = {}
        self._drips: dict[int, tuple[float, float]] = {}
        self._calls: Counter[str] = Counter()
        self._served = 0
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._lock = threading.Lock()

    def answer(self, operation: str, asked: dict[str, Any]) -> bytes:
        self._calls[operation] += 1
        body: bytes = getattr(self, "_" + operation)(asked)
        return body

    # AWS

    def _DescribeTable(self, _: dict[str, Any]) -> bytes:  # noqa: N802
        names = data.KEY_SCHEMA
        return _json(
            {
                "Table": {
                    "TableName": TABLE,
                    "TableArn": TABLE_ARN,
                    "TableId": "00000000-0000-4000-8000-000000000001",
                    "TableStatus": "ACTIVE",
                    "KeySchema": [{"AttributeName": n, "KeyType": k} for n, k, _ in names],
                    "AttributeDefinitions": [
                        {"AttributeName": n, "AttributeType": t} for n, _, t in names
                    ],
                    "LatestStreamArn": STREAM_ARN,
                    "StreamSpecification": {
                        "StreamEnabled": True,
                        "StreamViewType": "NEW_AND_OLD_IMAGES",
                    },
                    "ItemCount": self._rows,
                    "TableSizeBytes": self._rows * 400,
                }
            }
        )

    def _DescribeStream(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        if "ShardFilter" in asked:
            return self._listing([], None)
        start = asked.get("ExclusiveStartShardId")
        first = 0 if start is None else _shard_number(start) + 1
        end = min(self._shards, first + LISTED_AT_ONCE)
        last = shard_id(end - 1) if end < self._shards else None
        return self._listing(list(range(first, end)), last)

    def _listing(self, shards: list[int], last: str | None) -> bytes:
        number = str(data.FIRST_SEQUENCE_NUMBER)
        described: dict[str, Any] = {
            "StreamArn": STREAM_ARN,
            "StreamStatus": "ENABLED",
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            "Shards": [
                {
                    "ShardId": shard_id(shard),
                    "SequenceNumberRange": {"StartingSequenceNumber": number},
                }
                for shard in shards
            ],
        }
        if last is not None:
            described["LastEvaluatedShardId"] = last
        return _json({"StreamDescription": described})

    def _GetShardIterator(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        page = 0
        if asked["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            behind = int(asked["SequenceNumber"]) - data.FIRST_SEQUENCE_NUMBER
            page = behind // self._records + 1
        return _json({"ShardIterator": f"{_shard_number(asked['ShardId'])}:{page}"})

    def _GetRecords(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        shard, page = map(int, asked["ShardIterator"].split(":"))
        if page >= self._shown(shard):
            return b'{"NextShardIterator":"%d:%d","Records":[]}' % (shard, page)
        now_s = time.monotonic()
        with self._lock:
            self._served += self._records
            self._first_s = self._first_s or now_s
            self._last_s = now_s
        return self._pages[shard][page]

    def _Scan(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        segment, total = asked.get("Segment", 0), asked.get("TotalSegments", 1)
        start = asked.get("ExclusiveStartKey")
        first = self._rows * segment // total if start is None else data.number_of(start) + 1
        of_segment = self._rows * (segment + 1) // total
        end = min(of_segment, first + data.ITEMS_A_PAGE)
        tail = b'],"ConsumedCapacity":{"TableName":"bench","CapacityUnits":128.0}'
        if end < of_segment:
            tail += b',"LastEvaluatedKey":' + _json(data.key(end - 1))
        now_s = time.monotonic()
        with self._lock:
            self._first_s = self._first_s or now_s
            self._last_s = now_s
        count = b'{"Count":%d,"Items":[' % max(0, end - first)
        return count + data.scan_items(first, end) + tail + b"}"

    # The benchmark's own

    def _Prepare(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        self._records = asked["records"]
        at_s = int(time.time())
        for shard in range(asked["shards"]):
            made = self._pages.setdefault(shard, [])
            for page in range(len(made), asked["pages"]):
                records = data.stream_page(
                    rows=self._rows,
                    shard=shard,
                    shards=asked["shards"],
                    page=page,
                    records=self._records,
                    seed=asked["seed"],
                    at_s=at_s,
                )
                start = b'{"NextShardIterator":"%d:%d","Records":[' % (shard, page + 1)
                made.append(start + records + b"]}")
        return b"{}"

    def _Release(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        for shard in range(asked["shards"]):
            self._released[shard] = self._released.get(shard, 0) + asked["pages"]
        return b"{}"

    def _Drip(self, asked: dict[str, Any]) -> bytes:  # noqa: N802
        for shard in range(asked["shards"]):
            self._drips[shard] = (time.monotonic(), asked["pages_per_s"])
        return _json({"began_s": time.monotonic()})

    def _Told(self, _: dict[str, Any]) -> bytes:  # noqa: N802
        with self._lock:
            told = {
                "served": self._served,
                "first_s": self._first_s,
                "last_s": self._last_s,
                "calls": dict(self._calls),
            }
            self._first_s = self._last_s = None
            self._served = 0
            self._calls.clear()
        return _json(told)

    def _shown(self, shard: int) -> int:
        shown = self._released.get(shard, 0)
        if shard in self._drips:
            began_s, pages_per_s = self._drips[shard]
            shown += math.floor((time.monotonic() - began_s) * pages_per_s)
        return min(shown, len(self._pages.get(shard, ())))


def shard_id(number: int) -> str:
    return f"shardId-00000001700000000000-{number:08x}"


def _shard_number(shard_id: str) -> int:
    return int(shard_id.rsplit("-", 1)[1], 16)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _serve(connection: socket.socket, pages: Pages) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffered = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in buffered:
                try:
                    more = connection.recv(65536)
                except ConnectionResetError:
                    return
                if not more:
                    return
                buffered += more
            head, _, buffered = buffered.partition(b"\r\n\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
            }
            length = int(headers.get(b"content-length", b"0"))
            if headers.get(b"expect", b"").lower() == b"100-continue":
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while len(buffered) < length:
                buffered += connection.recv(65536)
            asked, buffered = buffered[:length], buffered[length:]
            operation = headers[b"x-amz-target"].rsplit(b".", 1)[1].decode()
            body = pages.answer(operation, json.loads(asked))
            date = formatdate(usegmt=True).encode()
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"Date: %b\r\nx-amz-crc32: %d\r\nContent-Length: %d\r\n\r\n%b"
                % (date, zlib.crc32(body), len(body), body)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="A server of canned pages.")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--shards", type=int, required=True)
    arguments = parser.parse_args()
    pages = Pages(rows=arguments.rows, shards=arguments.shards)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_serve, args=(connection, pages), daemon=True).start()


class Canned:
    """A running server; leaving the context ends it."""

    def __init__(self, *, rows: int, shards: int) -> None:
        command = [sys.executable, "-m", "bench.server"]
        self._process = subprocess.Popen(
            [*command, "--rows", str(rows), "--shards", str(shards)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Canned:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def prepare(self, *, shards: int, pages: int, records: int = 1000, seed: int = 1) -> None:
        """Makes the first `pages` of each of the first `shards`; nothing of it shows yet."""
        self._ask("Prepare", shards=shards, pages=pages, records=records, seed=seed)

    def release(self, *, shards: int, pages: int) -> None:
        """Shows so many more pages of each of the first `shards`."""
        self._ask("Release", shards=shards, pages=pages)

    def drip(self, *, shards: int, pages_per_s: float) -> float:
        """From now on shows so many more pages of each shard each second; monotonic "now"."""
        return float(self._ask("Drip", shards=shards, pages_per_s=pages_per_s)["began_s"])

    def told(self) -> dict[str, Any]:
        """Records, calls and monotonic times of the first and last page since the last call."""
        return self._ask("Told")

    def _ask(self, operation: str, **asked: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("POST", "/", _json(asked), {"X-Amz-Target": f"Bench.{operation}"})
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()


if __name__ == "__main__":
    main()
