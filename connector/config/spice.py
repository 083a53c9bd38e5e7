"""Keys of Spice.ai's spicepod.yaml that a DynamoDB dataset may carry and that mean nothing here.

Owns the lists, so that a spicepod loads as it is while a misspelt key of ours is still an error.
"""

from __future__ import annotations

from connector.config.yaml_file import Located

SILENT_TOP_LEVEL = frozenset({"version", "kind", "name"})

_DATASET = """
    access check_availability dependsOn description embeddings full_text_search has_metadata_table
    invalid_type_action metadata metrics mode on_schema_change ready_state replication schema tags
    time_column time_format time_partition_column time_partition_format type
    unsupported_type_action vectors
"""
_ACCELERATION = """
    caching_max_items caching_max_size caching_stale_if_error caching_stale_while_revalidate_ttl
    caching_ttl disable_federation disable_query_push_down enabled engine engine_secret indexes
    maintained_aggregates metrics mode on_conflict on_zero_results params partition_by primary_key
    ready_state refresh_append_overlap refresh_cron refresh_data_window refresh_jitter_enabled
    refresh_jitter_max refresh_on_startup refresh_retry_enabled refresh_retry_max_attempts
    refresh_sql retention_check_enabled retention_check_interval retention_period retention_sql
    snapshots snapshots_compaction snapshots_reset_expiry_on_load snapshots_trigger
    snapshots_trigger_threshold storage_profile synchronize_with write_mode
"""
_PARAMS = """
    aws_auth aws_iam_role_source dynamodb_aws_auth dynamodb_aws_iam_role_source
    schema_infer_max_records time_format write_parallelism
"""

IGNORED_DATASET_KEYS = frozenset(
    [
        *_DATASET.split(),
        *(f"acceleration.{key}" for key in _ACCELERATION.split()),
        *(f"params.{key}" for key in _PARAMS.split()),
    ]
)


def is_spicepod(tree: Located) -> bool:
    """Whether the file says that it is one."""
    kind = tree.value.get("kind")
    return kind is not None and str(kind.value).lower() == "spicepod"


# What a key that people set on purpose would have done, and why nothing needs to do it here.
_NOTES = {
    "time_format": "times are text or numbers unless `columns` gives their column a type: then ISO "
    "8601 text and epoch seconds or milliseconds are both read, told apart by the value",
    "schema_infer_max_records": "columns are not inferred from a sample: each item may add columns "
    "and widen their types",
    "on_schema_change": "columns are added and widened by themselves, never dropped",
    "unsupported_type_action": "every type of DynamoDB has its column",
    "invalid_type_action": "a column widens to hold what comes; with a fixed type, `misfit` says "
    "what becomes of a value that it cannot hold",
}


def ignored(path: str, place: str) -> str:
    """The warning for one such key."""
    note = _NOTES.get(path.rpartition(".")[2])
    if note:
        return f"{path} ({place}) is accepted and changes nothing: {note}."
    return f"{path} ({place}) is a setting of Spice that means nothing here; it is ignored."
