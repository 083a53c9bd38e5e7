"""What each kind of fault does to a call and to its answer.

Owns the doing; which fault hits which call is the plan's. Must not know sockets.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import Any

from emulator.errors import AwsError
from emulator.faults import Fault, FaultKind, When
from emulator.reply import Reply, dropped
from emulator.request import Call

_HTML = b"<html><head><title>Sign in</title></head><body>Please sign in.</body></html>"

_THROTTLES = {
    "DescribeStream": ("ThrottlingException", "Rate exceeded", 400),
    "ListStreams": ("ThrottlingException", "Rate exceeded", 400),
    "GetRecords": (
        "LimitExceededException",
        "Subscriber limit exceeded: more than 2 processes read from the same shard",
        400,
    ),
}
_TABLE_THROTTLE = (
    "ProvisionedThroughputExceededException",
    (
        "The level of configured provisioned throughput for the table was exceeded. Consider "
        "increasing your provisioning level with the UpdateTable API."
    ),
    400,
)
_S3_THROTTLE = ("SlowDown", "Please reduce your request rate.", 503)


def strike_before(struck: list[Fault], call: Call) -> Reply | None:
    """What the faults do before the operation takes effect; a reply ends the call.

    Raises:
        AwsError: the error of the first fault that has one.
    """
    for fault in struck:
        if fault.when is not When.BEFORE:
            continue
        if fault.hold is not None:
            fault.hold.pass_through()
        elif fault.kind in (FaultKind.ERROR, FaultKind.THROTTLE):
            raise error_of(fault, call)
        elif fault.kind is FaultKind.DROP:
            return dropped()
    return None


def strike_after(
    reply: Reply, struck: list[Fault], call: Call, failed: Callable[[Call, AwsError], Reply]
) -> Reply:
    """What the faults do to the answer of an operation that took effect."""
    for fault in struck:
        if fault.kind is FaultKind.LATENCY:
            reply.delay_s += fault.seconds
        elif fault.when is When.AFTER and fault.hold is not None:
            fault.hold.pass_through()
        elif fault.when is When.AFTER and fault.kind is FaultKind.DROP:
            return dropped()
        elif fault.when is When.AFTER and fault.kind in (FaultKind.ERROR, FaultKind.THROTTLE):
            reply = failed(call, error_of(fault, call))
        elif not reply.is_dropped:
            _spoil(reply, fault)
    return reply


def _spoil(reply: Reply, fault: Fault) -> None:
    if fault.kind is FaultKind.CUT:
        reply.sent_bytes = int(len(reply.body) * fault.keep)
    elif fault.kind is FaultKind.HANG:
        reply.sent_bytes, reply.hangs = int(len(reply.body) * fault.keep), True
    elif fault.kind is FaultKind.TRUNCATE:
        reply.body = reply.body[: int(len(reply.body) * fault.keep)]
    elif fault.kind is FaultKind.EMPTY:
        reply.body = b""
    elif fault.kind is FaultKind.CORRUPT:
        reply.body = corrupted(reply.body, fault.rng)
    elif fault.kind is FaultKind.HTML:
        reply.status, reply.body = 200, _HTML
        reply.headers = {"Content-Type": "text/html"}
    elif fault.kind is FaultKind.GZIP:
        reply.body = gzip.compress(reply.body, mtime=0)
        reply.headers["Content-Encoding"] = "gzip"
    elif fault.kind is FaultKind.HEADERS:
        for name, value in fault.headers.items():
            reply.headers.pop(name, None)
            if value is not None:
                reply.headers[name] = value


def corrupted(body: bytes, rng: random.Random) -> bytes:
    """The body with one letter or digit replaced by another, so that JSON stays JSON."""
    places = [place for place, byte in enumerate(body) if chr(byte).isalnum() and byte < 128]
    if not places:
        return body + b"?"
    place = rng.choice(places)
    old = body[place]
    new = ord("7" if old != ord("7") else "3") if chr(old).isdigit() else old ^ 0x02
    if not chr(new).isalnum():
        new = ord("x") if old != ord("x") else ord("y")
    return body[:place] + bytes([new]) + body[place + 1 :]


def error_of(fault: Fault, call: Call) -> AwsError:
    """The error that a fault of kind error or throttle answers with."""
    if fault.kind is FaultKind.ERROR:
        return AwsError(fault.code, fault.message or f"{fault.code} by fault", fault.status)
    default = _S3_THROTTLE if call.service == "s3" else _TABLE_THROTTLE
    code, message, status = _THROTTLES.get(call.operation, default)
    return AwsError(fault.code or code, fault.message or message, fault.status or status)


def withhold_writes(struck: list[Fault], call: Call) -> dict[str, list[Any]]:
    """Takes the last writes out of a BatchWriteItem, as its `UnprocessedItems`."""
    withheld: dict[str, list[Any]] = {}
    if call.operation != "BatchWriteItem":
        return withheld
    batch = call.params.get("RequestItems") or {}
    for fault in struck:
        if fault.kind is not FaultKind.UNPROCESSED:
            continue
        for _ in range(fault.items):
            name = next(reversed(batch), None)
            if name is None or sum(map(len, batch.values())) == 1:
                break
            withheld.setdefault(name, []).append(batch[name].pop())
            if not batch[name]:
                del batch[name]
    return withheld
