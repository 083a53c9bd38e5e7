"""Names in the shared table and in the bucket, derived from who we are and never configured.

Owns the layout of both: partition keys, sort keys, object keys, and their way back. Must not know
what is stored under them.

    {tenant}#{workspace}#{pipeline}   lease · offset#{namespace}#{partition} · checkpoint#{key}
    cluster#{cluster_id}              node#{uuid}
    {tenant}/{workspace}/{pipeline}/segments/{index:020d}.seg
    {tenant}/{workspace}/{pipeline}/segments/base/{index:020d}.base.parquet
    {tenant}/{workspace}/{pipeline}/segments/base/parts/{index:020d}-{writer}/{number:06d}

Bases lie one level below the segments: at one segment a second a month holds 2.6 million of these,
and the newest base among them would cost 2,600 listings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from checkpoints.errors import KeyInvalid

LEASE_SK: Final = "lease"
NODE_PREFIX: Final = "node#"
OFFSET_PREFIX: Final = "offset#"
CHECKPOINT_PREFIX: Final = "checkpoint#"
CLUSTER_PREFIX: Final = "cluster#"

# DynamoDB's limits for a partition key and a sort key; S3's for a key is 1,024 too.
MAX_PK_BYTES: Final = 2048
MAX_SK_BYTES: Final = 1024

# '#' and '/' are the separators. '*', '?' and '$' mean something in an IAM policy's resource.
_FORBIDDEN_IN_NAME: Final = re.compile(r"[#/*?$\x00-\x1f\x7f]")
_INDEX_DIGITS: Final = 20
_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.seg")
_BASE_NAME: Final = re.compile(r"(\d{20})\.base\.parquet")


@dataclass(frozen=True, slots=True)
class PipelineKey:
    """Whose offsets, lease and log these are.

    Raises:
        KeyInvalid: a name is empty, '.', '..', too long, or holds a character with a meaning.
    """

    tenant: str
    workspace: str
    pipeline: str

    def __post_init__(self) -> None:
        for role, name in (
            ("tenant", self.tenant),
            ("workspace", self.workspace),
            ("pipeline", self.pipeline),
        ):
            _check_part(role, name)
            found = _FORBIDDEN_IN_NAME.search(name)
            if found is not None or name in {".", ".."}:
                raise KeyInvalid(f"The {role} {name!r} cannot be part of a key.")
        if len(self.segments_prefix.encode()) + 40 > MAX_SK_BYTES:
            raise KeyInvalid("Tenant, workspace and pipeline together are too long for S3 keys.")

    @property
    def pk(self) -> str:
        return f"{self.tenant}#{self.workspace}#{self.pipeline}"

    @classmethod
    def of_pk(cls, pk: str) -> PipelineKey:
        """Raises KeyInvalid on a text that `pk` never gave."""
        parts = pk.split("#")
        if len(parts) != 3:
            raise KeyInvalid(f"{pk!r} is not the partition key of a pipeline.")
        return cls(*parts)

    @property
    def segments_prefix(self) -> str:
        return f"{self.tenant}/{self.workspace}/{self.pipeline}/segments/"

    @property
    def bases_prefix(self) -> str:
        return f"{self.segments_prefix}base/"

    def segment_key(self, index: int) -> str:
        return f"{self.segments_prefix}{_digits(index)}.seg"

    def base_key(self, index: int) -> str:
        return f"{self.bases_prefix}{_digits(index)}.base.parquet"

    def base_part_key(self, index: int, writer: str, number: int) -> str:
        """A piece of a base. Each attempt has pieces of its own, which its base names."""
        return f"{self.bases_prefix}parts/{_digits(index)}-{writer}/{number:06d}"

    def segment_index(self, key: str) -> int | None:
        """None for a key that is no segment of this pipeline."""
        return _index_in(key, self.segments_prefix, _SEGMENT_NAME)

    def base_index(self, key: str) -> int | None:
        """None for a key that is no base of this pipeline."""
        return _index_in(key, self.bases_prefix, _BASE_NAME)


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """A row of progress: `namespace` is the dataset, `partition` a shard or a scan segment."""

    namespace: str
    partition: str

    def __post_init__(self) -> None:
        _check_part("namespace", self.namespace)
        _check_part("partition", self.partition)
        _check_sk(self.sk)

    @property
    def sk(self) -> str:
        return f"{OFFSET_PREFIX}{self.namespace}#{self.partition}"

    @classmethod
    def of_sk(cls, sk: str) -> OffsetKey:
        """Raises KeyInvalid on a text that `sk` never gave."""
        parts = sk.split("#")
        if len(parts) != 3 or not sk.startswith(OFFSET_PREFIX):
            raise KeyInvalid(f"{sk!r} is not the sort key of an offset.")
        return cls(parts[1], parts[2])


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """A named checkpoint envelope."""

    logical_key: str

    def __post_init__(self) -> None:
        _check_part("logical key", self.logical_key)
        _check_sk(self.sk)

    @property
    def sk(self) -> str:
        return f"{CHECKPOINT_PREFIX}{self.logical_key}"

    @classmethod
    def of_sk(cls, sk: str) -> CheckpointKey:
        """Raises KeyInvalid on a text that `sk` never gave."""
        if not sk.startswith(CHECKPOINT_PREFIX):
            raise KeyInvalid(f"{sk!r} is not the sort key of a checkpoint.")
        return cls(sk.removeprefix(CHECKPOINT_PREFIX))


def cluster_pk(cluster_id: str) -> str:
    """The partition that holds the members of a cluster."""
    _check_part("cluster_id", cluster_id)
    return f"{CLUSTER_PREFIX}{cluster_id}"


def node_sk(node: str) -> str:
    """The sort key of a member."""
    _check_part("node", node)
    sk = f"{NODE_PREFIX}{node}"
    _check_sk(sk)
    return sk


def node_of_sk(sk: str) -> str:
    """Raises KeyInvalid on a text that `node_sk` never gave."""
    if not sk.startswith(NODE_PREFIX):
        raise KeyInvalid(f"{sk!r} is not the sort key of a member.")
    node = sk.removeprefix(NODE_PREFIX)
    _check_part("node", node)
    return node


def _check_part(role: str, part: str) -> None:
    if not part:
        raise KeyInvalid(f"The {role} is empty.")
    if "#" in part:
        raise KeyInvalid(f"The {role} {part!r} holds '#', which separates the parts of a key.")
    if len(part.encode()) > MAX_PK_BYTES // 4:
        raise KeyInvalid(f"The {role} is longer than {MAX_PK_BYTES // 4} bytes.")


def _check_sk(sk: str) -> None:
    if len(sk.encode()) > MAX_SK_BYTES:
        raise KeyInvalid(f"The sort key {sk[:60]!r}… is longer than {MAX_SK_BYTES} bytes.")


def _digits(index: int) -> str:
    if not 0 < index < 10**_INDEX_DIGITS:
        raise KeyInvalid(f"{index} is no index of a segment: they count from 1.")
    return f"{index:0{_INDEX_DIGITS}d}"


def _index_in(key: str, prefix: str, name: re.Pattern[str]) -> int | None:
    if not key.startswith(prefix):
        return None
    found = name.fullmatch(key, len(prefix))
    return int(found.group(1)) if found else None
