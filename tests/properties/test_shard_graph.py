"""The shard graph against random histories of a stream, of faults and of kills.

Every record is applied once or is under a gap; a child never starts before its parent's last record
is applied; no shard is forgotten; nobody starts at now; nothing is polled in a busy loop; and what
`covered_until` claims is true.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import HOUR_MS
from tests.model_stream import ModelStream
from tests.properties.shard_world import ShardWorld, faults

FEW, MANY = 25, 3000


class ShardGraphMachine(RuleBasedStateMachine):
    """Hypothesis chooses the moves, so that a failing history shrinks to its core."""

    @initialize(
        roots=st.integers(1, 3),
        page=st.integers(1, 4),
        listing_page=st.integers(1, 4),
        knows_timestamps=st.booleans(),
        older=st.integers(0, 3),
        closed=st.integers(0, 2),
    )
    def begin(
        self,
        roots: int,
        page: int,
        listing_page: int,
        knows_timestamps: bool,
        older: int,
        closed: int,
    ) -> None:
        stream = ModelStream(
            roots=roots,
            page_records=page,
            listing_page=listing_page,
            knows_timestamps=knows_timestamps,
        )
        self.world = new_world(stream, older, closed)

    @rule(pick=st.integers(0, 50), count=st.integers(1, 5))
    def write(self, pick: int, count: int) -> None:
        ids = self.world.open_ids()
        if ids:
            self.world.write(ids[pick % len(ids)], count)

    @rule(
        pick=st.integers(0, 50),
        children=st.sampled_from([0, 1, 1, 2]),
        hidden_s=st.sampled_from([0, 0, 1, 8]),
        shown_open=st.booleans(),
    )
    def split(self, pick: int, children: int, hidden_s: int, shown_open: bool) -> None:
        ids = self.world.open_ids()
        if ids and len(self.world.stream.shards) < 25:
            self.world.split(
                ids[pick % len(ids)], children, hidden_ms=1000 * hidden_s, shown_open=shown_open
            )

    @rule(pick=st.integers(0, 50), pages=st.integers(1, 2))
    def turn_sparse(self, pick: int, pages: int) -> None:
        make_sparse(self.world, pick, pages)

    @rule()
    def show_ends(self) -> None:
        self.world.settle_shown()

    @precondition(lambda self: self.world.graph.has_begun)
    @rule()
    def add_root(self) -> None:
        self.world.add_root()

    @rule(pick=st.integers(0, 50))
    def vanish(self, pick: int) -> None:
        vanish(self.world, pick)

    @rule(elapsed_ms=st.sampled_from([1, 700, 3_000, 20_000, 90_000, 950_000]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.world.pass_ms(elapsed_ms)

    @rule(hours=st.sampled_from([13, 25, 80]))
    def pass_hours(self, hours: int) -> None:
        self.world.pass_ms(hours * HOUR_MS)

    @rule(days=st.integers(0, 2))
    def jump_host_clock(self, days: int) -> None:
        self.world.jump_host_clock(86_400.0 * days)

    @rule(takes=st.integers(1, 4))
    def take(self, takes: int) -> None:
        for _ in range(takes):
            self.world.take()

    @precondition(lambda self: self.world.taken)
    @rule(pick=st.integers(0, 50))
    def answer(self, pick: int) -> None:
        self.world.answer(pick % len(self.world.taken))

    @precondition(lambda self: self.world.taken)
    @rule(pick=st.integers(0, 50), fault=st.sampled_from(range(len(faults()))))
    def fail(self, pick: int, fault: int) -> None:
        self.world.answer(pick % len(self.world.taken), faults()[fault])

    @rule(rounds=st.integers(1, 10))
    def read(self, rounds: int) -> None:
        read(self.world, rounds)

    @rule()
    def list_page(self) -> None:
        self.world.list_page()

    @rule(fault=st.booleans())
    def ask(self, fault: bool) -> None:
        self.world.ask(fault)

    @rule(most=st.integers(1, 6))
    def commit(self, most: int) -> None:
        self.world.commit(most)

    @rule()
    def beat(self) -> None:
        self.world.beat()

    @rule()
    def collect(self) -> None:
        self.world.collect()

    @rule(now_s=st.sampled_from([0.0, 5e5, 1e9]))
    def kill(self, now_s: float) -> None:
        self.world.restart(now_s)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


def new_world(stream: ModelStream, older: int, closed: int) -> ShardWorld:
    """A stream with a past: shards that ended, and records from before the cut and after it."""
    for shard in stream.open_shards()[:closed]:
        stream.write(shard.shard_id)
        stream.close(shard.shard_id, 1)
    for shard in stream.open_shards():
        for _ in range(older):
            stream.write(shard.shard_id)
    stream.pass_ms(400_000)
    for shard in stream.open_shards():
        for _ in range(older):
            stream.write(shard.shard_id)
    stream.pass_ms(100_000)
    world = ShardWorld(stream)
    for shard in stream.shards.values():
        for record in shard.records:
            world.note(record, shard.shard_id)
    return world


def make_sparse(world: ShardWorld, pick: int, pages: int) -> None:
    """At most two empty pages in a row hide records: more would defeat any proof of the tip."""
    shards = [s for s in world.stream.shards.values() if s.sparse == 0 and not s.was_sparse]
    if shards:
        shards[pick % len(shards)].sparse = pages


def vanish(world: ShardWorld, pick: int) -> None:
    """A closed shard that left a trace: it is stored, or an open child names it.

    What is gone before a first listing is committed was never promised: it is taken for older.
    """
    named = {shard.parent_id for shard in world.stream.open_shards()}
    closed = [s.shard_id for s in world.stream.shards.values() if not s.is_open]
    traced = [shard_id for shard_id in closed if shard_id in world.stored or shard_id in named]
    if traced and world.stored:
        world.vanish(traced[pick % len(traced)])


def read(world: ShardWorld, rounds: int) -> None:
    """Some undisturbed polling."""
    for _ in range(rounds):
        if world.take():
            world.answer(len(world.taken) - 1)
        else:
            world.pass_ms(250)


def walk(seed: int, moves: int = 400, *, losses: bool = True) -> ShardWorld:
    """A long history from one seed: deeper than what shrinks well."""
    rng = random.Random(seed)
    stream = ModelStream(
        roots=rng.randint(1, 6),
        page_records=rng.choice([1, 2, 5, 100]),
        listing_page=rng.choice([1, 3, 100]),
        knows_timestamps=rng.random() < 0.7,
    )
    world = new_world(stream, rng.randint(0, 3), rng.randint(0, 2))
    for _ in range(moves):
        step(world, rng, losses)
        world.check()
    world.finish()
    return world


def step(world: ShardWorld, rng: random.Random, losses: bool) -> None:
    pick = rng.randrange(1000)
    ids = world.open_ids()
    match rng.randrange(100):
        case n if n < 14 and ids:
            world.write(rng.choice(ids), rng.randint(1, 6))
        case n if n < 19 and ids and len(world.stream.shards) < 40:
            world.split(
                rng.choice(ids),
                rng.choice([1, 1, 1, 2, 2, 0]),
                hidden_ms=rng.choice([0, 0, 1000, 9000]),
                shown_open=rng.random() < 0.2,
            )
        case n if n < 21:
            make_sparse(world, pick, rng.randint(1, 2))
        case n if n < 22:
            world.settle_shown()
        case n if n < 23 and world.graph.has_begun:
            world.add_root()
        case n if n < 24 and losses and rng.random() < 0.2:
            vanish(world, pick)
        case n if n < 34:
            world.pass_ms(rng.choice([1, 300, 1000, 5000, 30_000, 910_000]))
        case n if n < 35 and losses and rng.random() < 0.3:
            world.pass_ms(rng.choice([13, 25, 80]) * HOUR_MS)
        case n if n < 36:
            world.jump_host_clock(86_400.0)
        case n if n < 56:
            for _ in range(rng.randint(1, 4)):
                world.take()
        case n if n < 64 and world.taken:
            world.answer(pick % len(world.taken))
        case n if n < 68 and world.taken:
            world.answer(pick % len(world.taken), rng.choice(faults()))
        case n if n < 78:
            read(world, rng.randint(1, 20))
        case n if n < 83:
            world.list_page()
        case n if n < 86:
            world.ask(rng.random() < 0.3)
        case n if n < 95:
            world.commit(rng.randint(1, 10))
        case n if n < 97:
            world.beat()
        case n if n < 98:
            world.collect()
        case _:
            world.restart(rng.choice([0.0, 1e9]))


def walk_all(seeds: range, losses: bool) -> None:
    for seed in seeds:
        try:
            walk(seed, losses=losses)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, losses {losses}: {error}") from error


@pytest.mark.parametrize("losses", [False, True])
def test_long_histories(losses: bool) -> None:
    """Hundreds of moves in each of some histories break no rule; the seed that does is named."""
    walk_all(range(FEW), losses)


@pytest.mark.soak
@pytest.mark.parametrize("losses", [False, True])
def test_thousands_of_long_histories(losses: bool) -> None:
    """The same, for half an hour."""
    walk_all(range(FEW, MANY), losses)


TestShardGraph = ShardGraphMachine.TestCase
TestShardGraph.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
