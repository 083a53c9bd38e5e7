"""The control endpoint: the levers, faults, denials and call log over HTTP, as JSON.

Owns the paths under `/_emulator/` and their parameters. Must not know what the levers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from emulator.call_log import CallLog
from emulator.control import Control, describe_shard
from emulator.errors import AwsError, validation
from emulator.faults import FaultPlan
from emulator.policy import Policy
from emulator.request import CONTROL_PREFIX, Request

_Verb = Callable[[dict[str, Any]], Any]


class ControlApi:
    """Every path and what it calls. A GET takes its parameters from the query."""

    def __init__(self, control: Control, faults: FaultPlan, policy: Policy, calls: CallLog) -> None:
        self._control = control
        self._faults = faults
        self._policy = policy
        self._calls = calls
        self.verbs: dict[str, _Verb] = {
            "GET /": lambda _: {"paths": sorted(self.verbs)},
            "GET /state": lambda _: control.state(),
            "GET /faults": lambda _: {"faults": [fault.describe() for fault in faults.all()]},
            "POST /faults": lambda body: faults.add(**_with(body, "kind")).describe(),
            "POST /faults/remove": self._remove_fault,
            "POST /faults/clear": lambda _: faults.clear(),
            "POST /holds/wait": self._wait_hold,
            "POST /holds/release": self._release_hold,
            "GET /calls": self._list_calls,
            "POST /calls/clear": lambda _: calls.clear(),
            "POST /policy": self._set_policy,
            "POST /configure": lambda body: control.configure(**body),
            "POST /clock/advance": lambda body: {"now": control.advance(**_with(body, "seconds"))},
            "POST /split": lambda body: {
                "shards": [
                    describe_shard(shard) for shard in control.split(**_with(body, "stream"))
                ]
            },
            "POST /rollover": lambda body: {
                "shards": [
                    describe_shard(shard) for shard in control.rollover(**_with(body, "stream"))
                ]
            },
            "POST /trim": lambda body: {"trimmed": control.trim(**_with(body, "stream"))},
            "POST /vanish": lambda body: control.vanish(**_with(body, "stream", "shard_id")),
            "POST /hide": lambda body: control.hide(**_with(body, "stream", "shard_id")),
            "POST /show-open": lambda body: control.show_open(**_with(body, "stream", "shard_id")),
            "POST /show-all": lambda body: control.show_all(**_with(body, "stream")),
            "POST /expire-iterators": lambda body: control.expire_iterators(**body),
            "POST /expire-ttl": lambda body: {
                "expired": control.expire_ttl(**_with(body, "table"))
            },
        }

    def handle(self, request: Request) -> tuple[int, bytes]:
        """Status and JSON of the answer to a control request."""
        name = f"{request.method} {request.path.removeprefix(CONTROL_PREFIX).rstrip('/') or '/'}"
        verb = self.verbs.get(name)
        if verb is None:
            return 404, msgspec.json.encode({"error": f"No {name}.", "paths": sorted(self.verbs)})
        try:
            answer = verb(_parameters(request))
        except AwsError as error:
            return 400, msgspec.json.encode({"error": error.message})
        except TimeoutError as error:
            return 408, msgspec.json.encode({"error": str(error)})
        except (TypeError, ValueError) as error:
            return 400, msgspec.json.encode({"error": f"{name}: {error}"})
        return 200, msgspec.json.encode({} if answer is None else answer)

    def _remove_fault(self, body: dict[str, Any]) -> None:
        self._faults.remove(self._faults.get(_with(body, "id")["id"]))

    def _wait_hold(self, body: dict[str, Any]) -> None:
        hold = self._faults.get(_with(body, "id")["id"]).hold
        if hold is None:
            raise validation("That fault is no hold.")
        hold.wait_reached(float(body.get("timeout_s", 10.0)))

    def _release_hold(self, body: dict[str, Any]) -> None:
        hold = self._faults.get(_with(body, "id")["id"]).hold
        if hold is None:
            raise validation("That fault is no hold.")
        hold.release()

    def _list_calls(self, query: dict[str, Any]) -> dict[str, Any]:
        found = self._calls.calls(
            query.get("operation", "*"),
            table=query.get("table"),
            shard_id=query.get("shard_id"),
            after=int(query.get("after", 0)),
        )
        return {"counts": self._calls.counts(), "calls": [call.describe() for call in found]}

    def _set_policy(self, body: dict[str, Any]) -> None:
        """Replaces the denials: `deny` a list, `allow_only` a list or null."""
        unknown = body.keys() - {"deny", "allow_only"}
        if unknown:
            raise validation(f"No {', '.join(sorted(unknown))}; there are deny and allow_only.")
        self._policy.allow_all()
        self._policy.deny(*body.get("deny", ()))
        if body.get("allow_only") is not None:
            self._policy.allow_only(body["allow_only"])


def _parameters(request: Request) -> dict[str, Any]:
    if request.method == "GET":
        return {name: values[-1] for name, values in parse_qs(request.query).items()}
    if not request.body:
        return {}
    try:
        return msgspec.json.decode(request.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise validation(f"The body is no JSON object: {error}") from error


def _with(body: dict[str, Any], *needed: str) -> dict[str, Any]:
    missing = [name for name in needed if name not in body]
    if missing:
        raise validation(f"Missing: {', '.join(missing)}.")
    return body
