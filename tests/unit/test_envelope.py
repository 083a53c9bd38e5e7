"""The two byte formats, byte by byte, and the rule by which offsets merge."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.envelope import (
    Authority,
    CheckpointEnvelope,
    EnvelopeKind,
    OffsetValue,
    merge_offsets,
)
from checkpoints.errors import RowCorrupt

U64 = st.integers(0, 2**64 - 1)
OFFSETS = st.builds(OffsetValue, U64, U64, st.booleans())
ENVELOPES = st.builds(
    CheckpointEnvelope,
    st.sampled_from(Authority),
    st.sampled_from(EnvelopeKind),
    st.binary(max_size=200),
)


@pytest.mark.requirement("R13")
def test_offset_golden_bytes() -> None:
    """filesize, line and closed: three little-endian 64-bit numbers, 24 bytes, nothing else."""
    assert OffsetValue(0x0102030405060708, 5, is_closed=True).encode() == bytes.fromhex(
        "0807060504030201 0500000000000000 0100000000000000"
    )
    assert OffsetValue().encode() == bytes(24)
    assert OffsetValue(2**64 - 1, 1).encode() == bytes.fromhex("ff" * 8 + "01" + "00" * 15)


@pytest.mark.requirement("R13")
@settings(deadline=None, max_examples=100)
@given(OFFSETS)
def test_offsets_come_back(offset: OffsetValue) -> None:
    """Every offset reads back equal from its 24 bytes."""
    assert len(offset.encode()) == 24
    assert OffsetValue.decode(offset.encode()) == offset


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    "data",
    [b"", bytes(23), bytes(25), struct.pack("<QQQ", 1, 1, 2), b"\xff" * 24],
)
def test_other_bytes_are_no_offset(data: bytes) -> None:
    """Another length, or a closed that is neither 0 nor 1, is refused."""
    with pytest.raises(RowCorrupt):
        OffsetValue.decode(data)


@pytest.mark.parametrize("numbers", [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_a_number_that_does_not_fit_is_refused(numbers: tuple[int, int]) -> None:
    """An offset is never cut to 64 bits."""
    with pytest.raises(ValueError, match="64 bits"):
        OffsetValue(*numbers)


@pytest.mark.requirement("R14")
@settings(deadline=None, max_examples=100)
@given(OFFSETS, OFFSETS, OFFSETS)
def test_merging_is_a_least_upper_bound(a: OffsetValue, b: OffsetValue, c: OffsetValue) -> None:
    """Commutative, associative and idempotent, so that late and repeated news do no harm."""
    assert merge_offsets(a, b) == merge_offsets(b, a)
    assert merge_offsets(a, merge_offsets(b, c)) == merge_offsets(merge_offsets(a, b), c)
    assert merge_offsets(a, a) == a
    merged = merge_offsets(a, b)
    assert (merged.filesize, merged.line) == (max(a.filesize, b.filesize), max(a.line, b.line))
    assert merged.is_closed == (a.is_closed or b.is_closed)


@pytest.mark.requirement("R16")
def test_envelope_golden_bytes() -> None:
    """bincode 1: two variants and the version in 32 bits each, a 64-bit length, the bytes."""
    hint = CheckpointEnvelope(Authority.ADVISORY_HINT, EnvelopeKind.BOOTSTRAP_ANCHOR, b"abc")
    assert hint.encode() == bytes.fromhex("01000000 02000000 01000000 0300000000000000 616263")
    empty = CheckpointEnvelope(Authority.WAL_OWNERSHIP, EnvelopeKind.SOURCE_RESUME, b"")
    assert empty.encode() == bytes.fromhex("00000000 00000000 01000000 0000000000000000")


@pytest.mark.requirement("R16")
def test_envelope_variants_keep_their_numbers() -> None:
    """The variants are numbers on disk for good."""
    assert [(a.name, a.value) for a in Authority] == [("WAL_OWNERSHIP", 0), ("ADVISORY_HINT", 1)]
    assert [(k.name, k.value) for k in EnvelopeKind] == [
        ("SOURCE_RESUME", 0),
        ("BOOTSTRAP_PROGRESS", 1),
        ("BOOTSTRAP_ANCHOR", 2),
        ("ADVISORY_PROGRESS", 3),
    ]


@pytest.mark.requirement("R16")
@settings(deadline=None, max_examples=100)
@given(ENVELOPES)
def test_envelopes_come_back(envelope: CheckpointEnvelope) -> None:
    """Every envelope reads back equal."""
    assert CheckpointEnvelope.decode(envelope.encode()) == envelope


@pytest.mark.requirement("R16")
@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IIIQ", 2, 0, 1, 0),
        struct.pack("<IIIQ", 0, 4, 1, 0),
        struct.pack("<IIIQ", 0, 0, 0, 0),
        struct.pack("<IIIQ", 0, 0, 2, 0),
        struct.pack("<IIIQ", 0, 0, 1, 1),
        struct.pack("<IIIQ", 0, 0, 1, 0) + b"x",
        struct.pack("<IIIQ", 0, 0, 1, 2**63) + b"x",
        b"",
        bytes(19),
    ],
)
def test_an_unknown_envelope_fails_closed(data: bytes) -> None:
    """Another authority, kind, version or length is refused: a guess could skip changes."""
    with pytest.raises(RowCorrupt):
        CheckpointEnvelope.decode(data)
