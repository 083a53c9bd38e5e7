"""The demo's application: threads that keep changing the films, as the table's users would.

Owns what is written and how often. One thread for each habit: updates, puts in batches, deletes,
transactions. Must not know the copy. `surprise` writes what no schema foresaw.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from connector.demo.films import KEY, Item

TABLE: Final = "films"
BATCH: Final = 25  # BatchWriteItem takes no more
GONE: Final = 10  # of each batch that announces films, how many take one back
NEW_IDS_FROM: Final = 1_000_000
_PAUSE_S: Final = 0.02
_MOST_FAILURES: Final = 20


class Writers:
    """All writer threads. `counts` tells items written by kind; `failures` why any was not."""

    def __init__(self, client: Any, films: Sequence[Item], seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self._client = client
        self._films = films
        self._hits = sorted(films, key=_gross, reverse=True)
        self._seed = seed
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def written(self) -> int:
        return sum(self.counts.values())

    def start(self) -> None:
        habits: tuple[Callable[[random.Random], None], ...] = (
            self._watch, self._announce, self._withdraw, self._trade,
        )  # fmt: skip
        for number, habit in enumerate(habits):
            rng = random.Random(self._seed + number)  # noqa: S311 - replays, guards nothing
            thread = threading.Thread(
                target=self._keep, args=(habit, rng), name=habit.__name__, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Every write that was begun is answered when this returns."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, habit: Callable[[random.Random], None], rng: random.Random) -> None:
        while not self._stopping.wait(_PAUSE_S):
            try:
                habit(rng)
            except (ClientError, BotoCoreError) as error:
                self.failures.append(error)
                if len(self.failures) > _MOST_FAILURES:
                    return

    def _watch(self, rng: random.Random) -> None:
        film = self._hits[int(rng.paretovariate(0.6)) % len(self._hits)]
        self._update(film[KEY], "ADD Watched :n", {":n": {"N": "1"}})
        self.counts["updated"] += 1

    def _announce(self, rng: random.Random) -> None:
        """New films by the batch, and some of the earlier ones taken out again."""
        first = NEW_IDS_FROM + self.counts["announced"]
        requests: list[dict[str, Any]] = [
            {"PutRequest": {"Item": _announced(first + n, rng)}} for n in range(BATCH - GONE)
        ]
        if self.counts["announced"]:
            gone = rng.sample(range(NEW_IDS_FROM, first), GONE)
            requests += [{"DeleteRequest": {"Key": {KEY: {"N": str(n)}}}} for n in gone]
        self._client.batch_write_item(RequestItems={TABLE: requests})
        self.counts["announced"] += BATCH - GONE
        self.counts["deleted"] += len(requests) - BATCH + GONE
        self._stopping.wait(0.5)

    def _withdraw(self, rng: random.Random) -> None:
        """A film goes and, more often than not, comes back."""
        film = rng.choice(self._films)
        self._client.delete_item(TableName=TABLE, Key={KEY: film[KEY]})
        self.counts["deleted"] += 1
        if rng.random() < 0.8:
            self._client.put_item(TableName=TABLE, Item=film | {"Restored": {"BOOL": True}})
            self.counts["put"] += 1
        self._stopping.wait(0.05)

    def _trade(self, rng: random.Random) -> None:
        """Rights move from one film to another, both or neither."""
        seller, buyer = rng.sample(self._films, 2)
        changes = ((seller, "-1"), (buyer, "1"))
        self._client.transact_write_items(
            TransactItems=[
                {
                    "Update": {
                        "TableName": TABLE,
                        "Key": {KEY: film[KEY]},
                        "UpdateExpression": "ADD Shares :n",
                        "ExpressionAttributeValues": {":n": {"N": amount}},
                    }
                }
                for film, amount in changes
            ]
        )
        self.counts["in transactions"] += 2
        self._stopping.wait(0.05)

    def surprise(self, name: str, value: dict[str, Any], films: Sequence[Item]) -> None:
        """Sets an attribute of some films to a value of a kind not seen there before."""
        for film in films:
            self._update(film[KEY], "SET #name = :v", {":v": value}, {"#name": name})
            self.counts["updated"] += 1

    def _update(
        self,
        key: dict[str, Any],
        expression: str,
        values: dict[str, Any],
        names: dict[str, str] | None = None,
    ) -> None:
        more = {"ExpressionAttributeNames": names} if names else {}
        self._client.update_item(
            TableName=TABLE,
            Key={KEY: key},
            UpdateExpression=expression,
            ExpressionAttributeValues=values,
            **more,
        )


def _gross(film: Item) -> Decimal:
    return Decimal(film["BoxOffice"].get("N", "0"))


def _announced(number: int, rng: random.Random) -> Item:
    return {
        KEY: {"N": str(number)},
        "Title": {"S": f"Untitled Project {number - NEW_IDS_FROM}"},
        "Director": {"S": rng.choice(("Steven Spielberg", "Christopher Nolan", "Ang Lee"))},
        "Year": {"N": str(rng.randint(2015, 2030))},
        "BoxOffice": {"N": "0"},
    }
