"""A snapshot of single keys: how a row is read anew while the stream goes on.

Owns repair and the replay of dead letters. A key is read consistently, and written only when every
shard has passed the time of the read and no change has touched the key since: whatever the stream
had to say about it is then already in the row, and nothing newer is overwritten.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from accelerator.batch import CHANGES, Batch
from accelerator.database import Database
from accelerator.dead_letters import DeadLetter, DeadLetters
from checkpoints.positions import KeyAttribute
from connector.clock import Clock
from connector.errors import ServiceError
from connector.source import Source
from connector.upkeep import Upkeep

LOOK_EVERY_S: Final = 0.05
PATIENCE_S: Final = 60.0
AT_ONCE: Final = 200
SAME_SECOND_MS: Final = 1000  # the Date header is cut to seconds, so the read was within the next


class NotFollowed(ServiceError):
    code = "not_followed"
    default_hint = "Keys can be read anew while the stream is read: see `dynaduck status`."


class KeyUnreadable(ServiceError):
    code = "key_unreadable"
    default_hint = (
        'A key is DynamoDB JSON of the table\'s key attributes, such as {"id":{"S":"7"}}.'
    )


@dataclass(frozen=True, slots=True)
class ReadAnew:
    """read: keys asked of the table; dead_letters: those whose item still cannot be applied."""

    read: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """replayed: letters that are gone; kept: without a readable key, so only `drop` ends them."""

    replayed: int
    still_dead: int
    kept: int


class SingleKeys:
    """Of one dataset. Calls block until the streams have passed; one at a time."""

    def __init__(
        self,
        replication: Upkeep,
        source: Source,
        database: Database,
        writing: threading.RLock,
        clock: Clock,
    ) -> None:
        self._replication = replication
        self._source = source
        self._letters = DeadLetters(database, replication.name)
        self._writing = writing
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def read_anew(self, keys: Sequence[str]) -> ReadAnew:
        """Reads these keys (DynamoDB JSON texts) and writes what they hold now.

        Raises:
            NotFollowed: the stream is not read, or did not pass the time of the read.
            KeyUnreadable: a text is not the table's key.
            SourceError: the table cannot be read.
        """
        schema = self._key_schema()
        for key in keys:
            _check_key(key, schema)
        dead = 0
        with self._one_at_a_time:
            for first in range(0, len(keys), AT_ONCE):
                dead += self._read_some(keys[first : first + AT_ONCE])
        return ReadAnew(len(keys), dead)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        with self._writing:
            return self._letters.all()

    def replay(self) -> Replayed:
        """Reads the keys of all dead letters anew; a letter goes once its key is right."""
        letters = self.dead_letters()
        schema = self._key_schema()
        keyed = {letter: key for letter in letters if (key := _key_of(letter, schema)) is not None}
        outcome = self.read_anew(sorted(set(keyed.values())))
        with self._writing:
            self._replication.dataset.drop_dead_letters(list(keyed))
        self._replication.count_dead_letters()
        replayed = max(0, len(keyed) - outcome.dead_letters)
        return Replayed(replayed, outcome.dead_letters, len(letters) - len(keyed))

    def drop(self) -> int:
        """Gives the dead letters up; how many."""
        self._replication.refuse_following()
        with self._writing:
            dropped = self._replication.dataset.drop_dead_letters(self._letters.all())
        self._replication.count_dead_letters()
        return dropped

    def _read_some(self, keys: Sequence[str]) -> int:
        dataset = self._replication.dataset
        ticket = dataset.open_scan_ticket()
        try:
            rows, read_at_ms = [], 0
            for key in keys:
                image, at_ms = self._source.get_item(key)
                rows.append(_row(key, image))
                read_at_ms = max(read_at_ms, at_ms)
            self._await_passing(read_at_ms + SAME_SECOND_MS)
            with self._writing:
                course = self._replication.course
                if course is None:
                    raise NotFollowed(f"{self._replication.name} is not being followed.")
                batch = Batch(
                    pa.Table.from_pylist(rows, schema=CHANGES),
                    course.positions_generation,
                    scan_ticket=ticket,
                )
                return dataset.apply([batch]).dead_letters
        finally:
            dataset.close_scan_ticket(ticket)

    def _await_passing(self, at_ms: int) -> None:
        ends_s = self._clock.monotonic_s() + PATIENCE_S
        while not self._replication.has_passed(at_ms):
            if self._clock.monotonic_s() >= ends_s:
                raise NotFollowed(
                    f"The stream of {self._replication.name} has not passed the read in "
                    f"{PATIENCE_S:g} s."
                )
            self._clock.sleep(LOOK_EVERY_S)

    def _key_schema(self) -> tuple[KeyAttribute, ...]:
        self._replication.refuse_following()
        stored = self._replication.stored
        if stored is None:
            raise NotFollowed(f"{self._replication.name} has no rows yet.")
        return stored.live_identity.key_schema


def _row(key: str, image: str | None) -> dict[str, object]:
    return {
        "op": "remove" if image is None else "snapshot",
        "ttl_delete": False,
        "keys": key,
        "image": image,
    }


def _check_key(text: str, schema: Sequence[KeyAttribute]) -> None:
    wanted = {attribute.name: attribute.type for attribute in schema}
    try:
        key = json.loads(text)
        found = {name: next(iter(value)) for name, value in key.items() if len(value) == 1}
    except (ValueError, AttributeError, TypeError) as error:
        raise KeyUnreadable(f"{text[:200]!r} is not DynamoDB JSON.") from error
    if found != wanted:
        raise KeyUnreadable(f"{text[:200]!r} is not the key ({', '.join(wanted)}) of the table.")


def _key_of(letter: DeadLetter, schema: Sequence[KeyAttribute]) -> str | None:
    try:
        record = json.loads(letter.record)
        holder = record.get("Keys") or record["NewImage"]
        key = {attribute.name: holder[attribute.name] for attribute in schema}
        text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
        _check_key(text, schema)
    except (ValueError, KeyError, TypeError, AttributeError, KeyUnreadable):
        return None
    return text
