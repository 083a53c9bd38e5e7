"""One seed: a table with its writers, the service and all that befalls both, checked at every step.

Single-threaded and on virtual time, so the same seed is the same run. `run` raises Violation, or
returns what was seen.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
import time as host_time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

from accelerator import failpoints
from accelerator import keys as canonical_keys
from accelerator.errors import DatabaseInvalidated, DiskFull, OutOfMemory
from checkpoints.positions import KeyAttribute
from connector.health import DatasetState
from connector.replication import Replication
from emulator import Fault, FaultKind, Front
from emulator.shards import Shard
from emulator.tables import Table
from metrics import catalog
from metrics.recorder import Recorder
from tests.oracle import canonical_item
from tests.simulation.copies import Copy, DuckDBCopy, MemoryCopy
from tests.simulation.front_source import CALLER, REGION, FrontSource
from tests.simulation.promises import Promises
from tests.simulation.scenario import Event, Scenario, What, draw
from tests.simulation.service import Crash, SimulatedService
from tests.simulation.truth import TABLE, Truth, Violation, WatchedWorld
from tests.simulation.virtual_time import VirtualTime
from tests.simulation.workload import EXPIRES, Workload

DEPTH: Final = 3
QUIET_S: Final = 1800.0
"""Within this the copy is Ready and equal once nothing goes wrong any more: a lineage that ends
without a child is believed after 5 minutes, and back-off is capped at 20 s."""

LASTING_S: Final = 15.0
"""Ready that has lost its proof is taken back sooner."""

MOST_OPEN_SHARDS: Final = 6
COMMIT_POINTS: Final = ("after_plan", "before_commit", "after_commit")
FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": FaultKind.THROTTLE},
    {"kind": FaultKind.THROTTLE, "operation": "GetRecords"},
    {"kind": FaultKind.THROTTLE, "operation": "DescribeStream"},
    {"kind": FaultKind.ERROR, "code": "InternalServerError", "status": 500},
    {"kind": FaultKind.ERROR, "code": "AccessDeniedException", "status": 400},
    {"kind": FaultKind.ERROR, "code": "ExpiredTokenException", "status": 400},
    {"kind": FaultKind.DROP, "when": "before"},
    {"kind": FaultKind.DROP, "when": "after"},
    {"kind": FaultKind.CUT},
    {"kind": FaultKind.TRUNCATE, "operation": "GetRecords"},
    {"kind": FaultKind.TRUNCATE},
    {"kind": FaultKind.CORRUPT},
    {"kind": FaultKind.EMPTY},
    {"kind": FaultKind.HTML},
    {"kind": FaultKind.GZIP},
    {"kind": FaultKind.LATENCY, "seconds": 1.5},
)


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    digest: str
    events: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    most_in_vain: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    commits: int = 0
    lives: int = 0
    gaps: int = 0
    reinitialized: int = 0
    halted: int = 0
    ready_after_s: float = 0.0
    changes: int = 0


class Simulation:
    """Everything of one run."""

    def __init__(self, scenario: Scenario, copy: Copy) -> None:
        self.scenario = scenario
        self.time = VirtualTime()
        self.rng = random.Random(f"run {scenario.seed}")
        schema = (KeyAttribute("pk", "S", "HASH"), KeyAttribute("sk", "N", "RANGE"))
        self.truth = Truth(schema if scenario.has_sort_key else schema[:1])
        self.world = WatchedWorld(clock=self.time.aws, seed=scenario.seed, settings=scenario.table)
        self.world.truth = self.truth
        self.front = Front(self.world, REGION)
        self.workload = Workload(self.front, self.truth, self.rng, keys=scenario.keys)
        self.copy = copy
        self.promises = Promises(self.truth, copy, self.time)
        self.outcome = Outcome(scenario.seed, "")
        self.service: SimulatedService | None = None
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._depth = 0
        self._is_writing = False
        self._crash_at: tuple[str, int] | None = None
        self._commit_fault: Exception | None = None
        self._commit_fault_at = ""
        self._trace = hashlib.sha256()
        self._made = 0
        self.is_told = False
        self._is_halted = False
        self._is_calm = False

    # The run

    def run(self) -> Outcome:
        self.create_table()
        if self.rng.random() < 0.8:
            self.workload.put_all()
        self.start()
        for event in self.scenario.events:
            self.run_for(event.after_s)
            self.outcome.events[event.what] += 1
            self._note(f"EVENT {event.what.value}")
            self.happen(event)
        self._note("EVENT calm")
        self.calm()
        self.settle()
        self.outcome.digest = self._trace.hexdigest()
        self.outcome.virtual_s = self.time.monotonic_s()
        self.outcome.changes = sum(map(len, self.truth.records.values()))
        return self.outcome

    def start(self) -> None:
        """A new process over what the copy holds."""
        self.outcome.lives += 1
        self._crash_at = None
        self._depth = 0
        self._is_writing = False
        source = FrontSource(
            self.front,
            TABLE,
            self.time,
            on_the_way=self.on_the_way,
            page_items=self.scenario.page_items,
            knows_at_timestamp=self.scenario.knows_at_timestamp,
        )
        self.source = source
        self.service = SimulatedService(
            self.scenario.settings,
            source,
            self.copy,
            self.time,
            self.rng,
            strike=self.strike,
            written=self.written,
            judged=self.judged,
        )

    def crash(self) -> None:
        self.forget_service()
        self.copy.crash()
        self.promises.positions_hold()

    def forget_service(self) -> None:
        if self.service is not None:
            self.outcome.calls += self.source.calls
            self.outcome.most_in_vain |= self.source.log.most
            self._count_losses(self.service.recorder)
        self.service = None
        self._depth = 0

    def _count_losses(self, recorder: Recorder) -> None:
        """A gap that was found counts, whatever became of it."""
        lost = int(recorder.value(catalog.GAPS, name=TABLE) or 0)
        anew = int(recorder.value(catalog.REINITIALIZATIONS, name=TABLE) or 0)
        self.outcome.gaps += lost
        self.outcome.reinitialized += anew
        if (lost or anew) and not self.scenario.may_lose:
            raise Violation(f"{lost} gaps and {anew} new loads, and nothing was lost")

    def run_for(self, seconds: float) -> None:
        self.run_until(self.time.monotonic_s() + seconds)

    def run_until(self, until_s: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Runs the service, and what is due of what was put off. Whether `done` came true."""
        while not done():
            now_s = self.time.monotonic_s()
            if self._later and self._later[0][0] <= now_s:
                self._later.pop(0)[2]()
                continue
            if now_s >= until_s:
                return False
            next_s = min(until_s, self._later[0][0]) if self._later else until_s
            if self.service is None:
                self.start()
            self._step(next_s)
        return True

    def _step(self, until_s: float) -> None:
        assert self.service is not None
        try:
            self.service.run_one(until_s)
        except Crash:
            self.crash()
            return
        if self.service.must_exit:
            self.outcome.events["exit 2"] += 1
            self.forget_service()
            self.copy.crash()
            self.time.advance(5.0)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self._made += 1
        self._later.append((self.time.monotonic_s() + seconds, self._made, what))
        self._later.sort()

    # What others do while a request is under way, and inside a commit

    def on_the_way(self, operation: str, is_answer: bool) -> None:
        self._note(f"{operation} {'answers' if is_answer else 'is sent'}")
        if self._crash_at is not None and self._crash_at[0] == "way":
            left = self._crash_at[1] - 1
            self._crash_at = ("way", left) if left else None
            if not left:
                raise Crash
        chance = self.scenario.interference
        if operation == "Scan" and is_answer:
            chance = max(chance, 0.3)
        if self.rng.random() < chance:
            self.meanwhile(self.rng.choice((1, 3, 12)))

    def meanwhile(self, steps: int) -> None:
        """Others run, deeper and deeper, until the outer request gets its answer."""
        if self._depth >= DEPTH or self.service is None:
            return
        self._depth += 1
        until_s = self.time.monotonic_s() + self.rng.choice((0.0, 0.0, 0.3, 2.0))
        for _ in range(steps):
            if not self._is_calm and self.rng.random() < 0.25 and self._has_table():
                self.workload.write()
            if not self.service.run_one(until_s, is_writing=self._is_writing):
                break
        self._depth -= 1

    def at_commit(self, point: str) -> None:
        self._note(point)
        if self._crash_at is not None and self._crash_at[0] == point:
            self._crash_at = None
            raise Crash
        if self._commit_fault is not None and self._commit_fault_at == point:
            fault, self._commit_fault = self._commit_fault, None
            raise fault
        if self.rng.random() < self.scenario.interference / 4:
            was_writing, self._is_writing = self._is_writing, True
            self.meanwhile(3)
            self._is_writing = was_writing

    def strike(self, call: str) -> None:
        if self._commit_fault is not None and self._commit_fault_at == call:
            fault, self._commit_fault = self._commit_fault, None
            raise fault

    def written(self, call: str, named: dict[str, object]) -> None:
        self._note(f"{call} {named or ''}")
        self.outcome.commits += call == "apply"
        self.promises.written(call, named)
        if call == "apply" and self.rng.random() < 0.1:
            self.promises.positions_hold()

    def judged(self, replication: Replication) -> None:
        self._note(replication.health.state.value)
        self.promises.judged(replication.health, replication._around.aws_time.now_ms())

    # Events

    def happen(self, event: Event) -> None:
        rng = self.rng
        has_table = self._has_table()
        has_stream = has_table and self.world.table(TABLE, REGION).stream is not None
        match event.what:
            case What.WRITES if has_table:
                self._write_some(event.size)
            case What.SPLIT if has_stream:
                self._end_a_shard(splits=True)
            case What.ROLLOVER if has_stream:
                self._end_a_shard(splits=False)
            case What.FAULT:
                self._fault(event)
            case What.CRASH:
                if self.service is not None:
                    self.crash()
            case What.CRASH_IN_COMMIT:
                self._crash_at = (rng.choice((*COMMIT_POINTS, "mid_swap")), 1)
            case What.CRASH_ON_THE_WAY:
                self._crash_at = ("way", rng.randint(1, 30))
            case What.COMMIT_FAULT:
                self._fail_a_commit()
            case What.EXPIRE_ITERATORS:
                self.front.control.expire_iterators()
            case What.EXPIRE_ITEMS if has_table:
                self.workload.expire()
            case What.HIDE if has_stream:
                for child in self._end_a_shard(splits=rng.random() < 0.5):
                    self.front.control.hide(TABLE, child.shard_id)
                self.later(event.lasts_s, self._show_all)
            case What.SHOW_OPEN if has_stream:
                shard = rng.choice(self.front.control.shards(TABLE))
                self.front.control.show_open(TABLE, shard.shard_id)
                self.later(event.lasts_s, self._show_all)
            case What.PAUSE if self.service is not None:
                paused = self.service.replication
                paused.pause()
                self.later(event.lasts_s, paused.resume)
            case What.REFRESH if self.service is not None:
                self.service.replication.refresh()
            case What.STOP:
                self._stop(event)
            case What.FREEZE:
                self._busy_while(event.lasts_s, self.time.advance)
            case What.SUSPEND:
                self._busy_while(event.lasts_s, self.time.suspend_host)
            case What.DISABLE if has_stream:
                self._disable(event)
            case What.RECREATE if has_table:
                self._recreate(event)
            case _:
                pass

    def _has_table(self) -> bool:
        return TABLE in self.world.backend(REGION).tables

    def _write_some(self, count: int) -> None:
        for _ in range(count):
            self.workload.write()
            if self.rng.random() < 0.3:
                self.run_for(self.rng.uniform(0.0, 0.4))

    def _fault(self, event: Event) -> None:
        options = dict(self.rng.choice(FAULTS))
        fault = self.front.faults.add(
            options.pop("kind"),
            caller=CALLER,
            probability=self.rng.choice((0.1, 0.5, 1.0)),
            seed=self.rng.randrange(2**32),
            **options,
        )
        self.later(event.lasts_s, lambda: self._end_fault(fault))

    def _end_fault(self, fault: Fault) -> None:
        self.front.faults.remove(fault)

    def _fail_a_commit(self) -> None:
        self._commit_fault = self.rng.choice(
            [
                OutOfMemory("DuckDB ran out of memory."),
                DiskFull("No space left on the disk."),
                DatabaseInvalidated("DuckDB invalidated the open database."),
            ]
        )
        calls = ("apply", "begin", "load", "mark_snapshot", "mark_status", "swap")
        self._commit_fault_at = self.rng.choice((*COMMIT_POINTS, *calls))

    def _end_a_shard(self, *, splits: bool) -> list[Shard]:
        """Its children. One that no listing shows yet does not end: its children would be shown."""
        stream = self.world.stream(TABLE, REGION)
        shown = [each for each in stream.open_shards() if each.shard_id not in stream.hidden]
        if not shown:
            return []
        ending = self.rng.choice(shown)
        if splits and len(stream.open_shards()) < MOST_OPEN_SHARDS:
            return list(self.front.control.split(TABLE, ending.shard_id))
        return self.front.control.rollover(TABLE, ending.shard_id)

    def _show_all(self) -> None:
        for stream in self.world.streams.values():
            stream.hidden.clear()
            stream.shown_open.clear()

    def _stop(self, event: Event) -> None:
        """The process is gone for hours; now and then somebody writes."""
        if self.service is not None:
            self.crash()
        self._busy_while(event.lasts_s, self.time.advance)

    def _busy_while(self, seconds: float, pass_time: Callable[[float], None]) -> None:
        self._show_all()  # listings lag for minutes, not for hours
        for _ in range(3):
            pass_time(seconds / 3)
            if self._has_table() and self.rng.random() < 0.5:
                self.workload.write()

    def _disable(self, event: Event) -> None:
        self._show_all()
        self._stream(False)
        if event.lasts_s:
            self.later(event.lasts_s, self._enable)
        else:
            self._enable()

    def _enable(self) -> None:
        if self._has_table() and self.world.table(TABLE, REGION).stream is None:
            self._stream(True)

    def _stream(self, is_on: bool) -> None:
        specification: dict[str, Any] = {"StreamEnabled": is_on}
        if is_on:
            specification["StreamViewType"] = "NEW_AND_OLD_IMAGES"
        with self.world.lock:
            self.world.table(TABLE, REGION).set_stream_specification(specification)

    def _recreate(self, event: Event) -> None:
        self._show_all()
        self.front.call("DeleteTable", {"TableName": TABLE}, caller="owner")
        self.truth.emptied(self.time.aws_ms())
        if event.lasts_s:
            self.later(event.lasts_s, self.create_table)
        else:
            self.create_table()

    def create_table(self) -> None:
        if self._has_table():
            return
        keys = ",".join(f"{part.name}:{part.type}" for part in self.truth.schema)
        table: Table = self.world.create_table(TABLE, keys, region=REGION)
        self.truth.watch(self.world, table)
        table.ttl.update({"TimeToLiveStatus": "ENABLED", "AttributeName": EXPIRES})

    # The end

    def calm(self) -> None:
        """Nothing goes wrong from here on, and nobody writes."""
        self._is_calm = True
        for _, _, what in self._later:
            what()
        self._later.clear()
        self.front.faults.clear()
        self._show_all()
        self.create_table()
        self._enable()
        self._crash_at = self._commit_fault = None
        if self.service is None:
            self.start()
        assert self.service is not None
        self.service.replication.resume()

    def settle(self) -> None:
        """In bounded time the copy is Ready to stay, or says why not and can be mended."""
        began_s = self.time.monotonic_s()
        ends_s = began_s + QUIET_S
        while True:
            if not self.run_until(ends_s, self._is_settled):
                raise Violation(f"not Ready {QUIET_S:.0f} s after all is well: {self._told()}")
            if self._is_halted:
                self._leave_halt()
                ends_s = self.time.monotonic_s() + QUIET_S
            # A loss may be noticed only now: an end is asked about, then the table is looked at.
            elif not self.run_until(self.time.monotonic_s() + LASTING_S, self._is_not_ready):
                break
        self.outcome.ready_after_s = self.time.monotonic_s() - began_s
        self._compare()
        self.promises.positions_hold()
        self._judge_gaps()
        self.forget_service()

    def _is_settled(self) -> bool:
        service = self.service
        if service is None:
            return False
        replication = service.replication
        asked = replication._refresh_asked.is_set()
        self._is_halted = replication._halted is not None and not asked
        return self._is_halted or self._is_ready()

    def _is_ready(self) -> bool:
        return self.service is not None and self.service.replication.health.is_ready

    def _is_not_ready(self) -> bool:
        return not self._is_ready()

    def _leave_halt(self) -> None:
        """Policy `error`: state Error, the data as it was, and a way out."""
        assert self.service is not None
        self.outcome.halted += 1
        before = self.copy.versions()
        self.run_for(5.0)
        assert self.service is not None
        if self.service.replication.health.state is not DatasetState.ERROR:
            raise Violation(f"halted, and the state is {self._told()}")
        if self.copy.versions() != before:
            raise Violation("halted, and the rows change")
        self.service.replication.refresh()

    def _compare(self) -> None:
        schema = self.truth.schema
        source = {}
        for item in self.world.items(TABLE, REGION):
            canonical = canonical_item(item)
            source[canonical_keys.key_of(canonical, schema)] = canonical
        found = self.promises.equal(source)
        if found:
            raise Violation("source and copy differ: " + "; ".join(found))

    def _judge_gaps(self) -> None:
        stored = self.copy.stored()
        assert stored is not None
        if stored.open_gaps:
            raise Violation(f"Ready with open gaps {stored.open_gaps}")

    def _told(self) -> str:
        if self.service is None:
            return "no service"
        health = self.service.replication.health
        said = "; ".join(f"{reason.code}: {reason.sentence}" for reason in health.reasons)
        shards = "; ".join(f"{s.shard_id} {s.state.value}" for s in self._views())
        return f"{health.state.value} ({said}) [{shards}]"

    def _views(self) -> list[Any]:
        course = self.service.replication.course if self.service else None
        return [] if course is None else course.reader.views()

    def _note(self, what: str) -> None:
        line = f"{self.time.monotonic_s() - 1000:.2f} {self.time.aws_ms():.0f} {what}"
        self._trace.update(line.encode())
        if self.is_told:
            print(line)


