"""The shell's parts: where statements end, what commands do, what is completed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from accelerator.query_errors import QueryFailed
from connector.cli.shell import HELP, TABLES, Shell, ends, history_path
from connector.cli.shell_words import Words
from connector.cli.sources import SessionQueries
from connector.cli.sql_view import QuerySource, ResultFormat, Rows
from connector.cli.statements import split
from connector.errors import ServiceUnreachable
from tests.doubles import FakeClock


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("", (), ""),
        ("select 1", (), "select 1"),
        ("select 1;", ("select 1",), ""),
        ("select 1; select 2", ("select 1",), "select 2"),
        ("select ';' ; select 2;", ("select ';'", "select 2"), ""),
        ("select 'it''s;' ;", ("select 'it''s;'",), ""),
        ('select "a;b";', ('select "a;b"',), ""),
        ("select 1 -- a; b\n;", ("select 1 -- a; b",), ""),
        ("select /* ; */ 1;", ("select /* ; */ 1",), ""),
        ("select $$a;b$$;", ("select $$a;b$$",), ""),
        ("select $x$a;$$;b$x$;", ("select $x$a;$$;b$x$",), ""),
        (";; ;", (), ""),
        ("-- nothing\n;", (), ""),
        ("select 'open;", (), "select 'open;"),
        ("select /* open;", (), "select /* open;"),
    ],
)
def test_a_semicolon_ends_a_statement_where_it_is_one(
    text: str, complete: tuple[str, ...], rest: str
) -> None:
    """Not in a string, a name, a comment; what is not ended is the rest."""
    found = split(text)
    assert (found.complete, found.rest) == (complete, rest)


@pytest.mark.parametrize(
    ("text", "is_end"),
    [("", True), ("\\d", True), ("quit", True), ("select 1", False), ("select 1;", True),
     ("select 1; select", False), ("select ';", False)],
)  # fmt: skip
def test_enter_ends_what_is_complete(text: str, is_end: bool) -> None:
    """Anything else goes on in another line."""
    assert ends(text) is is_end


class Session:
    """A shell whose statements are written down; `failing` raises, `slow` is stopped by Ctrl-C."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.said = io.StringIO()
        self.clock = FakeClock()
        self.shell = Shell(
            self._ask, self.said.write, sleep=self.clock.sleep, monotonic_s=self.clock.monotonic_s
        )

    def _ask(self, sql: str, result_format: ResultFormat) -> None:
        self.asked.append((sql, result_format.value))
        self.clock.advance(0.25)
        if sql == "failing":
            raise QueryFailed("It failed.")
        if sql == "slow" or len(self.asked) > 5:
            raise KeyboardInterrupt


def test_statements_of_a_line_run_in_turn_and_a_failure_is_no_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What follows the failed one on its line does not run; the shell goes on."""
    session = Session()
    session.shell.take("select 1; failing; select 2;")
    session.shell.take("select 3;")
    assert [sql for sql, _ in session.asked] == ["select 1", "failing", "select 3"]
    assert "It failed." in capsys.readouterr().err
    assert not session.shell.is_over


def test_ctrl_c_stops_the_query_and_not_the_shell() -> None:
    """Its words say so, and the next statement runs."""
    session = Session()
    session.shell.take("slow;")
    assert session.said.getvalue() == "Stopped.\n"
    session.shell.take("select 1;")
    assert session.asked[-1][0] == "select 1"


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Each does what the help says; one that does not exist is named."""
    session = Session()
    session.shell.take("\\d")
    session.shell.take("\\d Odd name;")
    session.shell.take("\\format csv")
    session.shell.take("\\timing")
    session.shell.take("select 1;")
    assert session.asked == [
        (TABLES, "table"), ('DESCRIBE "Odd name"', "table"), ("select 1", "csv")
    ]  # fmt: skip
    assert "250 ms" in session.said.getvalue()
    session.shell.take("\\?")
    assert session.said.getvalue().endswith(HELP)
    for wrong in ("\\what", "\\format xml", "\\watch soon", "\\watch 0"):
        session.shell.take(wrong)
    assert capsys.readouterr().err.count("dynaduck:") == 4
    session.shell.take("\\q")
    assert session.shell.is_over


