"""Writers whose every write is numbered, and a watcher who knows what a copy may show of them.

Each key carries a version, `v`, that grows with each write or delete of that key; writers of one
key take turns. So a row that is older than one seen before went back in time, and a row that comes
back after it was gone must carry a version of a later write.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from emulator import Emulator
from tests.e2e.harness import Service

TABLE = "items"
KEY_SCHEMA = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
KEY_TYPES = [
    {"AttributeName": "pk", "AttributeType": "S"},
    {"AttributeName": "sk", "AttributeType": "N"},
]
Key = tuple[str, int]
Item = dict[str, Any]
MOST_OPEN_SHARDS = 20
TEXTS = ("", "x", "0", "é\U0001f986", "line\nbreak\x00", "'\"\\")

# Names that differ in case only, are reserved, or need quotes: columns appear while it is killed.
# Those with few types climb the ladder of types step by step, the others take any value.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "plain": ("S",),
    "Plain": ("S", "NULL"),
    "amount": ("N",),
    "tags": ("SS",),
    "sizes": ("NS", "NULL"),
    "nested": ("L", "M"),
    "select": (),
    "a.b": (),
    'qu"ote': (),
}


def create_table(aws: Emulator) -> None:
    aws.client("dynamodb").create_table(
        TableName=TABLE,
        KeySchema=KEY_SCHEMA,
        AttributeDefinitions=KEY_TYPES,
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )


def fill(aws: Emulator, count: int, pad: int = 1500) -> None:
    """Cold items that nobody changes: they give the snapshot pages to be killed in."""
    client = aws.client("dynamodb")
    for start in range(0, count, 25):
        client.batch_write_item(
            RequestItems={
                TABLE: [
                    {
                        "PutRequest": {
                            "Item": key_of(("cold", n))
                            | {"v": {"N": "0"}, "pad": {"S": f"{n}-" + "x" * pad}}
                        }
                    }
                    for n in range(start, min(start + 25, count))
                ]
            }
        )


def key_of(key: Key) -> Item:
    return {"pk": {"S": key[0]}, "sk": {"N": str(key[1])}}


def value_of(rng: random.Random, types: tuple[str, ...] = ()) -> Item:
    """One attribute value of one of these types, or of any."""
    number, text = number_of(rng), rng.choice(TEXTS)
    values: Item = {
        "N": number,
        "S": text,
        "BOOL": rng.random() < 0.5,
        "NULL": True,
        "B": rng.randbytes(5),
        "SS": sorted({text or "y", "z"}),
        "NS": [number],
        "BS": [rng.randbytes(3), b"four"],
        "L": [{"N": number}, {"S": text}, {"L": []}, {"B": b"\x00"}],
        "M": {"n": {"N": number}, text: {"NULL": True}},
    }
    chosen = rng.choice(types or tuple(values))
    return {chosen: values[chosen]}


def number_of(rng: random.Random) -> str:
    """A number, the rarer the further up the ladder of number types."""
    forms = (
        str(rng.randint(-9, 99)),
        f"{rng.randint(0, 999)}.{rng.randint(1, 99)}",
        str(rng.randint(10**37, 10**38 - 1)),
        f"{rng.randint(1, 9)}E{rng.randint(-130, 125)}",
    )
    return rng.choices(forms, (500, 50, 5, 1))[0]


@dataclass(slots=True)
class Truth:
    """What was written, per key: the newest version, and the newest version that was a delete."""

    versions: Counter[Key] = field(default_factory=Counter)
    deletes: dict[Key, int] = field(default_factory=dict)


class Workload:
    """Writers over a small set of keys, and a mover who splits and rolls over their shards."""

    def __init__(
        self, aws: Emulator, seed: int, *, keys: int = 120, writers: int = 3, pause_s: float = 0.02
    ) -> None:
        self.truth = Truth()
        self.counts: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self._aws = aws
        self._pause_s = pause_s
        self._keys: list[Key] = [(f"k{n % 17}", n) for n in range(keys)]
        self._locks = {key: threading.Lock() for key in self._keys}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(self._write, seed * 1000 + n), daemon=True)
            for n in range(writers)
        ]
        self._threads.append(
            threading.Thread(target=self._run, args=(self._move, seed * 1000 + 999), daemon=True)
        )

    def start(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """All writes are answered when this returns; raises what a writer ran into."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _run(self, act: Callable[[random.Random, Any], None], seed: int) -> None:
        rng = random.Random(seed)
        client = self._aws.client("dynamodb")
        try:
            while not self._stopping.wait(self._pause_s):
                act(rng, client)
        except Exception as error:  # noqa: BLE001 - raised by `stop`, in the test's own thread
            self.failures.append(error)

    def _move(self, rng: random.Random, client: Any) -> None:
        if self._stopping.wait(rng.uniform(0.2, 1.2)):
            return
        shards = self._aws.control.open_shards(TABLE)
        shard_id = rng.choice(shards).shard_id
        if len(shards) < MOST_OPEN_SHARDS and rng.random() < 0.4:
            self._aws.control.split(TABLE, shard_id)
            self.counts["splits"] += 1
        else:
            self._aws.control.rollover(TABLE, shard_id)
            self.counts["rollovers"] += 1

    def _write(self, rng: random.Random, client: Any) -> None:
        act = rng.choices(
            (self._put, self._update, self._delete, self._batch, self._transact), (3, 4, 2, 1, 1)
        )[0]
        act(rng, client)

    @contextmanager
    def _turn(self, rng: random.Random, count: int) -> Iterator[Sequence[Key]]:
        """Some keys that nobody else writes meanwhile."""
        keys = sorted(rng.sample(self._keys, count))
        with ExitStack() as turns:
            for key in keys:
                turns.enter_context(self._locks[key])
            yield keys

    def _next_version(self, key: Key, *, is_delete: bool = False) -> str:
        self.truth.versions[key] += 1
        if is_delete:
            self.truth.deletes[key] = self.truth.versions[key]
        return str(self.truth.versions[key])

    def _item(self, key: Key, rng: random.Random) -> Item:
        item = key_of(key) | {"v": {"N": self._next_version(key)}}
        for name in rng.sample(tuple(ATTRIBUTES), rng.randint(0, 4)):
            item[name] = value_of(rng, ATTRIBUTES[name])
        return item

    def _put(self, rng: random.Random, client: Any) -> None:
        with self._turn(rng, 1) as (key,):
            client.put_item(TableName=TABLE, Item=self._item(key, rng))
        self.counts["puts"] += 1

    def _update(self, rng: random.Random, client: Any) -> None:
        with self._turn(rng, 1) as (key,):
            client.update_item(TableName=TABLE, **self._update_of(key, rng))
        self.counts["updates"] += 1

    def _update_of(self, key: Key, rng: random.Random) -> Item:
        gone, changed = rng.sample(tuple(ATTRIBUTES), 2)
        return {
            "Key": key_of(key),
            "UpdateExpression": "SET v = :v, #c = :c REMOVE #g",
            "ExpressionAttributeNames": {"#c": changed, "#g": gone},
            "ExpressionAttributeValues": {
                ":v": {"N": self._next_version(key)},
                ":c": value_of(rng, ATTRIBUTES[changed]),
            },
        }

    def _delete(self, rng: random.Random, client: Any) -> None:
        with self._turn(rng, 1) as (key,):
            self._next_version(key, is_delete=True)
            client.delete_item(TableName=TABLE, Key=key_of(key))
        self.counts["deletes"] += 1

    def _batch(self, rng: random.Random, client: Any) -> None:
        with self._turn(rng, rng.randint(2, 12)) as keys:
            client.batch_write_item(
                RequestItems={TABLE: [self._batch_request(key, rng) for key in keys]}
            )
        self.counts["batches"] += 1

    def _batch_request(self, key: Key, rng: random.Random) -> Item:
        if rng.random() < 0.3:
            self._next_version(key, is_delete=True)
            return {"DeleteRequest": {"Key": key_of(key)}}
        return {"PutRequest": {"Item": self._item(key, rng)}}

    def _transact(self, rng: random.Random, client: Any) -> None:
        with self._turn(rng, 3) as (put, updated, deleted):
            item = self._item(put, rng)
            update = self._update_of(updated, rng)
            self._next_version(deleted, is_delete=True)
            client.transact_write_items(
                TransactItems=[
                    {"Put": {"TableName": TABLE, "Item": item}},
                    {"Update": {"TableName": TABLE} | update},
                    {"Delete": {"TableName": TABLE, "Key": key_of(deleted)}},
                ]
            )
        self.counts["transactions"] += 1


