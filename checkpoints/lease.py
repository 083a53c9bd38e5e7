"""The lease of a pipeline: who may read the stream and write the log, without comparing clocks.

Owns the lease item and the rules to get, keep and give up the lease. Must not know what it is a
permission for. Two things are never compared: the clocks of two hosts, and a clock with a row.

The holder adds 1 to `heartbeat` every 10 s and trusts the lease for 25 s after the START of the
last granted renewal. Another node may take the lease after it saw the same (owner_node, epoch,
heartbeat) for 30 s of its own monotonic time, from the end of its first read to the start of its
last, by a write conditional on exactly that. The renewal it saw had started before that first read
ended, so the holder stops 5 s earlier, or at once if one of the clocks runs 20 % fast. Even a
holder that was suspended with its clock meets the new leader's fence in the log.

The item is never deleted and its epoch never falls. There are no settings: times are a parameter
for the sake of tests alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from checkpoints.clock import Monotonic
from checkpoints.errors import RowCorrupt, StoreError
from checkpoints.guard import Guard
from checkpoints.keys import LEASE_SK, PipelineKey
from checkpoints.kv import ABSENT, Item, ItemStore


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long things take; two renewals in a row may fail before the lease is lost."""

    observe_s: float = 30.0
    renew_every_s: float = 10.0
    valid_s: float = 25.0
    retry_s: float = 1.0
    look_every_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.retry_s <= self.renew_every_s < self.valid_s < self.observe_s:
            raise ValueError("a lease must be renewed before it ends, and end before it is taken")


LEASE_TIMES: Final = LeaseTimes()


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The lease item. The same owner never comes back under its old epoch."""

    owner_node: str
    epoch: int
    heartbeat: int
    is_released: bool = False
    is_initialized: bool = False

    @property
    def sign_of_life(self) -> tuple[str, int, int]:
        """What changes while the owner lives."""
        return (self.owner_node, self.epoch, self.heartbeat)


class LeaseStore:
    """The lease item of one pipeline. No method deletes it or lowers its epoch."""

    def __init__(self, items: ItemStore, pipeline: PipelineKey) -> None:
        self._items = items
        self._pk = pipeline.pk

    def read(self) -> LeaseRow | None:
        """Raises RowCorrupt when the item is no lease."""
        item = self._items.get(self._pk, LEASE_SK)
        return None if item is None else _row_of(item)

    def create(self, node: str) -> LeaseRow | None:
        """Epoch 1, if there never was a lease; None if there is one."""
        row = LeaseRow(node, epoch=1, heartbeat=0)
        return row if self._items.put(self._pk, LEASE_SK, _item_of(row), ABSENT) else None

    def take(self, seen: LeaseRow, node: str) -> LeaseRow | None:
        """The next epoch for `node`, if the lease still is exactly what was seen; else None."""
        row = replace(
            seen,
            owner_node=node,
            epoch=seen.epoch + 1,
            heartbeat=seen.heartbeat + 1,
            is_released=False,
        )
        taken = self._items.update(self._pk, LEASE_SK, _item_of(row), _item_of(seen))
        return None if taken is None else row

    def renew(self, node: str, epoch: int) -> LeaseRow | None:
        """The row with the next heartbeat; None if the lease is no longer this node's epoch."""
        item = self._items.update(
            self._pk, LEASE_SK, {}, _holder(node, epoch), increment="heartbeat"
        )
        return None if item is None else _row_of(item)

    def release(self, node: str, epoch: int) -> bool:
        """Gives the lease up, so that the next node need not wait; False if it was lost before."""
        changes: Item = {"released": True}
        return self._items.update(self._pk, LEASE_SK, changes, _holder(node, epoch)) is not None

    def mark_initialized(self, node: str, epoch: int) -> bool:
        """Records that a log exists from now on; False if the lease was lost before."""
        changes: Item = {"initialized": True}
        return self._items.update(self._pk, LEASE_SK, changes, _holder(node, epoch)) is not None


