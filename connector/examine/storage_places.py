"""Whether the offset table and the bucket of the log can be read, and whose they are.

Owns the looks at both, by reads alone: what writes would need is in the policy, and a write that is
only a trial has no place in a log that keeps everything. Must not know the host or the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from checkpoints.errors import CheckpointError
from checkpoints.lease import LeaseStore
from checkpoints.offsets import OffsetStore
from connector.config import Config, WalStorage
from connector.config import OffsetStore as OffsetStoreKind
from connector.errors import DynaduckError
from connector.examine.findings import Finding, Verdict
from connector.storage import log_objects, offset_items, pipeline_of

SUBJECT: Final = "runtime"


def examine(config: Config) -> list[Finding]:
    """Nothing where the data file is all there is; else one finding for each place."""
    runtime = config.runtime
    findings = []
    if runtime.offset_store is OffsetStoreKind.DYNAMODB:
        findings.append(_look("offset table", lambda: _table(config)))
    if runtime.wal_storage is not WalStorage.DISK:
        findings.append(_look("log bucket", lambda: _bucket(config)))
    return findings


def _look(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(SUBJECT, check, Verdict.OK, look())
    except (CheckpointError, DynaduckError) as error:
        return Finding(SUBJECT, check, Verdict.FAILED, str(error), error.hint)


def _table(config: Config) -> str:
    items, pipeline = offset_items(config), pipeline_of(config.runtime)
    index = OffsetStore(items, pipeline).index()
    rows = len(index.offsets) + len(index.checkpoints)
    said = f"{config.runtime.offset_dynamodb_table} can be read: {rows} rows of {pipeline.pk}"
    lease = LeaseStore(items, pipeline).read()
    if lease is None or lease.is_released:
        return f"{said}; nobody holds its lease."
    return f"{said}; {lease.owner_node} holds its lease, epoch {lease.epoch}."


def _bucket(config: Config) -> str:
    pipeline = pipeline_of(config.runtime)
    found = log_objects(config).list_after(pipeline.segments_prefix, None, 1)
    said = f"{config.runtime.wal_s3_bucket} can be listed"
    return (
        f"{said}; {pipeline.pk} has a log." if found else f"{said}; {pipeline.pk} has no log yet."
    )
