"""Random items that reach into every corner of DynamoDB's types, and the words to send them.

Seeded: one seed gives the same items for ever. Values are DynamoDB JSON as a client writes it, so
numbers come in plain and in exponent form, with needless zeros and with a negative zero.
"""

from __future__ import annotations

import base64
import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests import oracle

Item = dict[str, Any]

TEXTS = (
    "", " ", "0", "null", "true", "NaN", "{}", '{"S":"x"}', "'", '"', "\\", '\\"', "a\nb\r\tc",
    "\x00", "a\x00b", "\x01\x1f\x7f\x80", "\u2028\u2029\ufeff\ufffe", "é", "e\u0301", "\U0001f986",
    "\U0010ffff", "ﷺ", "\u202eabc", "x" * 300, "-0", "1e5", "2024-05-06", "%s$1{0}", "NULL",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-0.0", "0E5", "1", "-1", "1.0", "1.500", "0.1", "-0.1", "1e0", "1E+2", "1.5e-3",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "9" * 38, "-" + "9" * 38, "0." + "9" * 38, "1." + "1" * 37, "1E-130", "-1E-130", "1E125",
    "9." + "9" * 37 + "E+125", "-9." + "9" * 37 + "E125", "1" + "0" * 125, "0." + "0" * 129 + "1",
    "3.141592653589793", "0.1234567890123456789", "123456789012345678901234567890.12345678",
    "00012", "+7", "1000000000000000000000", ".5", "5.",
)  # fmt: skip
# Attribute names: pairs that SQL cannot tell apart, ours, SQL's, JSON's, and unusual letters.
ODD_NAMES = (
    "Id", "id", "ID", "a.b", "a:b", "a b", " a", "a ", 'q"q', "it's", "\U0001f986", "select",
    "order", "_raw", "_extra", "_h", "_k", "_RAW", "rowid", "$x", "$", "/y", "~z", "a/b", "é", "É",
    "\x00", "a\x00b", "\x1f", "a\x1fb", "\n", "\\", "x" * 300, "x" * 301, "M", "S", "N", "NULL",
    "*", "1", "c0", "i", "image", "s", "aside", "pk_", "%", "\u202e", "ß", "ẞ", "K",
)  # fmt: skip
# Names whose values are of few types, so that columns climb the ladder rung by rung.
STEADY: dict[str, tuple[str, ...]] = {
    "text": ("S",),
    "count": ("int",),
    "price": ("money",),
    "wide": ("N",),
    "flag": ("BOOL",),
    "bytes": ("B",),
    "tags": ("SS",),
    "sizes": ("ints",),
    "amounts": ("NS",),
    "blobs": ("BS",),
    "list": ("L",),
    "doc": ("M",),
    "maybe": ("S", "NULL"),
    "nothing": ("NULL",),
    "either": ("S", "int"),
    "number_or_null": ("money", "NULL"),
    "set_or_list": ("NS", "L"),
}


