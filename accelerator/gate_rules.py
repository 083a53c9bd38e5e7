"""What a user's query may name and how large its constants may be.

Data only: lists and numbers that `gate` applies. Table functions are allowed one by one, since each
new DuckDB brings some that read files, settings or other people's queries. Scalar functions are
denied one by one; a test holds every function that DuckDB calls volatile to one of the two lists.
"""

from __future__ import annotations

ALLOWED_TABLE_FUNCTIONS = frozenset(
    {
        "generate_series",
        "generate_subscripts",
        "icu_calendar_names",
        "json_each",
        "json_tree",
        "pg_timezone_names",
        "range",
        "regexp_split_to_table",
        "repeat",
        "repeat_row",
        "unnest",
    }
)

# Volatile, and yet without an effect outside the query.
ALLOWED_VOLATILE_FUNCTIONS = frozenset(
    {"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"}
)

DENIED_FUNCTIONS = frozenset(
    {
        # They act on the database, the log or the session.
        "add_grammar_extension",
        "checkpoint",
        "currval",
        "force_checkpoint",
        "nextval",
        "setseed",
        "setval",
        "truncate_duckdb_logs",
        "write_log",
        # They wait, and cannot be interrupted.
        "pg_sleep",
        "sleep_ms",
        # They run text or a serialized plan as SQL, past this gate.
        "json_execute_serialized_sql",
        "query",
        "query_table",
        "json_deserialize_sql",
        "json_serialize_plan",
        "json_serialize_sql",
        # Their recursion follows the nesting of the text: a million brackets overflow the stack,
        # and with it goes the process (2.0.1 and 1.5.5).
        "json_contains",
        "json_group_structure",
        "json_structure",
        # They fail inside DuckDB, which then gives up the whole database: an empty list, or a huge
        # sample, or branches of other types (1.5.5; the second on 2.0.1 too).
        "reservoir_quantile",
        "switch",
        # Each step can double what the last one gave: 36 elements make 64 GB, uncounted.
        "array_reduce",
        "list_reduce",
        "reduce",
        # They read files, the environment, settings, secrets or other people's queries.
        "current_connection_id",
        "current_query",
        "current_query_id",
        "current_setting",
        "current_transaction_id",
        "get_block_size",
        "getenv",
        "getvariable",
        "glob",
        "in_search_path",
        "parse_duckdb_log_message",
        "pg_conf_load_time",
        "pg_get_viewdef",
        "pg_get_constraintdef",
        "pg_get_expr",
        "txid_current",
        "which_secret",
        # They take raw memory, plan internals or the states of aggregates as arguments.
        "combine",
        "combine_aggr",
        "create_sort_key",
        "finalize",
        "index_key",
        "invoke",
        "remap_struct",
        "stats",
        "to_aggregate_state",
        "vector_type",
    }
)

# Families in which every member is one of the above sorts, also those of versions to come.
DENIED_FUNCTION_PREFIXES = (
    "disable_",
    "duckdb_",
    "enable_",
    "pragma_",
    "quack_",
    "read_",
    "sniff_",
    "st_",
    "test_",
    "variant_",
    "write_",
)

# A cast of deeply nested JSON to VARIANT overflows the stack, as above.
DENIED_TYPES = frozenset({"variant"})

# Names of DuckDB's own catalogue views, which an unqualified name would find.
HIDDEN_RELATION_PREFIXES = ("duckdb_", "pg_", "pragma_", "sqlite_")

# The data file's own name, by which clients that list catalogs qualify what they ask for.
CATALOG = "replica"

SYSTEM_RELATIONS = frozenset(
    {
        ("dynaduck", "datasets"),
        ("dynaduck", "checkpoints"),
        ("dynaduck", "snapshot_segments"),
        ("dynaduck", "columns"),
        ("dynaduck", "gaps"),
        ("dynaduck", "dead_letters"),
        ("runtime", "task_history"),
        ("information_schema", "columns"),
        ("information_schema", "schemata"),
        ("information_schema", "tables"),
        ("information_schema", "views"),
    }
)

# Texts of a statement and shapes of its tree, measured on 2.0.1 and 1.5.5: beyond these the parser,
# the binder or the optimizer takes seconds to minutes, and no interrupt reaches them.
MAX_TEXT_BYTES = 256 * 1024
MAX_OPEN_BRACKETS = 200  # 20,000 unclosed parentheses: minutes in the parser of 2.0.1
MAX_NODES = 60_000
MAX_SELECTS = 300  # 20,000 UNION ALL: minutes
MAX_RELATIONS = 40  # a join of 64: 3.5 s after the interrupt on 1.5.5
MAX_NAME_PARTS = 64  # a.a.a… with 20,000 parts: minutes on 2.0.1
MAX_LAMBDA_DEPTH = 6  # 16 nested lambdas: 1 s and 280 MB on 2.0.1
MAX_ARROW_CHAIN = 16  # on 1.5.5 each `->` doubles the binder's work; 16 take 0.1 s
MAX_SUBQUERY_DEPTH = 10  # EXISTS or scalar, inside one another: each doubles the work on 1.5.5
MAX_STARS = 10  # 100 COLUMNS(*) over 1,000 columns: 7 s after the interrupt on 2.0.1
MAX_GROUPING_SETS = 64  # cube of 10 columns: out of memory at 400 MB
MAX_INLINED = 1_000  # relations in the plan after NOT MATERIALIZED CTEs are copied in
MAX_EXPANSION = 20_000  # nodes after aliases and inlined CTEs are expanded: both double per step
MAX_EXPRESSIONS = 5_000  # entries of one select list

# One call of a scalar function cannot be interrupted, so its size is bounded before it runs.
MAX_TEXT_GROWTH = 1_000  # characters: repeat, lpad, rpad
MAX_LIST_GROWTH = 100_000  # elements: range and generate_series as lists, list_resize
MAX_VOLUME = 10**7  # how many times larger than its input a value may become
VOLUME_UNIT = 1_000  # characters of a constant that count as one
MAX_WILDCARDS = 3  # of a LIKE with `_`, or a GLOB, where they run away
MAX_FORMAT_DIGITS = 3  # width and precision in the formats of printf and format
