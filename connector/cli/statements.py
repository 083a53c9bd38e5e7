"""Where one SQL statement ends and the next begins, in what a person or a file gives.

Owns the scan for `;` outside of strings, quoted names and comments. Whether a statement is any
good is the service's business.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

# What a semicolon may stand in without ending anything; the last of each may be unfinished.
_TOKEN: Final = re.compile(
    r"""(?P<skip>
        '(?:[^']|'')*'?            # a string
      | "(?:[^"]|"")*"?            # a name
      | --[^\n]*\n?                # a comment to the end of the line
      | /\*.*?(?:\*/|\Z)           # a comment
      | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
      )
      | (?P<end>;)
      | .""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Split:
    """`complete` statements without their semicolons, and what has none yet."""

    complete: tuple[str, ...]
    rest: str

    @property
    def all(self) -> tuple[str, ...]:
        """As a file means it: the last statement needs no semicolon."""
        return (*self.complete, self.rest) if self.rest else self.complete


def split(text: str) -> Split:
    """The statements of the text; those of nothing but space and comments are left out."""
    complete: list[str] = []
    start, is_empty = 0, True
    for token in _TOKEN.finditer(text):
        if token["end"]:
            if not is_empty:
                complete.append(text[start : token.start()].strip())
            start, is_empty = token.end(), True
        elif not token[0].isspace() and not token[0].startswith(("--", "/*")):
            is_empty = False
    return Split(tuple(complete), "" if is_empty else text[start:].strip())


def is_terminal() -> bool:
    """Whether a person types and reads here."""
    return sys.stdin.isatty() and sys.stdout.isatty()
