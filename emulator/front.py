"""From a request to the reply that goes on the wire.

Owns the order of things: recognise the call, ask the policy, let faults speak, carry it out, dress
the answer, log it. Must not know sockets: what becomes of a reply on its way stands in the reply.
"""

from __future__ import annotations

import logging
import random
import string
import zlib
from typing import Any

import msgspec

from emulator import sts
from emulator.call_log import CallLog
from emulator.clock import http_date
from emulator.control import Control
from emulator.control_api import ControlApi
from emulator.core import DEFAULT_REGION, World
from emulator.damage import strike_after, strike_before, withhold_writes
from emulator.dynamodb_api import DynamoDbApi
from emulator.errors import AwsError
from emulator.faults import Fault, FaultPlan
from emulator.policy import Policy
from emulator.reply import Reply
from emulator.request import CONTROL_PREFIX, Call, Request, json_call, read_call
from emulator.s3 import S3Api, error_xml
from emulator.streams_api import StreamsApi

_log = logging.getLogger(__name__)
_ID_CHARACTERS = string.ascii_uppercase + string.digits


class Front:
    """Answers calls on one world; everything that a test can set hangs here."""

    def __init__(self, world: World, region: str = DEFAULT_REGION) -> None:
        self.world = world
        self.faults = FaultPlan()
        self.policy = Policy(world.account_id)
        self.calls = CallLog()
        self.control = Control(world, region)
        self._control_api = ControlApi(self.control, self.faults, self.policy, self.calls)
        self._dynamodb = DynamoDbApi(world)
        self._streams = StreamsApi(world)
        self._s3 = S3Api(world.clock.now_s)
        self._ids = random.Random(0)

    def handle(self, request: Request) -> Reply:
        """The reply to an HTTP request; a fault of kind hold makes it wait here."""
        if request.path.startswith(CONTROL_PREFIX):
            status, body = self._control_api.handle(request)
            return self._dressed(Reply(status, {"Content-Type": "application/json"}, body))
        try:
            call = read_call(request)
        except AwsError as error:
            return self._dressed(_json_failure(error))
        return self._answer(call, request)

    def call(
        self,
        operation: str,
        params: dict[str, Any],
        *,
        region: str = DEFAULT_REGION,
        caller: str = "",
    ) -> Reply:
        """The reply to a DynamoDB or Streams operation, without HTTP: for use on virtual time.

        The body is what the wire would carry. Latency and broken connections are written in the
        reply and left to the caller. `params` are not changed.
        """
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
        return self._answer(json_call(operation, copied, region, caller), None)

    def close(self) -> None:
        """Lets held calls go and frees what moto holds."""
        self.faults.clear()
        self._s3.dispose()

    def _answer(self, call: Call, request: Request | None) -> Reply:
        struck: list[Fault] = []
        try:
            self.policy.check(call)
            struck = self.faults.strike(call)
            reply = strike_before(struck, call) or self._carry_out(call, request, struck)
        except AwsError as error:
            reply = _failure(call, error)
        except Exception as error:  # noqa: BLE001  # the boundary: AWS answers 500 and lives on
            _log.exception("%s failed", call.operation)
            reply = _failure(call, _internal(error))
        reply = strike_after(self._dressed(reply), struck, call, self._dressed_failure)
        self.calls.add(call, self.world.clock.now_s(), reply.outcome)
        return reply

    def _carry_out(self, call: Call, request: Request | None, struck: list[Fault]) -> Reply:
        if call.service == "s3" and request is not None:
            return Reply(*self._s3.call(call, request))
        if call.service == "sts":
            body = sts.caller_identity(call, self.world.account_id)
            return Reply(200, {"Content-Type": "text/xml"}, body)
        unprocessed = withhold_writes(struck, call)
        api = self._dynamodb if call.service == "dynamodb" else self._streams
        body = api.call(call.operation, call.params, call.region)
        if unprocessed:
            answer = msgspec.json.decode(body)
            answer["UnprocessedItems"] = unprocessed
            body = msgspec.json.encode(answer)
        return Reply(200, _json_headers(body), body)

    def _dressed_failure(self, call: Call, error: AwsError) -> Reply:
        return self._dressed(_failure(call, error))

    def _dressed(self, reply: Reply) -> Reply:
        reply.headers["Server"] = "Server"
        reply.headers["Date"] = http_date(self.world.clock.now_s())
        reply.headers["x-amzn-RequestId"] = "".join(self._ids.choices(_ID_CHARACTERS, k=52))
        return reply


def _json_headers(body: bytes) -> dict[str, str]:
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "x-amz-crc32": str(zlib.crc32(body)),
    }


def _failure(call: Call, error: AwsError) -> Reply:
    if call.service == "s3":
        body = error_xml(error.code, error.message)
        headers = {"Content-Type": "application/xml"}
        return Reply(error.status, headers, body, outcome=error.code)
    if call.service == "sts":
        body = sts.error_xml(error.code, error.message)
        return Reply(error.status, {"Content-Type": "text/xml"}, body, outcome=error.code)
    return _json_failure(error)


def _json_failure(error: AwsError) -> Reply:
    body = error.json_body()
    return Reply(error.status, _json_headers(body), body, outcome=error.code)


def _internal(error: Exception) -> AwsError:
    return AwsError("InternalServerError", f"{type(error).__name__}: {error}", 500)
