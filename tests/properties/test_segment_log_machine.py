"""Writers that pause, crash and outlive their lease over a store that loses answers: one history.

The source is a row of numbered events. Every leader reads on from where the log says, as the real
one does. Leases are at their worst here: a new leader may be elected at any time while the old ones
still believe in theirs, so nothing but the store itself keeps them apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpoints.errors import BaseNeeded, Fenced, StoreDenied
from checkpoints.guard import Guard
from checkpoints.object_store import MemoryObjectStore
from checkpoints.progress import Progress
from checkpoints.segment import SegmentKind
from checkpoints.segment_log import GENESIS, Head, SegmentLog, SegmentWriter, continued
from tests.doubles import (
    PIPELINE,
    FakeClock,
    Outcome,
    ScriptedObjectStore,
    TextCodec,
    delta,
    guard_of,
    log_of,
    writer_of,
)

pytestmark = [pytest.mark.requirement("R20"), pytest.mark.requirement("R29")]

SCRIPTS = st.lists(st.sampled_from(Outcome), max_size=4)
CODEC = TextCodec()


def position(progress: Progress) -> int:
    """How many events the log holds."""
    return progress["orders"].shards[0].records if "orders" in progress else 0


@dataclass
class Leader:
    """A process that was elected once."""

    store: ScriptedObjectStore
    clock: FakeClock
    guard: Guard
    writer: SegmentWriter[str]
    pending: list[int] = field(default_factory=list)


class SegmentLogMachine(RuleBasedStateMachine):
    """Leaders, one follower, one bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = MemoryObjectStore()
        self.log: SegmentLog[str] = log_of(self.bucket)
        self.leaders: list[Leader] = []
        self.graves: list[ScriptedObjectStore] = []
        self.epoch = 0
        self.events = 0
        self.acknowledged: set[int] = set()
        self.tip = GENESIS
        self.followed: list[int] = []
        self.progress: Progress = {}

    # What happens

    @rule(count=st.integers(1, 5))
    def produce(self, count: int) -> None:
        self.events += count

    @precondition(lambda self: len(self.leaders) < 3)
    @rule(script=SCRIPTS)
    def elect(self, script: list[Outcome]) -> None:
        self.epoch += 1
        store = ScriptedObjectStore(self.bucket, *script)
        clock = FakeClock()
        guard = guard_of(clock, self.epoch)
        head = log_of(store).head(must_exist=self.log.head() != Head(GENESIS, {}))
        writer = writer_of(store, clock, guard, node=f"node-{self.epoch}", head=head)
        self.leaders.append(Leader(store, clock, guard, writer))

    @precondition(lambda self: self.leaders)
    @rule(data=st.data(), script=SCRIPTS, count=st.integers(1, 3))
    def lead(self, data: st.DataObject | _Chosen, script: list[Outcome], count: int) -> None:
        """One leader does its next thing: claims, settles, or appends what it reads."""
        leader = data.draw(st.sampled_from(self.leaders))
        leader.store.script.extend(script)
        try:
            if not leader.writer.is_active:
                leader.writer.claim()
                return
            if not leader.pending:
                start = position(leader.writer.head.progress)
                leader.pending = list(range(start, min(start + count, self.events)))
                if not leader.pending:
                    return
                end = leader.pending[-1] + 1
                leader.writer.append(
                    SegmentKind.CHANGES, "orders", json.dumps(leader.pending), delta(records=end)
                )
            else:
                leader.writer.settle()
        except StoreDenied:
            return
        except Fenced:
            self.bury(leader)
            return
        self.acknowledged.update(leader.pending)
        leader.pending = []

    @precondition(lambda self: self.leaders)
    @rule(data=st.data(), patience_s=st.sampled_from([0.05, 1.0, 10.0]))
    def lead_without_answers(self, data: st.DataObject, patience_s: float) -> None:
        """A leader that hears nothing until its lease is over."""
        leader = data.draw(st.sampled_from(self.leaders))
        leader.clock.on_sleep = lambda: (
            leader.guard.fence("the lease is over")
            if sum(leader.clock.slept) > patience_s
            else None
        )
        leader.store.script.extend([Outcome.IN_FLIGHT, Outcome.NEVER_LANDED] * 20)
        self.lead(data=_Chosen(leader), script=[], count=2)

    @precondition(lambda self: self.leaders)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.bury(data.draw(st.sampled_from(self.leaders)))

    @rule()
    def deliver(self) -> None:
        """All that was in flight arrives, from the dead too."""
        for store in [*self.graves, *(leader.store for leader in self.leaders)]:
            store.deliver()

    @rule()
    def follow(self) -> None:
        """The follower replays what is new, from a base where it has to."""
        try:
            self._replay()
        except BaseNeeded as needed:
            base = self.log.base(needed.index)
            self.tip, self.followed = base.tip, json.loads(CODEC.text(base.data))
            self.progress = continued({}, base.header)
            self._replay()

    @rule()
    def compact(self) -> None:
        """A base is published, and what it holds expires: longer ago than any lease or request."""
        self.follow()
        if self.tip == GENESIS:
            return
        self.log.publish_base(Head(self.tip, self.progress), json.dumps(self.followed))
        for leader in list(self.leaders):
            if leader.writer.head.tip.index < self.tip.index:
                self.bury(leader)
        self.graves.clear()
        for index in range(1, self.tip.index + 1):
            self.bucket.expire(PIPELINE.segment_key(index))

    # What holds

    @invariant()
    def a_single_history(self) -> None:
        """Contiguous from the newest base, epochs never fall, each event once and in order."""
        bases = self.log.bases()
        tip, events = GENESIS, []
        if bases:
            base = self.log.base(bases[-1])
            tip, events = base.tip, json.loads(CODEC.text(base.data))
        epoch = tip.epoch
        for segment in self.log.after(tip):
            assert segment.header.epoch >= epoch
            epoch = segment.header.epoch
            if segment.header.kind is not SegmentKind.FENCE:
                events += json.loads(CODEC.text(segment.data))
        assert events == list(range(len(events)))
        assert self.acknowledged <= set(events)
        head = self.log.head()
        assert position(head.progress) == len(events)
        assert self.followed == events[: len(self.followed)]

    def _replay(self) -> None:
        for segment in self.log.after(self.tip):
            if segment.header.kind is not SegmentKind.FENCE:
                self.followed += json.loads(CODEC.text(segment.data))
            self.tip = segment.tip
            self.progress = continued(self.progress, segment.header)

    def bury(self, leader: Leader) -> None:
        self.leaders.remove(leader)
        self.graves.append(leader.store)


class _Chosen:
    """Stands for a draw that was made already."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def draw(self, strategy: object) -> Leader:
        return self._leader


TestSegmentLog = SegmentLogMachine.TestCase
TestSegmentLog.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
