"""Nodes with clocks of their own compete for one lease over a table that loses answers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from checkpoints.errors import StoreError
from checkpoints.kv import MemoryItemStore
from checkpoints.lease import Candidate, HeldLease, LeaseStore
from tests.doubles import PIPELINE, FakeClock, Outcome, ScriptedItemStore

pytestmark = [pytest.mark.requirement("R17"), pytest.mark.requirement("R19")]

NODES = 3
ANSWERS = st.lists(
    st.sampled_from(
        [Outcome.APPLIED, Outcome.APPLIED_LOST_RESPONSE, Outcome.NEVER_LANDED, Outcome.DEFINITE]
    ),
    max_size=2,
)


@dataclass
class Node:
    """A process: `rate` is how fast its clock runs. Without `held` it is a candidate."""

    name: str
    rate: float
    clock: FakeClock
    items: ScriptedItemStore
    candidate: Candidate
    held: HeldLease | None = None


class LeaseMachine(RuleBasedStateMachine):
    """Clocks differ by up to 9 % in rate and by any amount in reading; steps come at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = MemoryItemStore()
        self.leases = LeaseStore(self.table, PIPELINE)
        self.nodes: list[Node] = []
        self.starts = 0
        self.epoch = 0
        self.owners: dict[int, str] = {}

    @initialize(rates=st.lists(st.floats(0.95, 1.04), min_size=NODES, max_size=NODES))
    def start_all(self, rates: list[float]) -> None:
        self.nodes = [self.start(rate) for rate in rates]

    def start(self, rate: float) -> Node:
        self.starts += 1
        name = f"node-{self.starts}"
        clock = FakeClock(self.starts * 86_400.0)
        items = ScriptedItemStore(self.table)
        candidate = Candidate(LeaseStore(items, PIPELINE), name, clock)
        return Node(name, rate, clock, items, candidate)

    # What happens

    @rule(seconds=st.sampled_from([0.3, 1.0, 4.0, 5.0, 10.0, 24.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        for node in self.nodes:
            node.clock.advance(seconds * node.rate)

    @rule(
        number=st.integers(0, NODES - 1), answers=ANSWERS, slow_s=st.sampled_from([0.0, 0.0, 3.0])
    )
    def step(self, number: int, answers: list[Outcome], slow_s: float) -> None:
        """One node takes a turn; the others stand still, as if they were stopped."""
        node = self.nodes[number]
        node.items.script.clear()
        node.items.script.extend(answers)
        node.items.before_write = lambda: self.pass_time(slow_s)
        try:
            if node.held is None:
                found = node.candidate.step()
                if isinstance(found, HeldLease):
                    node.held = found
                    assert self.owners.setdefault(found.epoch, node.name) == node.name
            elif node.held.step() is None:
                self.stand_again(node)
        except StoreError:
            return

    @rule(number=st.integers(0, NODES - 1))
    def release(self, number: int) -> None:
        node = self.nodes[number]
        if node.held is not None:
            node.items.script.clear()
            node.held.release()
            self.stand_again(node)

    @rule(number=st.integers(0, NODES - 1))
    def crash(self, number: int) -> None:
        """The process is gone, and another one starts in its place."""
        self.nodes[number] = self.start(self.nodes[number].rate)

    @precondition(lambda self: all(node.held is None for node in self.nodes))
    @rule()
    def wait_long(self) -> None:
        """With a table that answers, somebody is elected."""
        for node in self.nodes:
            node.items.script.clear()
            node.items.before_write = lambda: None
        for _ in range(12):
            for number in range(NODES):
                if self.nodes[number].held is None:
                    self.step(number, [], 0.0)
            if any(node.held for node in self.nodes):
                return
            self.pass_time(5.0)
        raise AssertionError("nobody was elected in a minute")

    # What holds

    @invariant()
    def one_holder_at_a_time(self) -> None:
        """At no moment do two nodes believe that they may write."""
        holders = [node.name for node in self.nodes if node.held and not fenced(node.held)]
        assert len(holders) <= 1, holders

    @invariant()
    def the_row_stays_and_its_epoch_never_falls(self) -> None:
        """Once there is a lease there always is one."""
        row = self.leases.read()
        if row is None:
            assert self.epoch == 0
            return
        assert row.epoch >= self.epoch
        self.epoch = row.epoch

    def stand_again(self, node: Node) -> None:
        node.held = None
        leases = LeaseStore(node.items, PIPELINE)
        node.candidate = Candidate(leases, node.name, node.clock)


def fenced(held: HeldLease) -> bool:
    return held.guard.is_fenced()


TestLease = LeaseMachine.TestCase
TestLease.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
