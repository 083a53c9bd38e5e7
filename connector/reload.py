"""What a configuration that was read again changes: what holds at once, and what waits.

Owns the comparison, and the configuration that holds afterwards: the running one, with the values
of those settings that the catalog marks as `reloads` taken from the new one. Pure. Must not know a
file, a signal or a service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from connector.config import Config, Dataset
from connector.config.settings import (
    FROM,
    NAME,
    REGION,
    Setting,
    dataset_settings,
    runtime_settings,
)

Holder = TypeVar("Holder")

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs. Values are as `config show` prints them: secrets are masked.

    holds   the running service takes it at once; otherwise it waits for a restart
    """

    path: str
    before: str
    after: str
    holds: bool


def changes(running: Config, read: Config) -> tuple[Change, ...]:
    """Everything that the new configuration says otherwise, in the order of the catalog."""
    found = list(_of_settings(running, read, "runtime", runtime_settings()))
    for name, (before, after) in _paired(running, read).items():
        path = f"datasets.{name}"
        if before is None or after is None:
            was, now = (ABSENT if each is None else each.table for each in (before, after))
            found.append(Change(path, was, now, holds=False))
            continue
        if (before.table, before.table_arn) != (after.table, after.table_arn):
            found.append(Change(f"{path}.from", *_tables(before, after), holds=False))
        if before.region != after.region:
            found.append(Change(f"{path}.{REGION.key}", before.region, after.region, holds=False))
        found += _of_settings(running, read, path, _own_settings(), before, after)
    return tuple(found)


def taken_over(running: Config, read: Config) -> Config:
    """The running configuration with the new values of the settings that may change under way."""
    pairs = _paired(running, read)
    datasets = []
    for dataset in running.datasets:
        after = pairs[dataset.name.lower()][1]
        datasets.append(dataset if after is None else _with(dataset, after, _own_settings()))
    return replace(
        running,
        datasets=tuple(datasets),
        runtime=_with(running.runtime, read.runtime, runtime_settings()),
        secret_texts=running.secret_texts | read.secret_texts,
    )


def _paired(running: Config, read: Config) -> dict[str, tuple[Dataset | None, Dataset | None]]:
    """By the name in lower case: SQL does not tell cases apart either."""
    before = {dataset.name.lower(): dataset for dataset in running.datasets}
    after = {dataset.name.lower(): dataset for dataset in read.datasets}
    return {name: (before.get(name), after.get(name)) for name in (before | after)}


def _own_settings() -> Iterator[Setting]:
    return (setting for setting in dataset_settings() if setting not in (FROM, NAME, REGION))


def _of_settings(
    running: Config,
    read: Config,
    path: str,
    settings: Sequence[Setting] | Iterator[Setting],
    before: Dataset | None = None,
    after: Dataset | None = None,
) -> Iterator[Change]:
    for setting in settings:
        old = _value(before or running.runtime, setting)
        new = _value(after or read.runtime, setting)
        if old != new:
            yield Change(
                f"{path}.{setting.key}",
                running.mask(setting.kind.show(old)),
                read.mask(setting.kind.show(new)),
                setting.reloads,
            )


def _value(holder: object, setting: Setting) -> Any:
    return reduce(getattr, setting.attribute, holder)


def _with(holder: Holder, other: object, settings: Sequence[Setting] | Iterator[Setting]) -> Holder:
    for setting in settings:
        if setting.reloads:
            holder = _set(holder, setting.attribute, _value(other, setting))
    return holder


def _set(holder: Any, attribute: tuple[str, ...], value: Any) -> Any:
    name, *rest = attribute
    inner = value if not rest else _set(getattr(holder, name), tuple(rest), value)
    return replace(holder, **{name: inner})


def _tables(before: Dataset, after: Dataset) -> tuple[str, str]:
    return before.table_arn or before.table, after.table_arn or after.table
