"""One life of the service: the real replication and applier, its loops as actors of one thread.

Each loop of `connector.service` is an actor with a due time. While a request of one actor is under
way others may run, at any depth: an answer is held back while the stream passes it. A crash drops
all of it; only the copy remains.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from accelerator.dataset import Dataset
from connector.applier import Applier
from connector.clock import AwsTime
from connector.config import Dataset as Settings
from connector.course import Surroundings
from connector.errors import StartRefused
from connector.journal import Journal
from connector.recovery import Policy
from connector.replication import Replication
from connector.service import MONITOR_EVERY_S
from connector.snapshot.scanner import EVENTUAL_MARGIN_S
from connector.spec import spec_of
from connector.stream.coverage import Retention
from metrics.recorder import Recorder
from metrics.task_history import TaskHistory
from tests.simulation.copies import Copy, FallibleDataset
from tests.simulation.front_source import FrontSource
from tests.simulation.truth import Violation
from tests.simulation.virtual_time import VirtualTime

LONGEST_WAIT_S: Final = 1.0
STEPS_AT_ONE_TIME: Final = 4000
"""More than any honest backlog takes: a loop that spins stands still in virtual time."""


class Crash(BaseException):
    """SIGKILL: no handler runs to any effect, since everything it could change is dropped."""


@dataclass(slots=True, eq=False)
class Actor:
    """A thread of the service. `holds_writing`: it may be inside the writer's lock."""

    name: str
    step: Callable[[float], float | None]
    holds_writing: bool = False
    due_s: float = 0.0
    is_busy: bool = False
    steps: int = 0


class SimulatedService:
    """Built from nothing but the copy and the source, like a process that starts."""

    def __init__(
        self,
        settings: Settings,
        source: FrontSource,
        copy: Copy,
        time: VirtualTime,
        rng: random.Random,
        *,
        strike: Callable[[str], None],
        written: Callable[[str, dict[str, object]], None],
        judged: Callable[[Replication], None],
        pollers: int = 2,
        scanners: int = 2,
    ) -> None:
        self.time = time
        self.copy = copy
        self._rng = rng
        self._judged = judged
        self.recorder = Recorder()
        self.writing = threading.RLock()
        spec = spec_of(settings)
        margin_s = 0.0 if settings.scan_consistent_read else EVENTUAL_MARGIN_S
        self.fallible = FallibleDataset(copy.open(spec, time, margin_s), strike, written)
        history = TaskHistory(lambda: 0, time.monotonic_s)
        around = Surroundings(
            settings=settings,
            source=source,
            dataset=cast("Dataset", self.fallible),
            clock=time,
            aws_time=AwsTime(time),
            retention=Retention(),
            journal=Journal(history, settings.name, time.monotonic_s),
            count_rcu=lambda _: None,
            ring_writer=self._ring_writer,
            ring_readers=self._ring_readers,
            reopen=self._reopen,
        )
        policy = Policy(settings.initial_snapshot, settings.invalid_checkpoint_behavior)
        recorder = self.recorder.dataset(settings.name)
        self.actors: list[Actor] = []
        self.replication = Replication(around, policy, self.writing, recorder, draw=rng.random)
        self.applier = Applier(
            [self.replication], self.writing, self._reopen, time, draw=rng.random
        )
        self._had_checkpoint = copy.stored() is not None
        replication = self.replication
        self.actors += [Actor(f"poller-{n}", replication.poll) for n in range(pollers)]
        self.actors += [Actor(f"scanner-{n}", replication.scan) for n in range(scanners)]
        self.actors += [
            Actor("control", replication.control, holds_writing=True),
            Actor("applier", self.applier.step, holds_writing=True),
            Actor("monitor", self._judge, holds_writing=True),
        ]
        self._at_s, self._steps_here = 0.0, 0

    @property
    def must_exit(self) -> bool:
        """What `Service.refusal` says: exit status 2."""
        refusal = self.replication.refusal
        return refusal is not None and (
            isinstance(refusal, StartRefused) or not self._had_checkpoint
        )

    def run_one(self, until_s: float, *, is_writing: bool = False) -> bool:
        """One step of somebody who is due; else time goes on to the next who is. False: at the end.

        is_writing  the writer's lock is taken further up: who needs it has to wait
        """
        now_s = self.time.monotonic_s()
        ready, next_s = [], until_s
        for actor in self.actors:
            if actor.is_busy or (is_writing and actor.holds_writing):
                continue
            if actor.due_s <= now_s:
                ready.append(actor)
            elif actor.due_s < next_s:
                next_s = actor.due_s
        if not ready:
            if next_s >= until_s and now_s >= until_s:
                return False
            self.time.advance(max(0.0, next_s - now_s))
            return next_s < until_s
        self._step(self._rng.choice(ready), now_s)
        return True

    def _step(self, actor: Actor, now_s: float) -> None:
        self._count(actor, now_s)
        actor.is_busy = True
        actor.due_s = float("inf")
        try:
            due_s = actor.step(now_s)
        except Exception as error:
            raise Violation(f"the loop {actor.name} failed: {error!r}") from error
        finally:
            actor.is_busy = False
            actor.steps += 1
        ends_s = self.time.monotonic_s()
        longest_s = ends_s + LONGEST_WAIT_S
        wanted_s = longest_s if due_s is None else min(due_s, longest_s)
        # A ring while it ran is not lost.
        actor.due_s = min(wanted_s, actor.due_s)

    def _count(self, actor: Actor, now_s: float) -> None:
        if now_s > self._at_s:
            self._at_s, self._steps_here = now_s, 0
        self._steps_here += 1
        if self._steps_here > STEPS_AT_ONE_TIME:
            raise Violation(f"a busy loop: {self._steps_here} steps at one time, now {actor.name}")

    def _judge(self, now_s: float) -> float:
        errors = {fault.lane: fault.error for fault in self.applier.faults()}
        self.replication.judge(now_s, commit_error=errors.get(self.replication.name))
        self.replication.tell()
        self._judged(self.replication)
        return now_s + MONITOR_EVERY_S

    def _reopen(self) -> None:
        self.copy.reopen()
        self.fallible.is_invalid = False
        self.recorder.database_reopened()
        self.replication.dataset.load()

    def _ring_writer(self) -> None:
        self._ring("applier")

    def _ring_readers(self) -> None:
        self._ring("poller", "scanner")

    def _ring(self, *prefixes: str) -> None:
        now_s = self.time.monotonic_s()
        for actor in self.actors:
            if actor.name.startswith(prefixes):
                actor.due_s = min(actor.due_s, now_s)
