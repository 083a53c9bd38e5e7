"""When queries are stopped for want of memory, and how many."""

from __future__ import annotations

from dataclasses import dataclass

from accelerator.errors import AcceleratorError, DatabaseInvalidated, OutOfMemory
from connector.surface.memory_watch import ENDS_WITHIN_S, MemoryWatch


@dataclass
class Memory:
    """`refusal`: what a look is answered with instead."""

    held: int = 0
    refusal: AcceleratorError | None = None
    memory_limit_bytes: int = 100

    def working_bytes(self) -> int:
        if self.refusal is not None:
            raise self.refusal
        return self.held


@dataclass
class Queries:
    running: int = 3
    shed_so_far: int = 0

    def shed(self) -> bool:
        self.shed_so_far += 1
        return True


def shed(memory: Memory, *, is_starving: bool = False, running: int = 3) -> bool:
    queries = Queries(running)
    return MemoryWatch(memory, queries, lambda: is_starving).step(0.0)


def test_a_query_is_stopped_when_statements_hold_more_than_their_share() -> None:
    """70 % of the limit are theirs."""
    assert not shed(Memory(70))
    assert shed(Memory(71))


def test_a_look_that_does_not_fit_in_memory_is_an_answer() -> None:
    """The question is a query too: refused for want of memory it says that memory is short."""
    assert shed(Memory(refusal=OutOfMemory("DuckDB ran out of memory.")))
    assert not shed(Memory(refusal=DatabaseInvalidated("DuckDB gave up.")))


def test_a_writer_that_waits_for_memory_comes_first() -> None:
    """Four queries may each hold less than anybody would mind, and leave too little."""
    assert shed(Memory(10), is_starving=True)


def test_where_no_query_runs_there_is_none_to_stop() -> None:
    """And nothing is asked of a database that has no memory left."""
    assert not shed(Memory(refusal=OutOfMemory("none")), is_starving=True, running=0)


def test_a_stopped_query_may_end_before_the_next_is_stopped() -> None:
    """An interrupt takes a moment: the others are not to pay for it."""
    queries = Queries()
    watch = MemoryWatch(Memory(99), queries, lambda: False)
    assert [watch.step(now_s) for now_s in (0.0, 0.1, ENDS_WITHIN_S)] == [True, False, True]
    assert queries.shed_so_far == 2
