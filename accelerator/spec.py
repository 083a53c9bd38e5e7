"""What the configuration says of a dataset, as far as its rows are concerned.

Owns the values and the fingerprint that tells whether rows loaded under other settings still mean
the same. Knows no file and no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from accelerator.choice import Choice, Misfit
from accelerator.history import History


class Poison(StrEnum):
    """What happens to a record that cannot be applied."""

    QUARANTINE = "quarantine"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What the configuration says of a dataset.

    table_name, region, account   where it is said, the stored dataset has to match it
    max_columns to misfit         as in `choice.Choice`
    poison                        what becomes of a record that cannot be applied
    history                       whether and how long every change is kept; None: not
    """

    name: str
    table_name: str | None = None
    region: str | None = None
    account: str | None = None
    max_columns: int = 1000
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    where: str | None = None
    unnest_depth: int = 0
    pins: tuple[tuple[str, str], ...] = ()
    misfit: Misfit = Misfit.DEAD_LETTER
    poison: Poison = Poison.QUARANTINE
    history: History | None = None

    @property
    def choice(self) -> Choice:
        return Choice(
            max_columns=self.max_columns,
            include=self.include,
            exclude=self.exclude,
            where=self.where,
            unnest_depth=self.unnest_depth,
            pins=self.pins,
            misfit=self.misfit,
        )

    @property
    def fingerprint(self) -> str:
        """Changes when rows loaded under the old settings no longer mean the same."""
        return self.choice.text()
