"""`dynaduck doctor`: whether a configuration can work here, and what to do where it cannot.

Owns the questions and their order. Each is asked the way the service will ask it: the same clients,
the same recovery policy, the same data file. Reads alone; costs some ten requests for each dataset
and less than two read capacity units. Must not know how findings are shown.

A look at the table comes first and tells which hosts botocore resolves, an account's own streams
host among them. Whatever it says, each host is then asked without credentials: a refused signature,
a wrong clock, and a missing route look alike from the outside and are told apart here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO, TypeVar

from accelerator.errors import AcceleratorError, FileHeldByProcess, ForeignCheckpoint
from checkpoints.positions import Position
from connector.aws.source import AwsSource
from connector.config import Config, Dataset, InitialSnapshot, RefreshMode
from connector.errors import (
    AccessDenied,
    CredentialsInvalid,
    DynaduckError,
    SourceError,
    StreamDisabled,
    TableNotFound,
    Throttled,
    Unavailable,
)
from connector.examine import premises, storage_places, way_there
from connector.examine.findings import Finding, Verdict, failures, show
from connector.examine.first_contact import SMALLEST_SHARE
from connector.examine.iam_policy import stream_pattern, table_resource
from connector.examine.premises import Running
from connector.examine.reachability import reach
from connector.examine.resumability import judge, stored_dataset
from connector.examine.way_there import ReachHost
from connector.recovery import unusable_stream
from connector.service import aws_of
from connector.source import TableDescription

T = TypeVar("T")

PASSED: Final = 0
FAILED: Final = 5

STREAM_TRIES: Final = 3
STREAM_TRY_EVERY_S: Final = 0.5
UNREADABLE_KEYS: Final = "INACCESSIBLE_ENCRYPTION_CREDENTIALS"
RCU_BYTES: Final = 4096  # of a consistent read


def run_doctor(config: Config, out: TextIO, *, as_json: bool = False) -> int:
    """Examines everything, writes the findings, and returns the exit status: 0, or 5."""
    findings = examine(config)
    show(findings, out, as_json=as_json, mask=config.mask)
    return FAILED if failures(findings) else PASSED


def examine(
    config: Config,
    *,
    reach_host: ReachHost = reach,
    wall_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Finding]:
    """All findings, those of the host first.

    wall_s   the host's clock, which signatures are dated by
    """
    findings, running = premises.examine(config.runtime)
    findings += storage_places.examine(config)
    for settings in config.datasets:
        source = AwsSource(aws_of(settings))
        try:
            examination = Examination(config, settings, source, running, reach_host, wall_s, sleep)
            findings += examination.findings()
        finally:
            source.close()
    return findings


class Examination:
    """Of one dataset. Made for one use."""

    def __init__(
        self,
        config: Config,
        settings: Dataset,
        source: AwsSource,
        running: Running | None,
        reach_host: ReachHost,
        wall_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._config = config
        self._settings = settings
        self._source = source
        self._running = running
        self._reach_host = reach_host
        self._wall_s = wall_s
        self._sleep = sleep
        self._findings: list[Finding] = []
        self._keys_denied: AccessDenied | None = None
        self._streams_down: SourceError | None = None
        self._account = settings.account_id
        self._has_credentials = False

    def findings(self) -> list[Finding]:
        follows = self._settings.refresh_mode is RefreshMode.CHANGES
        self._ok("region", f"{self._settings.region}.")
        self._has_credentials = self._look_at_credentials()
        table = self._look_at_table() if self._has_credentials else None
        if follows:
            self._look_at_stream(table)
        if self._has_credentials:
            self._look_at_scan(table)
            self._look_at_single_reads(table)
        if follows and self._has_credentials:
            self._look_at_positions(table)
        called, now_s = self._source.hosts, self._wall_s()
        self._findings += way_there.examine(self._settings, called, self._reach_host, now_s)
        self._look_at_encryption(table)
        return self._findings

    # Saying

    def _say(self, check: str, verdict: Verdict, sentence: str, fix: str = "") -> None:
        self._findings.append(Finding(self._settings.name, check, verdict, sentence, fix))

    def _ok(self, check: str, sentence: str) -> None:
        self._say(check, Verdict.OK, sentence)

    def _note(self, check: str, sentence: str, fix: str = "") -> None:
        self._say(check, Verdict.NOTE, sentence, fix)

    def _failed(self, check: str, sentence: str, fix: str) -> None:
        self._say(check, Verdict.FAILED, sentence, fix)

    def _not_checked(self, check: str, sentence: str) -> None:
        self._say(check, Verdict.NOT_CHECKED, sentence)

    def _try(self, check: str, call: Callable[[], T], *, is_wanted: bool = True) -> T | None:
        """What the call brings; None once its error is a finding.

        is_wanted   False where the service does without: a refusal is then a note
        """
        try:
            return call()
        except SourceError as error:
            self._tell(check, error, is_wanted=is_wanted)
        return None

    def _tell(self, check: str, error: SourceError, *, is_wanted: bool = True) -> None:
        if not isinstance(error, AccessDenied):
            self._failed(check, str(error), error.hint or "Try again; if it lasts, see the log.")
            if check in _STREAM_CHECKS and isinstance(error, Unavailable):
                self._streams_down = error
        elif error.action.startswith("kms:") or (error.aws_code or "").startswith("KMS"):
            self._keys_denied = error
            self._not_checked(check, "The key that encrypts the table is refused: see `kms`.")
        elif is_wanted:
            self._failed(check, str(error), self._permission(error))
        else:
            self._note(check, str(error), self._permission(error))

    def _permission(self, denied: AccessDenied) -> str:
        if "explicitly" in denied.hint:
            return denied.hint
        resource = table_resource(self._settings, self._account)
        if denied.action.rpartition(":")[2] in _STREAM_ACTIONS:
            resource = stream_pattern(resource)
        return f"Allow {denied.action} on {resource}; `dynaduck iam-policy` prints the policy."

    # Who and what

    def _look_at_credentials(self) -> bool:
        try:
            caller = self._source.caller_identity()
        except CredentialsInvalid as error:
            self._failed("credentials", str(error), error.hint)
            return False
        except DynaduckError as error:
            # STS may be out of reach of a private subnet; the calls below tell more.
            self._note("credentials", f"Whose they are is not known: {error}")
            return True
        self._account = self._account or caller.account
        self._ok("credentials", f"{caller.arn}, account {caller.account}.")
        return True

    def _look_at_table(self) -> TableDescription | None:
        table = self._try("table", self._described)
        if table is None:
            return None
        self._account = table.table_arn.split(":")[4]
        if table.table_status == UNREADABLE_KEYS:
            return table
        if table.table_status not in ("ACTIVE", "UPDATING"):
            self._note("table", f"{table.table_arn} is {table.table_status}.", "Wait until ACTIVE.")
        else:
            size_mb = table.table_size_bytes / 1_000_000
            self._ok(
                "table", f"{table.table_arn}, about {table.item_count:,} items, {size_mb:,.1f} MB."
            )
        self._look_at_capacity(table)
        return table

    def _described(self) -> TableDescription:
        try:
            return self._source.describe_table()
        except TableNotFound as error:
            settings = self._settings
            hint = (
                f"Check the name and the region ({settings.region}): `aws dynamodb list-tables "
                f"--region {settings.region}` shows what is there."
            )
            raise TableNotFound(str(error), hint=hint, aws_code=error.aws_code) from error

    def _look_at_capacity(self, table: TableDescription) -> None:
        units = table.read_capacity_units
        if not units or table.billing_mode == "PAY_PER_REQUEST":
            return
        limit = self._settings.scan_max_rcu
        consistent = 1 if self._settings.scan_consistent_read else 2
        rate = min(units, limit or units)
        hours = table.table_size_bytes / RCU_BYTES / consistent / rate / 3600
        said = f"{units} read capacity units are provisioned; a snapshot takes {hours:,.1f} h"
        if limit is None:
            self._note(
                "capacity",
                f"{said} and may use all of them.",
                f"Set scan_max_rcu below {units}, or switch to on-demand for the snapshot.",
            )
        else:
            self._ok("capacity", f"{said} at scan_max_rcu {limit}.")

    # The stream

    def _look_at_stream(self, table: TableDescription | None) -> None:
        if table is None:
            self._not_checked("stream", "The table could not be looked at.")
            self._ask_without_stream()
            return
        unusable = unusable_stream(table)
        if unusable is not None:
            is_off = isinstance(unusable, StreamDisabled)
            self._failed("stream", str(unusable), _turn_on(table, is_off=is_off))
        else:
            self._ok("stream", f"On, view type {table.stream_view_type}.")
            if self._settings.history.enabled and table.stream_view_type == "NEW_IMAGE":
                self._note("stream", "The history will hold no old images: NEW_IMAGE has none.")
        if table.stream_arn is None:
            self._ask_without_stream()
            return
        self._look_at_shards(table.stream_arn)

    def _look_at_shards(self, stream_arn: str) -> None:
        page = self._try("DescribeStream", lambda: self._source.describe_stream(stream_arn))
        if page is not None:
            self._ok("DescribeStream", f"Allowed; {stream_arn} is {page.stream_status}.")
        if self._streams_down is not None:
            for check in _STREAM_CHECKS[2:]:
                self._not_checked(check, "The streams' endpoint does not answer.")
            return
        if page is None or not page.shards:
            self._ask_without_shards(stream_arn)
            return
        shard_id = page.shards[-1].shard_id
        opened = self._try(
            "GetShardIterator",
            lambda: self._source.open_iterator(stream_arn, shard_id, Position.trim_horizon()),
        )
        if opened is None:
            self._ask_for_records()
            return
        self._ok("GetShardIterator", "Allowed.")
        self._look_at_readers(shard_id, opened.iterator)

    def _ask_without_stream(self) -> None:
        """No stream's label is known, but what is denied for all of them shows for any."""
        stream_arn = f"{table_resource(self._settings, self._account)}/stream/{_NO_LABEL}"
        if self._account is None or not self._has_credentials:
            for check in _STREAM_CHECKS[1:]:
                self._not_checked(check, "The table could not be looked at.")
            return
        try:
            self._source.describe_stream(stream_arn)
        except AccessDenied as denied:
            self._tell("DescribeStream", denied)
        except Unavailable:
            for check in _STREAM_CHECKS[1:]:
                self._not_checked(check, "The streams' endpoint does not answer.")
            return
        except SourceError:
            self._not_checked("DescribeStream", "It is not denied; no stream is there to try.")
        self._ask_without_shards(stream_arn)

    def _ask_without_shards(self, stream_arn: str) -> None:
        """IAM is asked before a shard is looked for: a denial shows for one that is none, too."""
        check = "GetShardIterator"
        try:
            self._source.open_iterator(stream_arn, _NO_SHARD, Position.trim_horizon())
        except AccessDenied as denied:
            self._tell(check, denied)
        except SourceError:
            self._not_checked(check, "It is not denied; no shard is known to try it on.")
        self._ask_for_records()

    def _ask_for_records(self) -> None:
        try:
            self._source.get_records(_NO_SHARD, "none")
        except AccessDenied as denied:
            self._tell("GetRecords", denied)
        except SourceError:
            self._not_checked("GetRecords", "No shard could be opened to try it on.")

    def _look_at_readers(self, shard_id: str, iterator: str) -> None:
        """One page; when it is throttled, again: we have asked too little to be the cause."""
        throttled = 0
        for attempt in range(STREAM_TRIES):
            try:
                self._source.get_records(shard_id, iterator)
                break
            except Throttled:
                throttled += 1
                if attempt + 1 < STREAM_TRIES:
                    self._sleep(STREAM_TRY_EVERY_S)
            except SourceError as error:
                self._tell("GetRecords", error)
                return
        share = self._running.throttled_reads(self._settings.name) if self._running else None
        self._ok("GetRecords", "Allowed.")
        if throttled:
            self._failed(
                "readers",
                f"GetRecords of {shard_id} was throttled {throttled} times of {STREAM_TRIES}, at "
                "two calls a second: others read this stream.",
                _FEWER_READERS,
            )
        elif share is not None and share > premises.THROTTLED_SHARE:
            self._failed(
                "readers",
                f"{share:.0%} of the running service's GetRecords are throttled: others read this "
                "stream.",
                _FEWER_READERS,
            )
        else:
            self._ok("readers", "No sign of more than two readers of a shard.")

    # Reading the table

    def _look_at_scan(self, table: TableDescription | None) -> None:
        if table is not None and table.table_status == UNREADABLE_KEYS:
            return
        settings = self._settings
        skips = settings.initial_snapshot is InitialSnapshot.DISABLED
        if skips and settings.refresh_mode is RefreshMode.CHANGES:
            self._ok("Scan", "Not needed: dynamodb_replication_initial_snapshot is disabled.")
            return
        try:
            self._source.scan(0, SMALLEST_SHARE, None, consistent=settings.scan_consistent_read)
        except Throttled as error:
            self._failed("Scan", str(error), _MORE_CAPACITY)
            return
        except SourceError as error:
            self._tell("Scan", error)
            return
        self._ok("Scan", "Allowed.")

    def _look_at_single_reads(self, table: TableDescription | None) -> None:
        if table is None or table.table_status == UNREADABLE_KEYS:
            return
        keys = ", ".join(
            f'"{key.name}":{{"{key.type}":"{_ANY_KEY[key.type]}"}}' for key in table.key_schema
        )
        answer = self._try(
            "GetItem", lambda: self._source.get_item("{" + keys + "}"), is_wanted=False
        )
        if answer is not None:
            self._ok("GetItem", "Allowed; `verify --repair` and dead-letter replay use it.")

    def _look_at_encryption(self, table: TableDescription | None) -> None:
        denied = self._keys_denied
        settings = self._settings
        if denied is not None:
            self._failed(
                "kms",
                str(denied),
                "Allow kms:Decrypt on that key to this caller, in its policy and in the key's, "
                f"by way of dynamodb.{settings.region}.amazonaws.com: `dynaduck iam-policy "
                "--kms-key ARN` prints the statement.",
            )
        elif table is not None and table.table_status == UNREADABLE_KEYS:
            self._failed(
                "kms",
                f"DynamoDB cannot use the key that encrypts {settings.table}.",
                "Enable the KMS key again and restore its grants to DynamoDB: within 7 days, after "
                "which the table is archived.",
            )
        elif table is not None:
            self._ok("kms", "No call was refused for an encryption key.")

    # What is stored

    def _look_at_positions(self, table: TableDescription | None) -> None:
        check = "checkpoint"
        if self._running is not None:
            self._look_at_running(check)
            return
        try:
            stored = stored_dataset(self._config.runtime, self._settings)
        except FileHeldByProcess:
            self._not_checked(check, "Another process has the data file.")
            return
        except ForeignCheckpoint as error:
            self._failed(check, str(error), error.hint)
            return
        except AcceleratorError as error:
            self._failed(check, str(error), error.hint or "Move the file away and start again.")
            return
        if stored is None:
            self._ok(check, "None yet: the first start takes a snapshot.")
        elif table is None:
            self._not_checked(check, "The table could not be looked at.")
        else:
            self._say(check, *judge(stored, table, self._settings, self._source))

    def _look_at_running(self, check: str) -> None:
        if self._running is None:
            return
        name = self._settings.name
        headroom_s = self._running.headroom_s(name)
        if self._running.gaps_open(name) or self._running.is_in_error(name):
            lost = self._running.gaps_open(name)
            said = f"{lost:.0f} gaps are open" if lost else "the dataset is in state Error"
            self._failed(
                check,
                f"A service is running, and {said}.",
                f"`dynaduck status` says why; `dynaduck refresh {name}` loads a lost table anew.",
            )
        elif headroom_s is None:
            self._note(check, "A service is running; it does not tell how far this dataset is.")
        elif headroom_s < premises.LOW_HEADROOM_S:
            self._failed(
                check,
                f"The stream drops what is unread in {headroom_s / 3600:.1f} h.",
                "`dynaduck status` shows the shard that is furthest behind and its error.",
            )
        else:
            self._ok(check, f"A service is running, {headroom_s / 3600:.1f} h before any loss.")


