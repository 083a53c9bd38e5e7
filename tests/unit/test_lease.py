"""The lease's rules over a fake clock: when it may be taken, how long it lasts, how it ends."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checkpoints
from checkpoints.errors import Fenced, StoreDenied, StoreError, StoreUnavailable
from checkpoints.guard import Guard, deadline_after
from checkpoints.keys import PipelineKey
from checkpoints.lease import LEASE_TIMES, Candidate, HeldLease, LeaseStore, LeaseTimes
from connector.config.settings import Runtime
from tests.doubles import PIPELINE, FakeClock, Outcome, ScriptedItemStore

INSTANTS = st.floats(0, 1e6)
VALID_S = LEASE_TIMES.valid_s


class World:
    """One table and two nodes with clocks of their own."""

    def __init__(self, *script: Outcome) -> None:
        self.items = ScriptedItemStore(None, *script)
        self.leases = LeaseStore(self.items, PIPELINE)
        self.clock = FakeClock()

    def candidate(self, node: str = "b", clock: FakeClock | None = None) -> Candidate:
        return Candidate(self.leases, node, clock or self.clock)

    def held(self, node: str = "a") -> HeldLease:
        held = self.candidate(node).step()
        assert isinstance(held, HeldLease)
        return held


def error_of(held: HeldLease) -> StoreError | None:
    return held.last_error


@pytest.mark.requirement("R17")
def test_nobody_steals_before_thirty_seconds() -> None:
    """29.999 s of standing still are not enough, 30 s are, of the candidate's own time."""
    world = World()
    world.held("a")
    candidate = world.candidate()
    candidate.step()
    world.clock.advance(29.999)
    assert not isinstance(candidate.step(), HeldLease)
    world.clock.advance(0.001)
    stolen = candidate.step()
    assert isinstance(stolen, HeldLease)
    assert stolen.epoch == 2


@pytest.mark.requirement("R17")
def test_a_renewal_during_the_wait_starts_it_anew() -> None:
    """Any heartbeat within the 30 s defeats the theft, however long the candidate has watched."""
    world = World()
    world.held("a")
    candidate = world.candidate()
    candidate.step()
    for _ in range(5):
        world.clock.advance(29.9)
        world.leases.renew("a", 1)
        assert not isinstance(candidate.step(), HeldLease)
    world.clock.advance(30)
    assert isinstance(candidate.step(), HeldLease)


@pytest.mark.requirement("R17")
def test_a_renewal_between_the_last_look_and_the_claim_defeats_it() -> None:
    """The write is conditional on what the last look saw; the loser watches for 30 s again."""
    world = World()
    world.held("a")
    candidate = world.candidate()
    candidate.step()
    world.clock.advance(30)

    def renews() -> None:
        world.items.before_write = lambda: None
        world.leases.renew("a", 1)

    world.items.before_write = renews
    assert not isinstance(candidate.step(), HeldLease)
    candidate.step()
    world.clock.advance(29.9)
    assert not isinstance(candidate.step(), HeldLease)
    row = world.leases.read()
    assert row is not None
    assert row.sign_of_life == ("a", 1, 1)


@pytest.mark.requirement("R17")
def test_the_observation_counts_from_read_end_to_read_start() -> None:
    """Reads that take long do not count as watching: the row was seen at some time within them."""
    world = World()
    world.held("a")

    class SlowStore(ScriptedItemStore):
        def get(self, pk: str, sk: str):  # type: ignore[no-untyped-def]
            world.clock.advance(10)
            return super().get(pk, sk)

    candidate = Candidate(LeaseStore(SlowStore(world.items), PIPELINE), "b", world.clock)
    first_due_s = candidate.step()
    seen_s = world.clock.now_s
    assert first_due_s == seen_s + LEASE_TIMES.look_every_s
    world.clock.now_s = seen_s + 25
    assert candidate.step() == seen_s + 30  # it ends at +35, but it started at +25
    world.clock.now_s = seen_s + 30
    assert isinstance(candidate.step(), HeldLease)


@pytest.mark.requirement("R17")
@pytest.mark.requirement("R12")
def test_no_wall_clock_exists_here() -> None:
    """A wall clock that jumps by a day changes nothing: only the stamp of a row, which nobody
    reads, ever asks for the time of day.
    """
    asks = re.compile(r"\b(datetime\.\w+|time\.\w+|import time)\b")
    found = {
        (path.name, hit)
        for path in Path(checkpoints.__file__).parent.glob("*.py")
        for hit in asks.findall(path.read_text())
    }
    assert found == {("offsets.py", "datetime.now")}