def test_watch_repeats_the_last_query_until_ctrl_c() -> None:
    """At the interval that was asked for."""
    session = Session()
    session.shell.take("select 1;")
    session.shell.take("\\watch 5")
    assert [sql for sql, _ in session.asked] == ["select 1"] * 6
    assert set(session.clock.slept) == {5.0}


def completions(words: Words, text: str) -> list[str]:
    return [c.text for c in words.get_completions(Document(text), CompleteEvent())]


def test_tables_columns_and_keywords_are_completed() -> None:
    """Columns of the tables that the statement names come alone; odd names come quoted."""
    words = Words(
        lambda: [
            ("main", "orders", "total"),
            ("main", "orders", "Odd col"),
            ("main", "users", "town"),
            ("dynaduck", "checkpoints", "state"),
        ]
    )
    words.learn_now()
    assert "orders" in completions(words, "select * from or")
    assert "dynaduck.checkpoints" in completions(words, "select * from dyna")
    found = completions(words, "select * from orders where to")
    assert "total" in found
    assert "town" not in found
    assert completions(words, "select orders.t") == ["orders.total"]
    assert '"Odd col"' in completions(words, 'select * from orders where "O')
    assert "select" in completions(words, "sel")
    assert "SELECT" in completions(words, "SEL")
    assert completions(words, "\\ti") == ["\\timing"]


def test_names_that_cannot_be_asked_for_are_those_that_were_known() -> None:
    """A service that is away takes no completion away."""
    answers = [[("main", "orders", "total")], []]
    words = Words(lambda: answers.pop(0))
    words.learn_now()
    words.learn_now()
    assert "orders" in completions(words, "from ord")


class Served:
    """A service that is away so many times."""

    def __init__(self, *away: bool) -> None:
        self.away = list(away)

    @contextmanager
    def run(self, sql: str, media_type: str) -> Iterator[Rows]:
        if self.away and self.away.pop(0):
            raise ServiceUnreachable("No service answers.")
        yield Rows(iter([b"service"]), None, None)


class OfFile:
    @contextmanager
    def run(self, sql: str, media_type: str) -> Iterator[Rows]:
        yield Rows(iter([b"file"]), None, None)


@contextmanager
def data_file() -> Iterator[QuerySource]:
    yield OfFile()


def answer(source: SessionQueries) -> bytes:
    with source.run("select 1", "text/csv") as rows:
        return b"".join(rows.chunks)


def session_over(service: Served, clock: FakeClock, said: list[str]) -> SessionQueries:
    def file() -> AbstractContextManager[QuerySource]:
        return data_file()

    return SessionQueries(
        service, file, said.append, sleep=clock.sleep, monotonic_s=clock.monotonic_s
    )


def test_the_file_is_asked_while_no_service_was_ever_there() -> None:
    """And the service as soon as it is."""
    source = session_over(Served(True, False), FakeClock(), [])
    assert [answer(source), answer(source)] == [b"file", b"service"]


def test_a_service_that_restarts_is_waited_for() -> None:
    """Said once; the file, which it needs for itself, is not opened."""
    said: list[str] = []
    source = session_over(Served(False, True, True, True, False), FakeClock(), said)
    assert [answer(source), answer(source)] == [b"service", b"service"]
    assert len(said) == 1


def test_patience_ends() -> None:
    """With what a single query would have said at once."""
    source = session_over(Served(False, *[True] * 1000), FakeClock(), [])
    answer(source)
    with pytest.raises(ServiceUnreachable):
        answer(source)


def test_the_history_is_where_the_system_keeps_such_things() -> None:
    """The user's state directory, by the variable that names it or where it usually is."""
    assert history_path({}).parts[-4:] == (".local", "state", "dynaduck", "history")
    assert history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/dynaduck/history")