@contextmanager
def _a_world_of_its_own(simulation: Simulation) -> Iterator[None]:
    """Chance and clocks are the seed's; the host's wall clock jumps by days."""
    state = random.getstate()
    jumps = random.Random(simulation.scenario.seed)
    random.seed(simulation.scenario.seed)

    def wild() -> float:
        return 1_600_000_000.0 + jumps.uniform(-86_400, 86_400) * 3

    with ExitStack() as stack:
        for point in (*COMMIT_POINTS, "mid_swap"):
            stack.enter_context(
                failpoints.on(point, lambda point=point: simulation.at_commit(point))  # type: ignore[misc]
            )
        stack.enter_context(mock.patch.object(host_time, "time", wild))
        try:
            yield
        finally:
            random.setstate(state)


def run_seed(seed: int, *, on_duckdb: bool = False, is_told: bool = False) -> Outcome:
    """The run of a seed.

    Raises:
        Violation: a promise was broken; the message says which and how to see it again.
    """
    scenario = draw(seed)
    with ExitStack() as stack:
        if on_duckdb:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            copy: Copy = DuckDBCopy(Path(directory))
        else:
            copy = MemoryCopy()
        stack.callback(copy.close)
        simulation = Simulation(scenario, copy)
        simulation.is_told = is_told
        stack.enter_context(_a_world_of_its_own(simulation))
        try:
            return simulation.run()
        except Violation as violation:
            for view in simulation._views() if is_told else ():
                print(view)
            raise Violation(
                f"seed {seed}{' on DuckDB' if on_duckdb else ''}: {violation}\n{scenario}"
            ) from violation
        finally:
            simulation.front.close()