@pytest.mark.requirement("R18")
def test_the_deadline_runs_from_the_start_of_the_request() -> None:
    """A slow answer does not make the lease last longer."""
    world = World()
    held = world.held()
    world.clock.advance(10)
    started_s = world.clock.now_s
    world.items.before_write = lambda: world.clock.advance(7)
    assert held.step() == started_s + LEASE_TIMES.renew_every_s
    assert held.guard.remaining_s() == pytest.approx(VALID_S - 7)


@pytest.mark.requirement("R18")
@settings(deadline=None, max_examples=100)
@given(INSTANTS, INSTANTS, st.floats(0, 100))
def test_a_late_answer_shortens_and_never_lengthens(
    deadline_s: float, started_s: float, took_s: float
) -> None:
    """After an answer the deadline is start + validity; if it came late, what it was."""
    replied_s = started_s + took_s
    after_s = deadline_after(deadline_s, started_s=started_s, replied_s=replied_s, valid_s=VALID_S)
    if replied_s >= deadline_s:
        assert after_s == deadline_s
    else:
        assert after_s == started_s + VALID_S
    assert after_s <= max(deadline_s, started_s + VALID_S)


@pytest.mark.requirement("R20")
def test_an_expired_deadline_has_no_way_back() -> None:
    """Once the deadline has passed, not even a granted renewal allows another write."""
    world = World()
    held = world.held()
    world.clock.advance(10)
    world.items.before_write = lambda: world.clock.advance(VALID_S)
    assert held.step() is None
    row = world.leases.read()
    assert row is not None
    assert row.heartbeat == 1  # it was granted, too late
    for _ in range(2):
        with pytest.raises(Fenced):
            held.guard.require(1)
    assert held.step() is None
    assert held.guard.remaining_s() == 0


@pytest.mark.requirement("R20")
def test_a_guard_speaks_for_one_epoch() -> None:
    """Another epoch than the lease's is refused, higher or lower."""
    guard = Guard(FakeClock(), epoch=3, deadline_s=1e9)
    guard.require(3)
    for epoch in (2, 4):
        with pytest.raises(Fenced):
            guard.require(epoch)


@pytest.mark.requirement("R20")
def test_the_first_reason_of_a_fence_is_kept() -> None:
    """What an operator reads is why it ended, not what happened afterwards."""
    guard = Guard(FakeClock(), epoch=3, deadline_s=1e9)
    assert guard.fenced_by() is None
    guard.fence("taken")
    guard.fence("released")
    assert guard.fenced_by() == "taken"


def test_two_failed_renewals_do_not_lose_the_lease() -> None:
    """Failed renewals are tried again each second while the lease lasts, then it is fenced."""
    world = World()
    held = world.held()
    world.clock.advance(10)
    world.items.script.extend([Outcome.NEVER_LANDED, Outcome.DEFINITE])
    assert held.step() == world.clock.now_s + LEASE_TIMES.retry_s
    assert isinstance(error_of(held), StoreUnavailable)
    world.clock.advance(1)
    assert held.step() is not None
    assert isinstance(error_of(held), StoreDenied)
    world.clock.advance(1)
    assert held.step() == world.clock.now_s + LEASE_TIMES.renew_every_s
    assert error_of(held) is None
    world.items.script.extend([Outcome.NEVER_LANDED] * 100)
    lost_at_s = world.clock.now_s + VALID_S
    due_s: float | None = world.clock.now_s
    while due_s is not None:
        assert due_s <= lost_at_s
        world.clock.now_s = due_s
        due_s = held.step()
    assert held.guard.is_fenced()


def test_a_renewal_whose_answer_was_lost_is_sent_again() -> None:
    """The condition names owner and epoch alone, so that a repetition is not refused."""
    world = World()
    held = world.held()
    world.clock.advance(10)
    world.items.script.append(Outcome.APPLIED_LOST_RESPONSE)
    held.step()
    world.clock.advance(1)
    assert held.step() is not None
    row = world.leases.read()
    assert row is not None
    assert row.heartbeat == 2


def test_nothing_is_renewed_before_it_is_due() -> None:
    """One write in ten seconds, however often step is called."""
    world = World()
    held = world.held()
    world.items.calls.clear()
    for _ in range(9):
        world.clock.advance(1)
        held.step()
    assert world.items.calls == []
    world.clock.advance(1)
    held.step()
    assert world.items.calls == ["update"]


