"""`dynaduck sync --once`: catches up to where the streams' heads stood at start, then exits.

For cron and for short-lived runtimes: the positions are in the data file, so the next run goes on
where this one stopped. Serves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from connector.config import Config, WalStorage
from connector.errors import ConfigError, DynaduckError
from connector.service import Service
from connector.upkeep import Upkeep

LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Synced:
    """What a run came to. `behind` names the datasets that did not get to their goal, and why."""

    behind: dict[str, str]
    refusal: DynaduckError | None = None

    @property
    def is_caught_up(self) -> bool:
        return not self.behind and self.refusal is None


def refuse_clustered(config: Config) -> None:
    """Raises ConfigError: a lease is for those who stay."""
    if config.runtime.wal_storage is WalStorage.CLUSTERED:
        raise ConfigError(
            "`dynaduck sync --once` does not go with runtime.wal_storage: clustered.",
            hint="Use wal_storage: s3 for runs that end, or `dynaduck run` in the cluster.",
        )


def sync_once(
    service: Service,
    *,
    deadline_s: float | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Synced:
    """Runs `service` until every dataset holds what had happened before it began.

    deadline_s   give up after this many seconds; what was applied until then is kept
    """
    service.start()
    clock = service.clock
    ends_s = None if deadline_s is None else clock.monotonic_s() + deadline_s
    try:
        while service.refusal is None and not service.is_fenced and not is_interrupted():
            if all(each.has_caught_up for each in service.replications):
                break
            if ends_s is not None and clock.monotonic_s() >= ends_s:
                break
            clock.sleep(LOOK_EVERY_S)
        refusal = service.refusal
        behind = {r.name: _why(r) for r in service.replications if not r.has_caught_up}
    finally:
        service.stop()
    return Synced(behind, refusal)


def _why(replication: Upkeep) -> str:
    reasons = replication.health.reasons
    return reasons[0].sentence if reasons else "it was not caught up in time"
