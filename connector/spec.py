"""What the settings ask of a dataset's rows.

Owns the translation between the configuration's words and the accelerator's. Must not know a file,
a table or a service.
"""

from __future__ import annotations

from accelerator.choice import Misfit
from accelerator.history import History
from accelerator.spec import DatasetSpec, Poison
from connector.config import Dataset as Settings


def spec_of(settings: Settings) -> DatasetSpec:
    """What the settings ask of the dataset."""
    return DatasetSpec(
        name=settings.name,
        table_name=settings.table,
        region=settings.region,
        account=settings.account_id,
        max_columns=settings.max_columns,
        include=settings.include or None,
        exclude=settings.exclude,
        where=settings.where,
        unnest_depth=settings.unnest_depth,
        pins=tuple((pin.name, pin.type) for pin in settings.columns),
        misfit=Misfit(settings.misfit.value),
        poison=Poison(settings.poison.value),
        history=history_of(settings),
    )


def history_of(settings: Settings) -> History | None:
    history = settings.history
    return History(int(history.retention_s * 1000)) if history.enabled else None
