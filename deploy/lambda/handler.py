"""`dynaduck sync --once` as an AWS Lambda function: catches up, and ends before the function must.

An example to take as it is or to change. Settings come from DYNADUCK_… variables, or from a
`dynaduck.yaml` beside this file. `/tmp` is all that a function may write to, and is lost with its
container: with `wal_storage: s3` the log in the bucket is what the next one resumes from.

Give the function a reserved concurrency of 1. Two at once do no harm, since only one can write the
log, but the other's time is wasted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from connector.config import Config, WalStorage, find_file, load
from connector.errors import DynaduckError
from connector.logs import configure_logs_of
from connector.service import Service
from connector.sync import refuse_clustered, sync_once

DATA_DIR: Final = "/tmp/dynaduck"  # noqa: S108
LEAST_MARGIN_S: Final = 10.0
MOST_MARGIN_S: Final = 40.0
"""What was read is applied, committed and shown before the function ends: seconds, at most this."""
MARGIN_SHARE: Final = 0.25

log = structlog.get_logger(__name__)


class Context(Protocol):
    """What Lambda passes beside the event."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(_event: object, context: Context) -> dict[str, Any]:
    """One run. `caught_up` is False when time ran out: the next invocation goes on from there.

    Raises:
        DynaduckError: a person has to mend something; the invocation counts as failed.
    """
    config = configuration()
    deadline_s = deadline_of(context.get_remaining_time_in_millis() / 1000)
    if config.runtime.wal_storage is WalStorage.DISK:
        log.warning("nothing but /tmp keeps this copy: a new container takes a new snapshot")
    synced = sync_once(Service(config), deadline_s=deadline_s)
    if synced.refusal is not None:
        raise synced.refusal
    log.info("synced", caught_up=synced.is_caught_up, behind=synced.behind)
    return {"caught_up": synced.is_caught_up, "behind": synced.behind}


def configuration() -> Config:
    """Raises ConfigError."""
    env = {"DYNADUCK_DATA_DIR": DATA_DIR, "DYNADUCK_LOG_FORMAT": "json", **os.environ}
    config = load(find_file(None, env, Path(__file__).parent), env, {})
    configure_logs_of(config.runtime)
    refuse_clustered(config)
    return config


def deadline_of(remaining_s: float) -> float:
    """How long to go on reading. Raises DynaduckError when there is no time even to stop."""
    margin_s = min(MOST_MARGIN_S, max(LEAST_MARGIN_S, MARGIN_SHARE * remaining_s))
    if remaining_s <= margin_s:
        raise DynaduckError(
            f"The function has {remaining_s:.0f} s left; it needs more than {margin_s:.0f}.",
            hint="Give it a timeout of a minute or more.",
        )
    return remaining_s - margin_s
