"""Faults: what shall go wrong with which calls, how often, and by which chance.

Owns the matching and counting of faults. Must not know sockets or how a call is carried out. Safe
for threads.
"""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from emulator.errors import validation
from emulator.request import Call


class FaultKind(StrEnum):
    """What goes wrong."""

    ERROR = "error"
    """An AWS error: `code`, `message`, `status`."""
    THROTTLE = "throttle"
    """The error with which the operation is throttled."""
    DROP = "drop"
    """The connection closes without an answer."""
    CUT = "cut"
    """The connection closes in the middle of the body that Content-Length announced."""
    TRUNCATE = "truncate"
    """The body ends early and Content-Length agrees, as behind a broken proxy."""
    EMPTY = "empty"
    """A 200 without a body."""
    CORRUPT = "corrupt"
    """One character of the body is another; the CRC in the header is of the right one."""
    HTML = "html"
    """A 200 with an HTML page, as from a captive portal."""
    GZIP = "gzip"
    """The body comes compressed though nobody asked."""
    HANG = "hang"
    """The headers come, part of the body comes, and then nothing."""
    LATENCY = "latency"
    """The answer waits for `seconds`."""
    HOLD = "hold"
    """The answer waits until somebody releases it."""
    HEADERS = "headers"
    """Some headers are others, or missing (None)."""
    UNPROCESSED = "unprocessed"
    """BatchWriteItem leaves its last `items` writes undone and says so."""


class When(StrEnum):
    """Whether the operation took effect."""

    BEFORE = "before"
    AFTER = "after"


_numbers = itertools.count(1)


@dataclass(slots=True)
class Fault:
    """One rule. Patterns are shell-like; None matches everything.

    operation: `GetRecords`, `Get*`, or with the service `s3:PutObject`.
    table, shard: for S3 the bucket and the key.
    when: before or after the operation takes effect; hold is after, all others before.
    skip: so many matching calls pass first. count: so many are hit (None: until removed).
    probability, seed: each matching call is hit by this chance, the same way for the same seed.
    """

    kind: FaultKind
    operation: str = "*"
    table: str | None = None
    shard: str | None = None
    caller: str | None = None
    when: When | None = None
    skip: int = 0
    count: int | None = None
    probability: float = 1.0
    seed: int = 0
    code: str = ""
    message: str = ""
    status: int = 0
    seconds: float = 0.0
    keep: float = 0.5
    items: int = 1
    headers: dict[str, str | None] = field(default_factory=dict)
    fault_id: int = field(default_factory=lambda: next(_numbers))
    hits: int = 0
    seen: int = 0
    hold: Hold | None = None
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.kind = FaultKind(self.kind)
        if self.when is None:
            # A held call has read its page already: the race that tests want is after that.
            self.when = When.AFTER if self.kind is FaultKind.HOLD else When.BEFORE
        self.when = When(self.when)
        self.rng = random.Random(self.seed)
        if not 0 <= self.keep <= 1:
            raise validation("keep is the part of the body that comes, between 0 and 1.")
        if self.kind is FaultKind.ERROR and not self.code:
            raise validation("A fault of kind error needs a code.")
        if self.kind is FaultKind.HOLD:
            self.hold = Hold()
            if self.count is None:
                self.count = 1

    @property
    def ends_the_call(self) -> bool:
        """Whether the call has no answer of its own after this."""
        return self.kind in (FaultKind.ERROR, FaultKind.THROTTLE, FaultKind.DROP)

    def matches(self, call: Call) -> bool:
        """Whether the rule is about this call, chance and counts aside."""
        service, _, operation = self.operation.rpartition(":")
        return (
            fnmatchcase(call.operation, operation)
            and (not service or fnmatchcase(call.service, service))
            and (self.table is None or fnmatchcase(call.table or "", self.table))
            and (self.shard is None or fnmatchcase(call.shard_id or "", self.shard))
            and (self.caller is None or fnmatchcase(call.caller, self.caller))
        )

    def strikes(self) -> bool:
        """Counts a matching call; whether it is hit."""
        self.seen += 1
        if self.seen <= self.skip or (self.count is not None and self.hits >= self.count):
            return False
        if self.probability < 1.0 and self.rng.random() >= self.probability:
            return False
        self.hits += 1
        return True

    def describe(self) -> dict[str, Any]:
        """The rule and its counts, for the control endpoint."""
        shown: dict[str, Any] = {
            "id": self.fault_id,
            "kind": self.kind.value,
            "operation": self.operation,
            "table": self.table,
            "shard": self.shard,
            "when": When(self.when or When.BEFORE).value,
            "count": self.count,
            "hits": self.hits,
            "seen": self.seen,
        }
        if self.hold is not None:
            shown["held"] = self.hold.held
        return shown


class Hold:
    """A gate that a call waits at. Whoever placed it learns of the arrival, then opens it."""

    def __init__(self) -> None:
        self._reached = threading.Semaphore(0)
        self._released = threading.Event()
        self._lock = threading.Lock()
        self.held = 0

    def wait_reached(self, timeout_s: float = 10.0) -> None:
        """Waits until a call stands at the gate; each arrival is waited for once.

        Raises:
            TimeoutError: none came.
        """
        if not self._reached.acquire(timeout=timeout_s):
            raise TimeoutError("No call reached the hold.")

    def release(self) -> None:
        """Lets every call pass that stands at the gate or comes later."""
        self._released.set()

    def pass_through(self) -> None:
        """Stands at the gate until it opens; called by the held call."""
        with self._lock:
            self.held += 1
        self._reached.release()
        self._released.wait()
        with self._lock:
            self.held -= 1


class FaultPlan:
    """The rules in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[int, Fault] = {}

    def add(self, kind: FaultKind | str, **options: Any) -> Fault:
        """Adds a rule and returns it; its `hits` count as it strikes."""
        try:
            fault = Fault(FaultKind(kind), **options)
        except (TypeError, ValueError) as error:
            raise validation(f"No such fault: {error}") from error
        with self._lock:
            self._faults[fault.fault_id] = fault
        return fault

    def get(self, fault_id: int) -> Fault:
        """The rule of this number.

        Raises:
            AwsError: ValidationException when there is none.
        """
        with self._lock:
            fault = self._faults.get(fault_id)
        if fault is None:
            raise validation(f"No fault {fault_id}.")
        return fault

    def remove(self, fault: Fault) -> None:
        """Ends a rule; calls that it holds go on."""
        with self._lock:
            self._faults.pop(fault.fault_id, None)
        if fault.hold is not None:
            fault.hold.release()

    def clear(self) -> None:
        """Ends every rule."""
        for fault in self.all():
            self.remove(fault)

    def all(self) -> list[Fault]:
        with self._lock:
            return list(self._faults.values())

    def strike(self, call: Call) -> list[Fault]:
        """The rules that hit this call, oldest first; counts them.

        Of those that end a call only the oldest strikes: the others wait for the next call.
        """
        if not self._faults:
            return []
        struck: list[Fault] = []
        is_over = False
        with self._lock:
            for fault in self._faults.values():
                if (is_over and fault.ends_the_call) or not fault.matches(call):
                    continue
                if fault.strikes():
                    struck.append(fault)
                    is_over = is_over or fault.ends_the_call
        return struck
