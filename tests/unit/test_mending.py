"""Repair and dead letters from outside: the endpoints over real HTTP, and the command that asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from accelerator.database import Database
from accelerator.dead_letters import DeadLetter
from accelerator.query import QueryRunner
from accelerator.query_slots import QueryLimits
from connector.cli import app
from connector.client import Address, ServiceClient, ServiceRefused
from connector.errors import UnknownDataset
from connector.snapshot.single_keys import (
    KeyUnreadable,
    NotFollowed,
    ReadAnew,
    Replayed,
    SingleKeys,
)
from connector.surface.http import Surface, build_app
from connector.surface.mending import MOST_KEYS
from connector.surface.server import Bind, HttpServer
from metrics.prometheus import PrometheusExporter
from metrics.recorder import Recorder
from tests.http_builder import FakeFacts
from tests.query_builder import data_file

LETTER = DeadLetter(
    "shardId-1", "100", "modify", '{"Keys":{"pk":{"S":"bad"}}}', "no number fits", 5, '["bad"]'
)
OF_A_SCAN = DeadLetter(None, None, "snapshot", "x" * 500, "no number fits", 6, None)


@dataclass
class Keys:
    """The work behind the endpoints: says what it is told to, and remembers what was asked."""

    letters: tuple[DeadLetter, ...] = (LETTER, OF_A_SCAN)
    outcome: Replayed = field(default_factory=lambda: Replayed(2, 0, 0))
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def read_anew(self, keys: Sequence[str]) -> ReadAnew:
        self._answers()
        self.asked += keys
        return ReadAnew(len(keys), 1)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        self._answers()
        return self.letters

    def replay(self) -> Replayed:
        self._answers()
        return self.outcome

    def drop(self) -> int:
        self._answers()
        dropped, self.letters = len(self.letters), ()
        return dropped

    def _answers(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class Mended:
    keys: Keys
    port: int = 0

    def single_keys(self, dataset: str) -> SingleKeys:
        if dataset != "orders":
            raise UnknownDataset(f"There is no dataset {dataset}.")
        return cast("SingleKeys", self.keys)

    def client(self) -> ServiceClient:
        return ServiceClient(Address("127.0.0.1", self.port))

    def command(self, *words: str) -> Result:
        arguments = ["dead-letters", *words, "--url", f"http://127.0.0.1:{self.port}"]
        return CliRunner().invoke(app, arguments)


@contextmanager
def _served(database: Database) -> Iterator[Mended]:
    mended = Mended(Keys())
    queries = QueryRunner(database, QueryLimits())
    surface = Surface(FakeFacts(), queries, PrometheusExporter(Recorder()), None, mended)
    server = HttpServer(build_app(surface), Bind(port=0))
    try:
        server.start()
        mended.port = server.port
        yield mended
    finally:
        queries.close()
        server.stop()


@pytest.fixture(scope="module", name="surface")
def _surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mended]:
    with data_file(tmp_path_factory.mktemp("mending")) as database, _served(database) as mended:
        yield mended


@pytest.fixture(name="mended")
def _mended(surface: Mended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mended:
    monkeypatch.chdir(tmp_path)
    surface.keys = Keys()
    return surface


def refused(mended: Mended, path: str, body: Any) -> str:
    """The code of the refusal."""
    with pytest.raises(ServiceRefused) as caught:
        mended.client()._document("POST", f"/v1/datasets/{path}", body)
    return caught.value.refusal


class TestEndpoints:
    def test_repair_reads_the_keys_that_are_named(self, mended: Mended) -> None:
        """Their texts as they are; how many, and how many still cannot be applied."""
        keys = ['{"pk":{"S":"a"}}', '{"pk":{"S":"ü"}}']
        answer = mended.client()._document("POST", "/v1/datasets/orders/repair", {"keys": keys})
        assert answer == {"repaired": 2, "dead_letters": 1}
        assert mended.keys.asked == keys

    @pytest.mark.parametrize(
        "body",
        [None, [], {}, {"keys": "a"}, {"keys": [1]}, {"keys": {"a": 1}}, {"keys": ["k"] * 10_001}],
        ids=["nothing", "list", "no keys", "text", "numbers", "object", "too many"],
    )
    def test_a_body_that_names_no_keys_is_refused(self, mended: Mended, body: Any) -> None:
        """And nothing is read for it; at most MOST_KEYS at once."""
        assert MOST_KEYS == 10_000
        assert refused(mended, "orders/repair", body) == "bad_request"
        assert mended.keys.asked == []

    def test_letters_are_told_with_all_they_carry(self, mended: Mended) -> None:
        """Those of a scan have no shard and no number."""
        first, second = mended.client().dead_letters("orders")
        assert first["record"] == LETTER.record
        assert (first["shard_id"], first["key"]) == ("shardId-1", '["bad"]')
        assert (second["shard_id"], second["sequence_number"]) == (None, None)

    def test_replay_and_drop_say_what_became_of_them(self, mended: Mended) -> None:
        """In numbers."""
        mended.keys.outcome = Replayed(3, 2, 1)
        answer = mended.client().replay_dead_letters("orders")
        assert answer == {"replayed": 3, "still_dead": 2, "kept": 1}
        assert mended.client().drop_dead_letters("orders") == 2

    @pytest.mark.parametrize("error", [NotFollowed("paused"), KeyUnreadable("no key")])
    def test_a_refusal_of_the_work_is_the_answer(self, mended: Mended, error: Exception) -> None:
        """By its own code, so that a program can tell them apart."""
        mended.keys.error = error
        code = refused(mended, "orders/repair", {"keys": ['{"pk":{"S":"a"}}']})
        assert code == getattr(error, "code", "")

    @pytest.mark.parametrize("path", ["repair", "dead-letters/replay", "dead-letters/drop"])
    def test_an_unknown_dataset_is_named(self, mended: Mended, path: str) -> None:
        """Whatever is asked of it."""
        with pytest.raises(UnknownDataset, match="nobody"):
            mended.client()._document("POST", f"/v1/datasets/nobody/{path}", {"keys": ["k"]})


class TestCommand:
    def test_list_shows_where_each_came_from_and_why(self, mended: Mended) -> None:
        """A line each; a long record is cut for the eye."""
        said = mended.command("list", "orders")
        assert said.exit_code == 0, said.output
        assert "shardId-1" in said.stdout
        assert "(snapshot)" in said.stdout
        assert "no number fits" in said.stdout
        assert "x" * 120 + "…" in said.stdout
        assert "x" * 121 not in said.stdout

    def test_list_as_json_has_the_whole_records(self, mended: Mended) -> None:
        """For programs, and for whoever has to look at one."""
        said = mended.command("list", "orders", "--json")
        assert said.exit_code == 0, said.output
        assert [each["record"] for each in json.loads(said.stdout)] == [LETTER.record, "x" * 500]

    def test_none_is_said_in_a_sentence(self, mended: Mended) -> None:
        """And as an empty list in JSON."""
        mended.keys.letters = ()
        assert mended.command("list", "orders").stdout == "orders has no dead letters.\n"
        assert json.loads(mended.command("list", "orders", "--json").stdout) == []

    @pytest.mark.parametrize(
        ("outcome", "status", "said"),
        [
            (Replayed(2, 0, 0), 0, ["2 replayed"]),
            (Replayed(1, 1, 0), 1, ["1 replayed", "1 still cannot be applied"]),
            (Replayed(0, 0, 2), 1, ["0 replayed", "2 have no readable key", "drop"]),
        ],
    )
    def test_replay_fails_while_one_is_left(
        self, mended: Mended, outcome: Replayed, status: int, said: list[str]
    ) -> None:
        """A script must notice."""
        mended.keys.outcome = outcome
        answer = mended.command("replay", "orders")
        assert answer.exit_code == status, answer.output
        assert all(part in answer.stdout for part in said)

    def test_drop_says_how_many(self, mended: Mended) -> None:
        """They are gone then."""
        assert mended.command("drop", "orders").stdout == "2 dropped.\n"
        assert mended.command("drop", "orders").stdout == "0 dropped.\n"

    def test_a_refusal_is_told_with_its_remedy(self, mended: Mended) -> None:
        """On stderr, and not as a success."""
        mended.keys.error = NotFollowed("orders is not being followed.")
        answer = mended.command("replay", "orders")
        assert answer.exit_code != 0
        assert "not being followed" in answer.stderr
        assert "dynaduck status" in answer.stderr
