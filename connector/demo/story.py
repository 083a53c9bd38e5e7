"""The demo, act by act: load, snapshot, kill, follow, kill again, compare.

Owns the order of events and the verdict. Everything shown is asked of the service over HTTP, as a
user would; everything done to the table is done by boto3 or a lever of the emulator.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from connector.aws.source import AwsSettings, AwsSource
from connector.clock import SystemClock
from connector.compare.replica import HttpAsk, SqlReplica
from connector.compare.verify import Progress, Report, Verification
from connector.demo.films import Item, films
from connector.demo.screen import Screen
from connector.demo.stage import CREDENTIALS, DATASET, REGION, Stage
from connector.demo.writers import BATCH, TABLE, Writers
from connector.errors import DynaduckError, ServiceError

SHARDS: Final = 8
LOADERS: Final = 4
SEED: Final = 7
# About ten seconds for the snapshot: long enough to be killed in, short enough to wait for.
SCAN_MAX_RCU: Final = 350
PATIENCE_S: Final = 90.0
STATUS_EVERY_S: Final = 2.5

TOP_DIRECTORS: Final = """
    SELECT Director, count(*) AS films, round(sum(BoxOffice) / 1e9, 2) AS "gross $bn",
           sum(Watched)::BIGINT AS watched
    FROM films WHERE BoxOffice > 0 GROUP BY Director ORDER BY sum(BoxOffice) DESC LIMIT 6
"""
WIDENINGS: Final = """
    SELECT attribute, list_append(widened_from, type) AS became, seen_types AS "seen types"
    FROM dynaduck.columns WHERE dataset = 'films' AND len(widened_from) > 0 ORDER BY since
"""
LINEAGE: Final = """
    SELECT shard_id, parent_shard_id, state, records FROM dynaduck.checkpoints
    WHERE dataset = 'films' ORDER BY shard_id
