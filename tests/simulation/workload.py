"""Seeded writers of one table: every operation that changes an item, on few keys, some of them hot.

New attributes come up, and old ones change their type. Knows neither the service nor its faults.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

from checkpoints.positions import KeyAttribute
from emulator import Front
from tests.simulation.truth import TABLE, VERSION, Truth

Item = dict[str, Any]
KINDS: Final = (
    ("put", 60),
    ("delete", 16),
    ("batch", 10),
    ("update", 4),
    ("transaction", 4),
    ("same", 6),
)
TEXTS: Final = ("", "x", "é", "'\"\\\n")
EXPIRES: Final = "expires"


class Workload:
    """Writes by `write`; `counts` says what."""

    def __init__(self, front: Front, truth: Truth, rng: random.Random, *, keys: int) -> None:
        self.counts: Counter[str] = Counter()
        self._front = front
        self._truth = truth
        self._rng = rng
        self._keys = [_key_of(truth.schema, number) for number in range(keys)]
        self._hot = self._keys[: max(2, keys // 5)]

    def write(self) -> None:
        kind = self._rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
        self.counts[kind] += 1
        if kind == "put":
            self._call("PutItem", {"TableName": TABLE, "Item": self._item(self._key())})
        elif kind == "delete":
            self._call("DeleteItem", {"TableName": TABLE, "Key": self._key()})
        elif kind == "same":
            self._put_again()
        elif kind == "update":
            self._call("UpdateItem", self._update(self._key()))
        elif kind == "batch":
            self._call("BatchWriteItem", {"RequestItems": {TABLE: self._batch()}})
        else:
            self._call("TransactWriteItems", {"TransactItems": self._transaction()})

    def put_all(self) -> None:
        for key in self._keys:
            self._call("PutItem", {"TableName": TABLE, "Item": self._item(key)})

    def expire(self) -> int:
        """What is past its time to live goes, by another hand."""
        return self._front.world.expire_ttl(TABLE)

    def _call(self, operation: str, params: Item) -> None:
        reply = self._front.call(operation, params, caller="writer")
        assert reply.status == 200, (operation, reply.status, reply.body)

    def _key(self) -> Item:
        return self._rng.choice(self._hot if self._rng.random() < 0.5 else self._keys)

    def _some_keys(self) -> list[Item]:
        count = self._rng.randint(2, min(6, len(self._keys)))
        return self._rng.sample(self._keys, count)

    def _item(self, key: Item) -> Item:
        item = {**key, VERSION: {"N": str(self._truth.next_version())}}
        for _ in range(self._rng.randint(0, 2)):
            name = f"a{self._rng.randint(0, 5)}"
            item[name] = self._value()
        if self._rng.random() < 0.15:
            now_s = self._front.world.now_s()
            item[EXPIRES] = {"N": str(int(now_s) + self._rng.randint(-60, 60))}
        return item

    def _value(self) -> Item:
        rng = self._rng
        return rng.choice(
            [
                {"S": rng.choice(TEXTS)},
                {"N": str(rng.randint(-9, 99))},
                {"N": f"{rng.randint(0, 99)}.5"},
                {"BOOL": rng.random() < 0.5},
                {"NULL": True},
                {"SS": ["a", "b"]},
                {"L": [{"N": "1.25"}, {"S": "x"}]},
                {"M": {"n": {"N": "7"}}},
            ]
        )

    def _update(self, key: Item) -> Item:
        return {
            "TableName": TABLE,
            "Key": key,
            "UpdateExpression": "SET #v = :v, u = :u",
            "ExpressionAttributeNames": {"#v": VERSION},
            "ExpressionAttributeValues": {
                ":v": {"N": str(self._truth.next_version())},
                ":u": self._value(),
            },
        }

    def _batch(self) -> list[Item]:
        return [
            {"DeleteRequest": {"Key": key}}
            if self._rng.random() < 0.3
            else {"PutRequest": {"Item": self._item(key)}}
            for key in self._some_keys()
        ]

    def _transaction(self) -> list[Item]:
        return [{"Put": {"TableName": TABLE, "Item": self._item(key)}} for key in self._some_keys()]

    def _put_again(self) -> None:
        """A write that changes nothing leaves no record."""
        items = self._front.world.items(TABLE)
        if items:
            self._call("PutItem", {"TableName": TABLE, "Item": self._rng.choice(items)})


def _key_of(schema: tuple[KeyAttribute, ...], number: int) -> Item:
    values = {"S": f"k{number}", "N": str(number)}
    return {part.name: {part.type: values[part.type]} for part in schema}