@pytest.mark.parametrize("landed", [Outcome.APPLIED_LOST_RESPONSE, Outcome.NEVER_LANDED])
def test_a_claim_whose_answer_was_lost_is_recognised(landed: Outcome) -> None:
    """If it landed it is ours, from the start of its request; if not, it is made again."""
    world = World(landed)
    candidate = world.candidate("a")
    asked_s = world.clock.now_s
    with pytest.raises(StoreUnavailable):
        candidate.step()
    world.clock.advance(3)
    held = candidate.step()
    assert isinstance(held, HeldLease)
    assert held.epoch == 1
    lasted_s = 3 if landed is Outcome.APPLIED_LOST_RESPONSE else 0
    assert held.guard.remaining_s() == VALID_S - (world.clock.now_s - asked_s if lasted_s else 0)


def test_a_claim_that_landed_late_is_recognised_after_a_refusal() -> None:
    """A claim that times out, lands later and so defeats its own repetition, is ours."""
    world = World()
    world.held("a").release()
    late = world.leases.read()
    assert late is not None
    candidate = world.candidate("b")
    world.items.script.append(Outcome.NEVER_LANDED)
    with pytest.raises(StoreUnavailable):
        candidate.step()

    def lands() -> None:
        world.items.before_write = lambda: None
        LeaseStore(world.items.inner, PIPELINE).take(late, "b")

    world.items.before_write = lands
    assert not isinstance(candidate.step(), HeldLease)
    held = candidate.step()
    assert isinstance(held, HeldLease)
    assert held.epoch == 2


def test_a_node_does_not_slip_back_into_its_old_lease() -> None:
    """A fenced holder watches its own old row like anybody else's, then takes epoch + 1."""
    world = World()
    held = world.held("a")
    world.clock.advance(VALID_S)
    assert held.guard.is_fenced()
    candidate = world.candidate("a")
    assert not isinstance(candidate.step(), HeldLease)
    world.clock.advance(30)
    again = candidate.step()
    assert isinstance(again, HeldLease)
    assert again.epoch == 2


def test_a_holder_stops_before_anyone_can_start() -> None:
    """The holder's trust ends 5 s before the earliest theft, even when its last renewal was seen
    the moment its request started.
    """
    assert LEASE_TIMES.observe_s - LEASE_TIMES.valid_s == 5
    with pytest.raises(ValueError, match="end before"):
        LeaseTimes(observe_s=25.0)


@pytest.mark.requirement("R17")
@pytest.mark.parametrize("rate", [1.0, 1.1, 1.19])
def test_a_thief_with_a_fast_clock_comes_too_late(rate: float) -> None:
    """Though its clock runs up to a fifth faster, the holder's trust is over when it may steal."""
    world = World()
    held = world.held("a")
    fast = FakeClock()
    candidate = world.candidate("b", fast)
    found = candidate.step()
    while not isinstance(found, HeldLease):
        fast.advance(0.1 * rate)
        world.clock.advance(0.1)
        found = candidate.step()
    assert held.guard.is_fenced()


@pytest.mark.requirement("R35")
def test_lease_times_are_the_documented_constants() -> None:
    """30 s of observation and a renewal each 10 s; no setting changes them."""
    assert (LEASE_TIMES.observe_s, LEASE_TIMES.renew_every_s) == (30.0, 10.0)


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R30")
def test_no_setting_exists_for_what_is_fixed() -> None:
    """Lease time-outs, quorum, TTL, peers, namespaces and lease backends cannot be configured."""
    names = {field.name for field in dataclasses.fields(Runtime)}
    assert {"tenant", "workspace", "pipeline", "cluster_id"} <= names
    for word in ("lease", "quorum", "ttl", "peer", "namespace", "heartbeat", "epoch"):
        assert not [name for name in names if word in name]


@pytest.mark.requirement("R19")
def test_nothing_here_deletes_a_lease() -> None:
    """The lease module has no delete call, so that epochs have a memory."""
    source = (Path(checkpoints.__file__).parent / "lease.py").read_text()
    assert ".delete(" not in source


@pytest.mark.requirement("R30")
def test_leases_of_two_pipelines_are_apart() -> None:
    """The lease's place is derived from tenant, workspace and pipeline alone."""
    world = World()
    world.held("a")
    other = LeaseStore(world.items, PipelineKey("acme", "prod", "customers"))
    assert other.read() is None