"""


@dataclass(frozen=True, slots=True)
class Surprise:
    """A value that the column of that attribute cannot hold."""

    attribute: str
    value: dict[str, Any]
    told: str


SURPRISES: Final = (
    Surprise("Runtime", {"N": "92.5"}, "half minutes in Runtime, a column of whole numbers"),
    Surprise("Metacritic", {"S": "tbd"}, "'tbd' in Metacritic, a column of numbers"),
    Surprise("Streaming on", {"SS": ["ARTE", "MUBI"]}, "a new attribute, 'Streaming on'"),
    Surprise("Oscars", {"N": "12345678901234567890123456789012345678"}, "38 digits in Oscars"),
    Surprise("Oscars", {"N": "1E-100"}, "1E-100 in Oscars, beside 38 digits"),
)


@dataclass(slots=True)
class Demo:
    """One showing. `faults` are the reasons why it did not succeed."""

    stage: Stage
    screen: Screen
    seconds: float
    films: Sequence[Item] = ()
    faults: list[str] = field(default_factory=list)

    def play(self) -> int:
        """Exit status: 0 only if source and copy were compared and are equal."""
        self.load()
        writers = Writers(self.stage.client(connections=8), self.films, SEED)
        ends_s = time.monotonic() + self.seconds
        try:
            self.snapshot(writers)
            self.follow(writers, ends_s)
        finally:
            writers.stop()
        told = ", ".join(f"{count:,} {kind}" for kind, count in writers.counts.items())
        self.screen.say(f"Writers stopped. Items written meanwhile: {told}.")
        for failure in writers.failures:
            self.faults.append(f"a writer failed: {failure}")
        report = self.compare()
        self.verdict(report)
        return 1 if self.faults else 0

    def load(self) -> None:
        self.screen.title("A table of films in DynamoDB")
        self.films = tuple(films())
        self.stage.control("configure", {"table": TABLE, "shards": SHARDS})
        client = self.stage.client(connections=LOADERS)
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        chunks = [self.films[n : n + BATCH] for n in range(0, len(self.films), BATCH)]
        began_s = time.monotonic()
        with (
            self.screen.bar("loading films", len(self.films)) as bar,
            ThreadPoolExecutor(LOADERS) as loaders,
        ):
            done = 0
            for count in loaders.map(lambda chunk: _put(client, chunk), chunks):
                done += count
                bar.show(done)
        rate = len(self.films) / (time.monotonic() - began_s)
        self.screen.say(
            f"{len(self.films):,} films batch-written, {rate:,.0f} a second,"
            f" into a table with {SHARDS} stream shards."
        )

    def snapshot(self, writers: Writers) -> None:
        self.screen.title("The service copies it while it changes")
        self.stage.configure(
            {
                "from": f"dynamodb:{TABLE}",
                "name": DATASET,
                "params": {
                    "dynamodb_aws_region": REGION,
                    "endpoint_url": self.stage.emulator_url,
                    "scan_max_rcu": SCAN_MAX_RCU,
                },
            },
            {},
        )
        writers.start()
        self.stage.start_service()
        self.stage.wait_service()
        self.screen.say(
            f"dynaduck run answers at {self.stage.service_url}, four writers are at work."
        )
        with self.screen.bar("snapshot", len(self.films)) as bar:
            if self._scan_until(bar.show, 0.4):
                self._kill_in_snapshot()
            self._scan_until(bar.show, 1.0)
        self._wait(self._is_ready, "ready")
        rows = self._count()
        self.screen.good(f"Ready: snapshot done, every shard read to its tip, {rows:,} rows.")

    def _scan_until(self, show: Callable[[int, str], None], part: float) -> bool:
        """Whether the snapshot was still running when that part of it was committed."""
        is_done = False

        def is_there() -> bool:
            nonlocal is_done
            items, is_done = self._scanned()
            show(max(items, self._read()), f"{items:,} committed {self._lag()}")
            return is_done or (part < 1 and items >= part * len(self.films))

        self._wait(is_there, "past the snapshot")
        return not is_done

    def _kill_in_snapshot(self) -> None:
        before, _ = self._scanned()
        pid = self.stage.kill_service()
        self.screen.bad(f"SIGKILL in the middle of the snapshot (process {pid}).")
        self.stage.start_service()
        self.stage.wait_service()
        self._wait(lambda: self._scanned()[0] > 0, "back in the snapshot")
        self.screen.say(
            f"Started again: of {len(self.films):,} items {before:,} were committed"
            " and are not read again."
        )

    def follow(self, writers: Writers, ends_s: float) -> None:
        self.screen.title("It follows the stream")
        self.screen.query(TOP_DIRECTORS)
        self.screen.table(self.stage.sql(TOP_DIRECTORS))
        left_s = max(ends_s - time.monotonic(), 8.0)
        began_s = time.monotonic()
        acts = self._acts(writers)
        due = [(number + 1) / (len(acts) + 1) for number in range(len(acts))]
        written, shown_s = writers.written, began_s
        while (now_s := time.monotonic()) < began_s + left_s or acts:
            if acts and now_s >= began_s + due[0] * left_s:
                due.pop(0)
                acts.pop(0)()
            if now_s - shown_s >= STATUS_EVERY_S:
                rate = (writers.written - written) / (now_s - shown_s)
                self._status(rate)
                written, shown_s = writers.written, now_s
            time.sleep(0.1)

    def _acts(self, writers: Writers) -> list[Callable[[], None]]:
        def surprise(number: int) -> Callable[[], None]:
            return lambda: self._surprise(writers, SURPRISES[number])

        return [
            self._split, surprise(0), surprise(1), self._rollover, surprise(2),
            self._kill_in_stream, surprise(3), self._split, surprise(4),
        ]  # fmt: skip

    def _split(self) -> None:
        for _ in range(2):
            self.stage.control("split", {"stream": TABLE})
        self.screen.say("Two shards split: their children are read once they are drained.")

    def _rollover(self) -> None:
        shards = self.stage.control("rollover", {"stream": TABLE})["shards"]
        self.screen.say(f"All {len(shards)} open shards rolled over to new ones.")

    def _surprise(self, writers: Writers, surprise: Surprise) -> None:
        first = SURPRISES.index(surprise) * 40
        writers.surprise(surprise.attribute, surprise.value, self.films[first : first + 40])
        self.screen.say(f"Written: {surprise.told}.")

    def _kill_in_stream(self) -> None:
        rows = self._count()
        pid = self.stage.kill_service()
        killed_s = time.monotonic()
        self.screen.bad(f"SIGKILL while it follows the stream (process {pid}, {rows:,} rows).")
        time.sleep(1.0)
        started_s = time.monotonic()
        self.stage.start_service()
        self._wait(lambda: self._count() > 0, "answering queries")
        answered_s = time.monotonic() - started_s
        self._wait(self._is_ready, "ready")
        self.screen.good(
            f"Started again {started_s - killed_s:.1f} s later: answers after {answered_s:.1f} s,"
            f" caught up with all that was written meanwhile after"
            f" {time.monotonic() - started_s:.1f} s."
        )

    def compare(self) -> Report:
        self.screen.title("Is it the same?")
        self._wait(self._is_ready, "ready")
        self.screen.query(TOP_DIRECTORS)
        self.screen.table(self.stage.sql(TOP_DIRECTORS))
        self._show_lineage()
        self.screen.table(self.stage.sql(WIDENINGS), title="Columns that grew")
        source = AwsSource(
            AwsSettings(
                TABLE,
                region=REGION,
                access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
                secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
                endpoint_url=self.stage.emulator_url,
            )
        )
        key_schema = source.describe_table().key_schema
        replica = SqlReplica(DATASET, key_schema, HttpAsk(self.stage.service_client))
        with self.screen.bar("comparing", self._count()) as bar:

            def tell(progress: Progress) -> None:
                bar.show(progress.compared, f"{progress.suspects} to read again")

            return Verification(source, replica, key_schema, SystemClock(), on_progress=tell).run()

    def verdict(self, report: Report) -> None:
        if report.differing or report.moving or not report.compared:
            self.faults.append(report.sentence())
        for difference in report.differences[:10]:
            self.screen.bad(
                f"{difference.kind} {difference.keys} {difference.attribute or ''}:"
                f" source {difference.source}, copy {difference.copy}"
            )
        for fault in self.faults:
            self.screen.bad(fault)
        if not self.faults:
            self.screen.good(report.sentence())

    def _show_lineage(self) -> None:
        shards = self.stage.sql(LINEAGE)
        children = Counter(shard["parent_shard_id"] for shard in shards)
        states = Counter(shard["state"] for shard in shards)
        roots = sum(1 for shard in shards if shard["parent_shard_id"] is None)
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        self.screen.say(f"Shards read: {len(shards)} from {roots} roots: {told}.")
        splits = [shard for shard in shards if children[shard["shard_id"]] == 2]
        if splits:
            self.screen.table(_family(shards, splits[0]), title="One family of shards")

    # What is asked of the service

    def _status(self, rate: float) -> None:
        if self._count() and self._is_ready():
            self.screen.say(f"{self._count():,} rows, {rate:,.0f} writes/s, {self._lag()}.")

    def _ask(self, query: str) -> list[dict[str, Any]]:
        """Nothing while the service does not answer yet, or has no such table yet."""
        try:
            return self.stage.sql(query)
        except OSError:
            return []

    def _count(self) -> int:
        found = self._ask(f"SELECT count(*) AS n FROM {DATASET}")  # noqa: S608 - a constant
        return int(found[0]["n"]) if found else 0

    def _scanned(self) -> tuple[int, bool]:
        """Items of committed snapshot pages, and whether all segments are done."""
        found = self._ask(
            "SELECT coalesce(sum(items), 0)::BIGINT AS items,"
            " coalesce(bool_and(done), false) AS done"
            " FROM dynaduck.snapshot_segments WHERE dataset = 'films'"
        )
        return (int(found[0]["items"]), bool(found[0]["done"])) if found else (0, False)

    def _read(self) -> int:
        """Items of snapshot pages that were read, committed or not."""
        _, document = self.stage.get("/v1/status")
        datasets = (document or {}).get("datasets", [])
        return int((datasets[0].get("snapshot") or {}).get("items", 0)) if datasets else 0

    def _lag(self) -> str:
        lag_ms = self.stage.metric("dataset_dynamodb_lag_max_ms")
        return "" if lag_ms is None else f"lag {lag_ms / 1000:.1f} s"

    def _is_ready(self) -> bool:
        return self.stage.get("/v1/ready")[0] == 200

    def _wait(self, claim: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while not claim():
            service = self.stage.service
            if service is not None and service.poll() is not None:
                raise ServiceError(
                    f"The service ended by itself with status {service.returncode}:"
                    f" {self.stage.log('service')}"
                )
            if time.monotonic() > give_up_s:
                reasons = self.stage.get("/v1/ready")[1]
                raise ServiceError(f"The service is not {what} after {PATIENCE_S} s: {reasons}")
            time.sleep(0.1)


def _put(client: Any, chunk: Sequence[Item]) -> int:
    requests = [{"PutRequest": {"Item": item}} for item in chunk]
    left: dict[str, Any] = {TABLE: requests}
    while left:
        left = client.batch_write_item(RequestItems=left).get("UnprocessedItems", {})
    return len(chunk)


def _family(shards: Sequence[dict[str, Any]], parent: dict[str, Any]) -> list[dict[str, Any]]:
    """A shard and its descendants, indented by generation."""
    rows = []

    def add(shard: dict[str, Any], depth: int) -> None:
        name = "  " * depth + "…" + shard["shard_id"][-8:]
        rows.append({"shard": name, "state": shard["state"], "records": shard["records"]})
        for child in shards:
            if child["parent_shard_id"] == shard["shard_id"]:
                add(child, depth + 1)

    add(parent, 0)
    return rows


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: by way of every `finally`.

    SIGINT too is taken up here: where a shell began the demo in the background it is ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_demo(seconds: float = 40.0, screen: Screen | None = None) -> int:
    """Shows everything once; `seconds` is about how long the table is written to.

    Returns the exit status: 0 only if source and copy are equal, 130 when interrupted.
    """
    screen = screen or Screen()
    try:
        with _terminable(), Stage() as stage:
            return Demo(stage, screen, seconds).play()
    except KeyboardInterrupt:
        screen.bad("Interrupted.")
        return 130
    except DynaduckError as error:
        screen.bad(f"{error} {error.hint}".rstrip())
        return 1
