"""From an HTTP request to the reply that goes on the wire.

Owns the order of things: recognise the call, log it, let faults speak, carry it out, dress the
answer. Must not know sockets.
"""

from __future__ import annotations

import random
import string
import zlib
from dataclasses import dataclass, field

from emulator.clock import http_date
from emulator.core import World
from emulator.dynamodb_api import DynamoDbApi
from emulator.errors import AwsError
from emulator.request import Call, Request, read_call
from emulator.streams_api import StreamsApi

_REQUEST_ID = string.ascii_uppercase + string.digits


@dataclass(slots=True)
class Reply:
    """What goes back, and how it fails on the way."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Front:
    """Answers requests from one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._dynamodb = DynamoDbApi(world)
        self._streams = StreamsApi(world)
        self._ids = random.Random(0)

    def handle(self, request: Request) -> Reply:
        """The reply to a request; never raises for anything a client can send."""
        try:
            call = read_call(request)
            return self._carry_out(call)
        except AwsError as error:
            return self._json(error.status, error.json_body())

    def _carry_out(self, call: Call) -> Reply:
        if call.service == "dynamodb":
            return self._json(200, self._dynamodb.call(call.operation, call.params, call.region))
        if call.service == "dynamodbstreams":
            return self._json(200, self._streams.call(call.operation, call.params, call.region))
        raise AwsError("UnknownOperationException", f"No service {call.service}")

    def _json(self, status: int, body: bytes) -> Reply:
        return Reply(
            status,
            body,
            {
                "Server": "Server",
                "Date": http_date(self.world.clock.now_s()),
                "Content-Type": "application/x-amz-json-1.0",
                "x-amzn-RequestId": "".join(self._ids.choices(_REQUEST_ID, k=52)),
                "x-amz-crc32": str(zlib.crc32(body)),
            },
        )