class HeldLease:
    """The lease while it is ours. `step` is called when due, by one thread.

    `row` is what the store held when the lease was taken: `is_initialized` says whether a log must
    exist. `guard` is what every durable write asks.
    """

    def __init__(
        self,
        leases: LeaseStore,
        row: LeaseRow,
        clock: Monotonic,
        times: LeaseTimes,
        *,
        started_s: float,
    ) -> None:
        self.row = row
        self.guard = Guard(clock, epoch=row.epoch, deadline_s=started_s + times.valid_s)
        self._leases = leases
        self._clock = clock
        self._times = times
        self._due_s = started_s + times.renew_every_s
        self.last_error: StoreError | None = None

    @property
    def epoch(self) -> int:
        return self.row.epoch

    def step(self) -> float | None:
        """Renews if it is time; when to call again (monotonic seconds), None once fenced."""
        started_s = self._clock.monotonic_s()
        if self.guard.is_fenced():
            return None
        if started_s < self._due_s:
            return self._due_s
        try:
            row = self._leases.renew(self.row.owner_node, self.epoch)
        except StoreError as error:
            # The renewal may have landed: that only makes others wait longer than we trust it.
            self.last_error = error
            self._due_s = self._clock.monotonic_s() + self._times.retry_s
            return None if self.guard.is_fenced() else self._due_s
        if row is None:
            self.guard.fence(f"Another node took the lease of epoch {self.epoch}.")
            return None
        self.last_error = None
        self.guard.renewed(
            started_s=started_s,
            replied_s=self._clock.monotonic_s(),
            valid_s=self._times.valid_s,
        )
        self._due_s = started_s + self._times.renew_every_s
        return None if self.guard.is_fenced() else self._due_s

    def mark_initialized(self) -> None:
        """Records that a log exists. Raises Fenced, StoreError."""
        self.guard.require(self.epoch)
        if not self._leases.mark_initialized(self.row.owner_node, self.epoch):
            self.guard.fence(f"Another node took the lease of epoch {self.epoch}.")
        self.guard.require(self.epoch)

    def release(self) -> bool:
        """Ends the permission first, then tells the others; False if the lease was lost before."""
        self.guard.fence(f"The lease of epoch {self.epoch} was released.")
        return self._leases.release(self.row.owner_node, self.epoch)


class Candidate:
    """A node that wants the lease. `step` is called when due, by one thread.

    `node` must name this start of this process: a write whose answer was lost is recognised by it.
    """

    def __init__(
        self,
        leases: LeaseStore,
        node: str,
        clock: Monotonic,
        times: LeaseTimes = LEASE_TIMES,
    ) -> None:
        self._leases = leases
        self._node = node
        self._clock = clock
        self._times = times
        self._seen: tuple[str, int, int] | None = None
        self._seen_since_s = 0.0
        self._asked: tuple[int, float] | None = None  # epoch and start of an unanswered claim

    def step(self) -> HeldLease | float:
        """One look, and a claim if it is time: the lease, or when to look again (monotonic s).

        Raises:
            StoreError: nothing is known of the lease, or of the claim; look again later.
            RowCorrupt: the item is no lease.
        """
        started_s = self._clock.monotonic_s()
        row = self._leases.read()
        replied_s = self._clock.monotonic_s()
        if row is None:
            return self._claim(None)
        held = self._claimed_before(row)
        if held is not None:
            return held
        if row.is_released:
            return self._claim(row)
        if row.sign_of_life != self._seen:
            self._seen, self._seen_since_s = row.sign_of_life, replied_s
        elif started_s - self._seen_since_s >= self._times.observe_s:
            return self._claim(row)
        due_s = self._seen_since_s + self._times.observe_s
        return min(due_s, replied_s + self._times.look_every_s)

    def _claim(self, seen: LeaseRow | None) -> HeldLease | float:
        started_s = self._clock.monotonic_s()
        epoch = 1 if seen is None else seen.epoch + 1
        unanswered = self._asked if self._asked and self._asked[0] == epoch else None
        # If both this claim and an earlier one stay unanswered, the earlier start is the safe one.
        self._asked = unanswered or (epoch, started_s)
        row = (
            self._leases.create(self._node) if seen is None else self._leases.take(seen, self._node)
        )
        if row is not None:
            self._asked = None
            return self._hold(row, started_s)
        # Refused: another node was first, or the earlier claim did land; the next look tells.
        self._asked = unanswered
        self._seen = None
        return self._clock.monotonic_s()

    def _claimed_before(self, row: LeaseRow) -> HeldLease | None:
        if self._asked is None:
            return None
        epoch, started_s = self._asked
        if row.owner_node != self._node or row.epoch != epoch:
            # It did not land yet. It still may: then its condition no longer holds, or it is ours.
            return None
        self._asked = None
        return self._hold(row, started_s)

    def _hold(self, row: LeaseRow, started_s: float) -> HeldLease:
        self._seen = None
        return HeldLease(self._leases, row, self._clock, self._times, started_s=started_s)


def _holder(node: str, epoch: int) -> Item:
    return {"owner_node": node, "epoch": epoch}


def _item_of(row: LeaseRow) -> Item:
    return {
        "owner_node": row.owner_node,
        "epoch": row.epoch,
        "heartbeat": row.heartbeat,
        "released": row.is_released,
        "initialized": row.is_initialized,
    }


def _row_of(item: Item) -> LeaseRow:
    owner, epoch, heartbeat = item.get("owner_node"), item.get("epoch"), item.get("heartbeat")
    released, initialized = item.get("released"), item.get("initialized")
    if (
        not isinstance(owner, str)
        or type(epoch) is not int
        or type(heartbeat) is not int
        or not isinstance(released, bool)
        or not isinstance(initialized, bool)
    ):
        raise RowCorrupt(
            f"The lease item is not one: {dict(item)!r}.",
            hint="Repair its attributes by hand; never delete it, and never lower its epoch.",
        )
    return LeaseRow(owner, epoch, heartbeat, released, initialized)
