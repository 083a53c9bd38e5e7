"""The publishers of a configuration: which datasets have one, and what each is made of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import quote

from accelerator.copies import CopyFormat
from accelerator.freshness import Freshness
from connector.aws.copies import CopyBucket
from connector.config import Dataset as Settings
from connector.config.copy_target import CopyTarget
from connector.publish.places import FilePlace, ObjectPlace, Place
from connector.publish.publisher import Order, Publisher, Subject
from connector.service import Service
from connector.storage import store_settings
from connector.upkeep import Upkeep

STAGING: Final = "publishing"


def publishers(
    service: Service, live: Callable[[], Mapping[str, Freshness]]
) -> tuple[Publisher, ...]:
    """One for each dataset that wants copies. `live`: by dataset, how fresh its rows are."""
    return tuple(
        _publisher(service, upkeep, upkeep.settings.publish.every_s, live)
        for upkeep in service.replications
        if upkeep.settings.publish.every_s is not None
    )


def _publisher(
    service: Service,
    upkeep: Upkeep,
    every_s: float,
    live: Callable[[], Mapping[str, Freshness]],
) -> Publisher:
    settings = upkeep.settings
    target = CopyTarget.of(settings.publish, settings.name)

    def changes() -> tuple[int, int]:
        stored = upkeep.stored
        return upkeep.dataset.row_commits, -1 if stored is None else stored.generation

    def fail(error: Exception | None) -> None:
        upkeep.copy_error = error

    return Publisher(
        Order(
            settings.name,
            every_s,
            CopyFormat(settings.publish.format.value),
            str(target),
            _staging(service, settings, "spill"),
        ),
        _place(service, settings, target),
        Subject(
            readers=service.database,
            changes=changes,
            live=live,
            now_ms=lambda: upkeep.aws_now_ms,
            fail=fail,
            reopen=service.try_reopen,
        ),
        service.recorder.dataset(settings.name),
        service.history,
        service.clock,
        version=version("dynaduck"),
        draw=random.random,
        wall_s=time.time,
    )


def _place(service: Service, settings: Settings, target: CopyTarget) -> Place:
    if target.bucket is None:
        return FilePlace(Path(target.name).absolute())
    bucket = CopyBucket(store_settings(replace(service.config, datasets=(settings,))))
    return ObjectPlace(bucket, target.bucket, target.name, _staging(service, settings, "copy"))


def _staging(service: Service, settings: Settings, what: str) -> Path:
    """Of what is on its way, beside the data file, which has the disk for it."""
    return service.database.path.parent / STAGING / f"{quote(settings.name, safe='')}.{what}"
