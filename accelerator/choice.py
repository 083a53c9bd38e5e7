"""What of an item becomes a row, and how: the settings that shape rows.

Owns the values and their text, which is stored with each generation: rows loaded under one choice
go on being fed under it until rows of another choice replace them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from accelerator.sql import json_text

# Joins the names along a path of unnested maps inside; `.` does in the column's name.
PATH = "\x1f"


class Misfit(StrEnum):
    """What becomes of a value that does not fit its pin."""

    DEAD_LETTER = "dead_letter"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings that shape rows.

    include, exclude   top-level attributes that become columns; None takes all. Keys always do
    where              a SQL condition over the columns of the new image; rows that do not satisfy
                       it are not kept
    unnest_depth       maps down to this depth become columns `a.b`
    pins               attribute (or path `a.b`) to SQL type
    misfit             the policy for values that do not fit their pin
    """

    max_columns: int = 1000
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    where: str | None = None
    unnest_depth: int = 0
    pins: tuple[tuple[str, str], ...] = ()
    misfit: Misfit = Misfit.DEAD_LETTER

    def takes(self, attribute: str) -> bool:
        name = attribute.split(PATH, 1)[0] if self.unnest_depth else attribute
        if self.include is not None and name not in self.include:
            return False
        return name not in self.exclude

    def text(self) -> str:
        """The stored form, equal for equal choices."""
        return json_text(
            {
                "max_columns": self.max_columns,
                "include": None if self.include is None else sorted(self.include),
                "exclude": sorted(self.exclude),
                "where": self.where,
                "unnest_depth": self.unnest_depth,
                "pins": sorted(self.pins),
                "misfit": self.misfit.value,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Choice:
        said: Mapping[str, object] = json.loads(text)
        include, exclude, pins = said.get("include"), said.get("exclude"), said.get("pins")
        where, depth, width = said.get("where"), said.get("unnest_depth"), said.get("max_columns")
        return cls(
            max_columns=width if isinstance(width, int) else 1000,
            include=tuple(map(str, include)) if isinstance(include, list) else None,
            exclude=tuple(map(str, exclude)) if isinstance(exclude, list) else (),
            where=None if where is None else str(where),
            unnest_depth=depth if isinstance(depth, int) else 0,
            pins=tuple((str(n), str(t)) for n, t in pins) if isinstance(pins, list) else (),
            misfit=Misfit(str(said.get("misfit", Misfit.DEAD_LETTER.value))),
        )

    def for_keys(self, names: tuple[str, ...]) -> Choice:
        """The same choice with the key attributes always taken."""
        include = None
        if self.include is not None:
            include = (*names, *(n for n in self.include if n not in names))
        return Choice(
            max(self.max_columns, len(names)),
            include,
            tuple(n for n in self.exclude if n not in names),
            self.where,
            self.unnest_depth,
            self.pins,
            self.misfit,
        )