class Watcher:
    """Asks the live service for all versions again and again, once it was Ready the first time.

    `violations` says what no copy that was Ready may show. Answers that a kill cut off are none.
    """

    def __init__(self, service: Service, truth: Truth, pause_s: float = 0.05) -> None:
        self.violations: list[str] = []
        self.answers = 0
        self.was_ready = False
        self._service = service
        self._truth = truth
        self._pause_s = pause_s
        self._seen: dict[Key, int] = {}
        self._gone: set[Key] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Watcher:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._pause_s):
                if self.was_ready:
                    self._ask()
                else:
                    self.was_ready = self._service.get("/v1/ready")[0] == 200
        except Exception as error:  # noqa: BLE001 - the test asserts that there are none
            self.violations.append(f"the watcher ended: {error!r}")

    def _ask(self) -> None:
        try:
            status, _, body = self._service.request(
                "POST", "/v1/sql", f"SELECT pk, sk, v FROM {TABLE} WHERE pk <> 'cold'"
            )
        except (OSError, http.client.HTTPException):
            return
        if status == 503:
            return
        if status != 200:
            self.violations.append(f"status {status}: {body[:300]!r}")
            return
        self.judge(body)

    def judge(self, body: bytes) -> None:
        """Compares one answer with all before it."""
        self.answers += 1
        rows: dict[Key, int] = {}
        for row in json.loads(body):
            key = (row["pk"], row["sk"])
            if key in rows:
                self.violations.append(f"{key} has two rows")
            rows[key] = row["v"]
        for key, version in rows.items():
            last = self._seen.get(key, 0)
            if version < last:
                self.violations.append(f"{key} went back from version {last} to {version}")
            elif version == last and key in self._gone:
                self.violations.append(f"{key} came back with version {version} after it was gone")
            self._seen[key] = version
            self._gone.discard(key)
        for key in self._seen.keys() - rows.keys() - self._gone:
            if self._truth.deletes.get(key, 0) <= self._seen[key]:
                self.violations.append(f"{key} is gone, last seen {self._seen[key]}, never deleted")
            self._gone.add(key)
