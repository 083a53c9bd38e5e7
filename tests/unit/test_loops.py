"""Supervised loops: nothing that a step does ends one."""

from __future__ import annotations

import threading

from connector.clock import SystemClock
from connector.loops import Bell, Loop

PATIENCE_S = 20.0


def await_crash(loop: Loop) -> BaseException:
    """Polls: a loop tells of a crash after its step has failed, and nothing rings then."""
    while (crash := loop.crash) is None:
        threading.Event().wait(0.001)
    return crash.error


def await_health(loop: Loop) -> None:
    while loop.crash is not None:
        threading.Event().wait(0.001)


def test_a_ring_between_two_waits_is_heard() -> None:
    """Work that arrives while a loop is busy is not slept over."""
    bell = Bell()
    heard = bell.rings
    bell.ring()
    # Would hang for its time-out, and the test with it, if the ring were lost.
    assert bell.wait(heard, 3600.0) == heard + 1


def test_a_bell_wakes_everybody_who_waits() -> None:
    """One page may free more than one shard."""
    bell = Bell()
    woken = threading.Barrier(4, timeout=PATIENCE_S)

    def wait() -> None:
        bell.wait(0, 3600.0)
        woken.wait()

    for _ in range(3):
        threading.Thread(target=wait, daemon=True).start()
    bell.ring()
    woken.wait()


def test_a_step_that_fails_is_called_again_and_its_error_is_shown() -> None:
    """A defect or a resource that ran out ends no loop; the monitor sees it until it is over."""
    failing = threading.Event()
    failing.set()
    failed = threading.Event()
    recovered = threading.Event()
    error = RuntimeError("out of threads")

    def step(now_s: float) -> float:
        if failing.is_set():
            failed.set()
            raise error
        recovered.set()
        return now_s

    loop = Loop("reader", step, Bell(), SystemClock())
    loop.start()
    assert failed.wait(PATIENCE_S)
    assert await_crash(loop) is error
    assert loop.is_alive
    failing.clear()
    assert recovered.wait(PATIENCE_S)
    await_health(loop)
    loop.stop()
    assert loop.join(PATIENCE_S)


def test_a_loop_that_waits_for_news_stops_at_once() -> None:
    """SIGTERM is not slept over."""
    waiting = threading.Event()

    def step(now_s: float) -> float:
        waiting.set()
        return now_s + 3600.0

    loop = Loop("idle", step, Bell(), SystemClock())
    loop.start()
    assert waiting.wait(PATIENCE_S)
    loop.stop()
    assert loop.join(PATIENCE_S)
    assert not loop.is_alive