class Items:
    """Makes items. `key` says which attributes the key has, as (name, type)."""

    def __init__(self, seed: int, key: Sequence[tuple[str, str]]) -> None:
        self._random = random.Random(seed)
        self._key = tuple(key)
        self._made = 0
        self._makers: dict[str, Callable[[int], Any]] = {
            "S": lambda _: {"S": self.text()},
            "N": lambda _: {"N": self.number()},
            "int": lambda _: {"N": str(self._random.randint(-1000, 10**6))},
            "money": lambda _: {"N": f"{self._random.randint(-(10**7), 10**7) / 100:.2f}"},
            "B": lambda _: {"B": self.binary()},
            "BOOL": lambda _: {"BOOL": self._random.random() < 0.5},
            "NULL": lambda _: {"NULL": True},
            "SS": lambda _: {"SS": self._distinct(self.text)},
            "NS": lambda _: {"NS": self._distinct(self.number, oracle.number_text)},
            "ints": lambda _: {"NS": self._distinct(lambda: str(self._random.randint(0, 99)))},
            "BS": lambda _: {"BS": self._distinct(self.binary)},
            "L": lambda depth: {"L": [self.value(depth + 1) for _ in range(self._few())]},
            "M": self._map,
        }  # fmt: skip

    def item(self) -> Item:
        """One with a few attributes of either sort."""
        pick = self._random
        item: Item = {}
        for name in pick.sample(list(STEADY), pick.randint(0, 6)):
            item[name] = self._makers[pick.choice(STEADY[name])](0)
        for name in pick.sample(ODD_NAMES, pick.randint(0, 3)):
            item[name] = self.value(0)
        return item | self.next_key()

    def again(self, item: Item) -> Item:
        """Other attributes under the same key."""
        return self.item() | {name: item[name] for name, _ in self._key}

    def next_key(self) -> Item:
        self._made += 1
        return {name: self._key_value(kind) for name, kind in self._key}

    def key_of(self, item: Item) -> Item:
        return {name: item[name] for name, _ in self._key}

    def value(self, depth: int) -> dict[str, Any]:
        kinds = ["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "int", "money"]
        if depth < 4:
            kinds += ["L", "M", "M"]
        made: dict[str, Any] = self._makers[self._random.choice(kinds)](depth)
        return made

    def _map(self, depth: int) -> dict[str, Any]:
        return {"M": {self._name(): self.value(depth + 1) for _ in range(self._few())}}

    def text(self) -> str:
        pick = self._random
        if pick.random() < 0.4:
            return pick.choice(TEXTS)
        top = pick.choice((0x7F, 0x7FF, 0xD7FF, 0x10FFFF))
        letters = (pick.randint(0, top) for _ in range(pick.randint(0, 12)))
        return "".join(chr(n) for n in letters if not 0xD800 <= n <= 0xDFFF)

    def number(self) -> str:
        pick = self._random
        if pick.random() < 0.3:
            return pick.choice(NUMBERS)
        digits = str(pick.randint(0, 10 ** pick.choice((1, 3, 9, 18, 19, 38)) - 1))
        sign = pick.choice(("", "", "-"))
        where = pick.choice((0, 0, -1, -2, -5, -len(digits), 3, pick.randint(-92, 87)))
        if pick.random() < 0.5:
            return f"{sign}{digits}{pick.choice('eE')}{where:+d}"
        return oracle.number_text(f"{sign}{digits}e{where}")

    def binary(self) -> str:
        return base64.b64encode(
            self._random.randbytes(self._random.choice((0, 1, 2, 3, 9)))
        ).decode()

    def _few(self) -> int:
        return self._random.choice((0, 1, 1, 2, 3))

    def _name(self) -> str:
        names = ODD_NAMES if self._random.random() < 0.5 else tuple(STEADY)
        return self._random.choice(names)

    def _distinct(
        self, make: Callable[[], str], canonical: Callable[[str], str] = str
    ) -> list[str]:
        made = [make() for _ in range(1 + self._few())]
        return list({canonical(each): each for each in made}.values())

    def _key_value(self, kind: str) -> dict[str, str]:
        number = self._made
        if kind == "S":
            return {"S": f"{self.text()}#{number}"}
        if kind == "B":
            return {"B": base64.b64encode(self._random.randbytes(3) + number.to_bytes(4)).decode()}
        form = self._random.choice(("{}", "{}.0", "{}.5", "-{}", "{}e-3", "{}E+60", "{}.25e-100"))
        return {"N": form.format(number)}


def extremes() -> list[Item]:
    """The largest things that a table may hold, one of each, and their neighbours."""
    deep: dict[str, Any] = {"N": "0.1234567890123456789012345678901234567"}
    for level in range(31):
        deep = {"M": {"m": deep}} if level % 2 else {"L": [deep]}
    large: list[Item] = [
        {"text": {"S": "é" * 190_000}},
        {"bytes": {"B": base64.b64encode(bytes(range(256)) * 1_500).decode()}},
        {"list": {"L": [{"N": str(n)} for n in range(40_000)]}},
        {"doc": {"M": {f"k{n}": {"S": "v" * 8} for n in range(15_000)}}},
        {"sizes": {"NS": [str(n) for n in range(50_000)]}},
        {"deep": deep},
        {f"attribute {n}": {"S": str(n)} for n in range(950)},
        {f"attribute {n}": {"N": str(n)} for n in range(0, 1_100, 2)},
        {name: {"S": name[:20]} for name in ODD_NAMES},
        {"text": {"S": ""}, "bytes": {"B": ""}, "list": {"L": []}, "doc": {"M": {}}},
        {"text": {"NULL": True}},
        {},
    ]  # fmt: skip
    return [{"pk": {"S": f"extreme {n}"}} | attributes for n, attributes in enumerate(large)]


class Writer:
    """Sends items as DynamoDB JSON; boto3 would take most of the time."""

    def __init__(self, url: str, table: str) -> None:
        self._url = url
        self._table = table

    def put(self, items: Iterable[Item]) -> None:
        self._send([{"PutRequest": {"Item": item}} for item in items])

    def delete(self, keys: Iterable[Item]) -> None:
        self._send([{"DeleteRequest": {"Key": key}} for key in keys])

    def _send(self, requests: list[Any]) -> None:
        batch: list[Any] = []
        size = 0
        for request in requests:
            batch.append(request)
            size += len(json.dumps(request))
            if len(batch) == 25 or size > 4_000_000:
                self._call({"RequestItems": {self._table: batch}})
                batch, size = [], 0
        if batch:
            self._call({"RequestItems": {self._table: batch}})

    def _call(self, body: Any) -> None:
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": "DynamoDB_20120810.BatchWriteItem",
                "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/eu-west-1/dynamodb/"
                "aws4_request, SignedHeaders=host, Signature=0",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                unprocessed = json.loads(answer.read()).get("UnprocessedItems")
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise AssertionError(refusal.read().decode()) from None
        assert not unprocessed, unprocessed
