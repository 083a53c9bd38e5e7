"""`dynaduck sql` on a terminal: statements are typed, and answered until \\q.

Owns the prompt, the commands that begin with a backslash, and what Ctrl-C means. Where a query goes
and how its rows look is `sql_view`'s business; the names that are completed are `shell_words`'.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from accelerator.errors import AcceleratorError
from accelerator.query_errors import QueryError
from accelerator.sql import identifier
from connector.cli.app import tell
from connector.cli.shell_words import Words
from connector.cli.sql_view import ResultFormat
from connector.cli.statements import split
from connector.errors import DynaduckError

PROMPT: Final = "dynaduck> "
MORE: Final = "      ..> "
LEAST_WATCH_S: Final = 0.1
TABLES: Final = (
    "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables ORDER BY ALL"
)
HELP: Final = """\
A statement ends with ; and may have many lines. Ctrl-C stops it, Ctrl-D leaves.
  \\d              the tables           \\d NAME   the columns of one
  \\format FORMAT  table, json or csv   \\timing   how long each query takes, on or off
  \\watch N        the last query again each N seconds, until Ctrl-C
  \\?              this text            \\q        leaves
"""


Asks = Callable[[str, ResultFormat], None]
"""Runs one statement and shows its rows; raises what kept it from that."""


class BadCommand(DynaduckError):
    """A backslash command that does not exist, or cannot be understood."""

    code = "bad_command"
    default_hint = "\\? lists them."


@dataclass(slots=True)
class Shell:
    """One session. `write` is for what the shell itself says; `sleep` for \\watch."""

    ask: Asks
    write: Callable[[str], object]
    result_format: ResultFormat = ResultFormat.TABLE
    is_timing: bool = False
    is_over: bool = False
    last: str = ""
    sleep: Callable[[float], None] = time.sleep
    monotonic_s: Callable[[], float] = time.perf_counter

    def take(self, text: str) -> None:
        """What was typed: a command, or statements, each answered or told why not."""
        try:
            if text.lstrip().startswith("\\"):
                self._command(text.strip())
            elif text.strip().rstrip(";").lower() in ("exit", "quit"):
                self.is_over = True
            else:
                for statement in split(text).all:
                    self._run(statement)
        except (DynaduckError, QueryError, AcceleratorError) as error:
            tell(error)
        except KeyboardInterrupt:
            self.write("Stopped.\n")

    def _run(self, statement: str) -> None:
        self.last = statement
        began_s = self.monotonic_s()
        self.ask(statement, self.result_format)
        if self.is_timing:
            self.write(f"{(self.monotonic_s() - began_s) * 1000:,.0f} ms\n")

    def _command(self, text: str) -> None:
        name, _, rest = text.rstrip(";").partition(" ")
        given = rest.strip()
        match name:
            case "\\q" | "\\quit":
                self.is_over = True
            case "\\?" | "\\h" | "\\help":
                self.write(HELP)
            case "\\d":
                self.ask(f"DESCRIBE {_relation(given)}" if given else TABLES, ResultFormat.TABLE)
            case "\\timing":
                self.is_timing = {"": not self.is_timing, "on": True}.get(given.lower(), False)
                self.write(f"Timing is {'on' if self.is_timing else 'off'}.\n")
            case "\\format" | "\\f":
                self._set_format(given)
            case "\\watch":
                self._watch(given)
            case _:
                raise BadCommand(f"There is no command {name}.")

    def _set_format(self, given: str) -> None:
        if given not in (ResultFormat.TABLE, ResultFormat.JSON, ResultFormat.CSV):
            raise BadCommand(
                f"{given or 'Nothing'} is no format.", hint="\\format table, json, csv"
            )
        self.result_format = ResultFormat(given)

    def _watch(self, given: str) -> None:
        try:
            every_s = float(given or "2")
        except ValueError:
            raise BadCommand(f"{given} is no number of seconds.", hint="\\watch 2") from None
        if not self.last:
            raise BadCommand("There is no query to repeat yet.", hint="Run one, then \\watch 2")
        if not LEAST_WATCH_S <= every_s <= 86_400:
            raise BadCommand(f"{given} s cannot be waited.", hint=f"At least {LEAST_WATCH_S:g}.")
        while True:
            self.write(time.strftime("%H:%M:%S") + f", each {every_s:g} s; Ctrl-C ends it\n")
            self._run(self.last)
            self.sleep(every_s)


def _relation(given: str) -> str:
    """A name as it was typed: quoted by the person, schema.name, or to be quoted."""
    if '"' in given:
        return given
    return ".".join(identifier(part) for part in given.split("."))


def converse(shell: Shell, words: Words) -> None:
    """Reads from the terminal until the shell is over or Ctrl-D."""
    session: PromptSession[str] = PromptSession(
        history=history(),
        completer=words,
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=_keys(),
    )
    while not shell.is_over:
        try:
            text = session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        shell.take(text)
        words.learn()


def _keys() -> KeyBindings:
    """Enter ends what is complete: a command, a statement with its semicolon, or nothing at all."""
    keys = KeyBindings()

    @Condition
    def is_complete() -> bool:
        return ends(get_app().current_buffer.text)

    @keys.add("enter", filter=is_complete)
    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


def ends(text: str) -> bool:
    """Whether Enter after this text hands it over, rather than beginning another line."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in ("exit", "quit"):
        return True
    found = split(text)
    return bool(found.complete) and not found.rest


def history_path(environment: dict[str, str] | None = None) -> Path:
    given = dict(os.environ) if environment is None else environment
    state = given.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "dynaduck" / "history"


def history() -> History:
    """That of earlier sessions, for this user alone; of this session where none can be kept."""
    try:
        path = history_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return FileHistory(path)
