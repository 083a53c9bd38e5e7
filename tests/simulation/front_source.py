"""A Source without sockets: the emulator's core answers, the real code checks and cuts.

Everything above the transport is `AwsSource`: parameters, checks, cutting, what an error means.
Only sending is replaced. `on_the_way` is called before a request arrives and again before its
answer does: whoever drives the simulation lets others run there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from connector.aws import codes as aws_codes
from connector.aws.source import AwsSettings, AwsSource, check_whole, date_ms
from connector.clock import Clock
from connector.errors import SourceError, Unavailable
from connector.source import RecordsPage, ScanPage
from emulator import Front
from tests.simulation.thrift import CallLog

T = TypeVar("T")

CALLER = "service"
REGION = "us-east-1"

OnTheWay = Callable[[str, bool], None]
"""(operation, whether its answer is under way)"""


class FrontSource(AwsSource):
    """`page_items` makes scan pages small, `knows_at_timestamp` is False for an old endpoint."""

    def __init__(
        self,
        front: Front,
        table: str,
        clock: Clock,
        *,
        on_the_way: OnTheWay = lambda _operation, _is_answer: None,
        page_items: int | None = None,
        knows_at_timestamp: bool = True,
    ) -> None:
        super().__init__(AwsSettings(table, region=REGION), clock=clock)
        self.calls: Counter[str] = Counter()
        self.log = CallLog()
        self._front = front
        self._on_the_way = on_the_way
        self._page_items = page_items
        self._is_young = knows_at_timestamp

    def _knows_at_timestamp(self) -> bool:
        return self._is_young

    def _call(
        self,
        service: str,
        operation: str,
        params: Mapping[str, Any],
        cut: Callable[[bytes, int], T],
        subject: str | None = None,
    ) -> T:
        self.calls[operation] += 1
        about = subject or str(params.get("Segment", ""))
        try:
            answer = self._answer(operation, params, cut, subject)
        except SourceError:
            self.log.in_vain(operation, about, self._clock.monotonic_s())
            raise
        if not _brings_something(answer):
            self.log.in_vain(operation, about, self._clock.monotonic_s())
        return answer

    def _answer(
        self,
        operation: str,
        params: Mapping[str, Any],
        cut: Callable[[bytes, int], T],
        subject: str | None,
    ) -> T:
        self._on_the_way(operation, False)
        sent = dict(params)
        if operation == "Scan" and self._page_items is not None:
            sent["Limit"] = self._page_items
        reply = self._front.call(operation, sent, region=REGION, caller=CALLER)
        self._on_the_way(operation, True)
        what = subject or str(params.get("TableName", ""))
        if reply.delay_s:
            self._clock.sleep(reply.delay_s)
        if reply.is_dropped or reply.sent_bytes is not None:
            raise Unavailable(f"{operation} of {what}: the connection was closed")
        headers = {name.lower(): value for name, value in reply.headers.items()}
        headers.setdefault("content-length", str(len(reply.body)))
        if reply.status >= 300:
            raise _refusal(operation, what, reply.status, reply.body)
        check_whole(operation, reply.body, headers)
        return cut(reply.body, date_ms(operation, headers.get("date")))


def _brings_something(answer: object) -> bool:
    return isinstance(answer, RecordsPage | ScanPage) and answer.changes.num_rows > 0


def _refusal(operation: str, subject: str, status: int, body: bytes) -> SourceError:
    try:
        said = json.loads(body)
        code, message = str(said.get("__type", "")), str(said.get("message", ""))
    except (ValueError, AttributeError):
        return Unavailable(f"{operation} of {subject}: HTTP status {status}")
    return aws_codes.meaning(operation, code, message, status, subject=subject)