_STREAM_CHECKS: Final = ("stream", "DescribeStream", "GetShardIterator", "GetRecords")
_STREAM_ACTIONS: Final = frozenset(_STREAM_CHECKS[1:])
_NO_LABEL: Final = "2000-01-01T00:00:00.000"
_NO_SHARD: Final = "shardId-00000000000000000000-00000000"
_ANY_KEY: Final = {"S": "dynaduck-doctor", "N": "0", "B": "ZHluYWR1Y2s="}
_FEWER_READERS: Final = (
    "At most two processes may read a shard, one on a global table: look for another dynaduck, a "
    "Lambda trigger, a Kinesis adapter or an old deployment, and stop one."
)
_MORE_CAPACITY: Final = (
    "Switch the table to on-demand, raise its read capacity for the snapshot, or set scan_max_rcu "
    "below what is provisioned."
)


def _turn_on(table: TableDescription, *, is_off: bool) -> str:
    region = table.table_arn.split(":")[3]
    command = f"aws dynamodb update-table --region {region} --table-name {table.table_name}"
    on = f"{command} --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    if is_off:
        return f"{on}  (or set acceleration.refresh_mode: full)"
    return (
        f"{command} --stream-specification StreamEnabled=false, then {on}: a view type cannot be "
        "changed, and readers of the old stream must be done with it"
    )
