"""The first look at a table: whether everything that following it needs is allowed and there.

Made once, before anything is stored, so that a missing permission is told at start and by name and
not an hour later. Costs one request of each kind; the Scan asks for a millionth of the table.
"""

from __future__ import annotations

from checkpoints.positions import Position
from connector.recovery import unusable_stream
from connector.source import Source, TableDescription

SMALLEST_SHARE = 1_000_000  # the most segments that Scan takes


def check_access(source: Source, table: TableDescription, *, scans: bool, consistent: bool) -> None:
    """Makes one call of each kind that following `table` will make.

    Raises:
        StreamDisabled, ViewTypeUnusable: the table's stream cannot feed a copy.
        AccessDenied: `.action` is missing from the policy.
        SourceError: whatever else stands in the way; the transient ones are worth another try.
    """
    unusable = unusable_stream(table)
    if unusable is not None:
        raise unusable
    if table.stream_arn is None:
        raise ValueError("a usable stream has an ARN")
    page = source.describe_stream(table.stream_arn)
    if page.shards:
        shard_id = page.shards[-1].shard_id
        opened = source.open_iterator(table.stream_arn, shard_id, Position.trim_horizon())
        source.get_records(shard_id, opened.iterator)
    if scans:
        source.scan(0, SMALLEST_SHARE, None, consistent=consistent)
