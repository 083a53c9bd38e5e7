"""Tagged DynamoDB JSON to plain JSON, a column at a time.

Owns the unwrapping of `{"M":{"a":{"N":"1"}}}` to `{"a":1}`. The texts come from DuckDB's JSON
writer: compact and valid. Most values are unwrapped together, by byte positions over the column's
whole buffer; a value with anything unusual in it (a set, a long number, a map whose first key is
"M", whatever is no item) is left to `items.plain_json`, which is exact and says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import items

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_QUOTE, _BACKSLASH, _COLON, _MINUS, _DOT, _ZERO = b'"\\:-.0'
_OPEN, _CLOSE, _BRACKET = b"{}["
_NULL_BYTES = np.frombuffer(b"null", np.uint8)
# A decimal of up to 15 digits survives a double; integers may have 38.
_SAFE_FRACTION_LENGTH = 16
_SAFE_INTEGER_LENGTH = 38
_STRANGENESS = np.full(256, 100, np.uint8)
_STRANGENESS[list(b"0123456789")] = 0
_STRANGENESS[_DOT] = 1
_NULL_VALUE_LENGTH = len('{"NULL":true}')


@dataclass(slots=True)
class Tally:
    """What was met on the way."""

    numbers_as_text: int = 0


def plain_column(tagged: pa.ChunkedArray, tally: Tally | None = None) -> pa.ChunkedArray:
    """The same values without tags, null where the value is null or NULL.

    Raises:
        items.Unreadable: a value is no tagged value.
    """
    tally = tally or Tally()
    return pa.chunked_array([_plain_chunk(chunk, tally) for chunk in tagged.chunks], pa.string())


def plain_text(text: str, tally: Tally) -> str | None:
    """One value, exactly. Raises items.Unreadable."""
    value = items.read_value(text)
    tally.numbers_as_text += items.count_numbers_as_text(value)
    return None if "NULL" in value else items.plain_json(value)


def _plain_chunk(chunk: pa.Array, tally: Tally) -> pa.Array:
    if len(chunk) == 0 or chunk.null_count == len(chunk):
        return pa.nulls(len(chunk), pa.string())
    offsets, data = _contents(chunk)
    unwrapped = _Unwrapping(data, offsets)
    result = unwrapped.array()
    is_null = unwrapped.is_null
    if unwrapped.unusual.size:
        rest = chunk.take(pa.array(unwrapped.unusual, pa.int64())).to_pylist()
        texts = [None if text is None else plain_text(text, tally) for text in rest]
        mask = np.zeros(len(chunk), np.bool_)
        mask[unwrapped.unusual] = True
        result = pc.replace_with_mask(result, pa.array(mask), pa.array(texts, pa.string()))
        is_null = is_null & ~mask
    gone = pc.or_(pc.is_null(chunk), pa.array(is_null))
    return pc.if_else(gone, pa.scalar(None, pa.string()), result)


def _contents(chunk: pa.Array) -> tuple[Positions, Bytes]:
    _, offset_buffer, data_buffer = chunk.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return offsets.astype(np.int64) - offsets[0], data


class _Unwrapping:
    """One pass over the texts in `data`, the n-th from offsets[n] to offsets[n + 1].

    unusual   numbers of the values that have to be read one by one; the rest of the result holds
    is_null   values that are NULL themselves
    """

    def __init__(self, data: Bytes, offsets: Positions) -> None:
        self._offsets = offsets
        count = len(offsets) - 1
        self._data = data.copy()
        self.is_null: Mask = np.zeros(count, np.bool_)
        self._bad: list[Positions] = []
        self._dropped: list[Positions] = []
        quotes = _real_quotes(data)
        if quotes.size % 2 or not quotes.size:
            self.unusual: Positions = np.arange(count)
            return
        opens, closes = quotes[0::2], quotes[1::2]
        self._drop_closing_braces(data, quotes)
        self._drop_tags(data, opens, closes)
        bad = np.concatenate(self._bad)
        self.unusual = np.unique(np.searchsorted(offsets, bad, "right") - 1)

    def array(self) -> pa.Array:
        keep = np.ones(self._data.size, np.bool_)
        for positions in self._dropped:
            keep[positions] = False
        dropped = np.flatnonzero(~keep)
        ends = self._offsets - np.searchsorted(dropped, self._offsets)
        texts = self._data[keep]
        return pa.StringArray.from_buffers(
            len(ends) - 1, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(texts)
        )

    def _drop_closing_braces(self, data: Bytes, quotes: Positions) -> None:
        """In a run of closing braces they close a value's tag and a map by turns: a tag first,
        but where the run follows an opening brace, which is an empty map's."""
        braces = np.flatnonzero(data == _CLOSE)
        braces = braces[np.searchsorted(quotes, braces) % 2 == 0]
        at = np.arange(braces.size)
        begins = np.ones(braces.size, np.bool_)
        begins[1:] = braces[1:] != braces[:-1] + 1
        start = np.maximum.accumulate(np.where(begins, at, 0))
        after_empty = data[braces[start] - 1] == _OPEN
        self._dropped.append(braces[((at - start) % 2 == 0) ^ after_empty])

    def _drop_tags(self, data: Bytes, opens: Positions, closes: Positions) -> None:
        padded = np.concatenate([data, np.zeros(4, np.uint8)])
        length = closes - opens - 1
        is_key = padded[closes + 1] == _COLON
        follows = padded[closes + 2]
        is_first = is_key & (data[opens - 1] == _OPEN)
        letter = padded[opens + 1]
        one = is_first & (length == 1)
        is_number = one & (letter == ord("N")) & (follows == _QUOTE)
        is_text = one & ((letter == ord("S")) | (letter == ord("B"))) & (follows == _QUOTE)
        is_list = one & (letter == ord("L")) & (follows == _BRACKET)
        is_map = one & (letter == ord("M")) & (follows == _OPEN)
        is_bool, is_null = np.zeros((2, opens.size), np.bool_)
        four = np.flatnonzero(is_first & (length == 4))
        is_bool[four] = _spells(padded, opens[four], b"BOOL")
        is_null[four] = _spells(padded, opens[four], b"NULL")
        is_bool &= (follows == ord("t")) | (follows == ord("f"))
        is_null &= follows == ord("t")
        # {"M":{"M":{ — the second may be a tag or a key.
        doubtful = np.zeros(opens.size, np.bool_)
        doubtful[1:] = is_map[1:] & is_map[:-1] & (closes[:-1] + 3 == opens[1:])
        has_text = is_number | is_text
        is_tag = has_text | is_list | is_map | is_bool | is_null
        is_text_value = np.zeros(opens.size, np.bool_)
        is_text_value[1:] = has_text[:-1]
        wrong_key = is_key & ~is_tag & (follows != _OPEN)
        wrong_text = ~is_key & ~is_text_value
        not_closed = is_text_value & (padded[closes + 1] != _CLOSE)
        self._bad.append(opens[doubtful | wrong_key | wrong_text | not_closed])
        for tags, width in ((is_tag & (length == 1), 5), (is_bool | is_null, 8)):
            self._dropped.append((opens[tags] - 1)[:, None] + np.arange(width))
        self._unquote_numbers(data, opens, closes, np.flatnonzero(is_number) + 1)
        nulls = closes[is_null] + 2
        self._data[nulls[:, None] + np.arange(4)] = _NULL_BYTES
        # The last of equal offsets: those before it are of absent values, which have no bytes.
        starts = np.searchsorted(self._offsets, opens[is_null] - 1, "right") - 1
        whole = self._offsets[starts] == opens[is_null] - 1
        whole &= np.diff(self._offsets)[np.minimum(starts, self.is_null.size - 1)] == (
            _NULL_VALUE_LENGTH
        )
        self.is_null[starts[whole]] = True

    def _unquote_numbers(
        self, data: Bytes, opens: Positions, closes: Positions, texts: Positions
    ) -> None:
        first, end = opens[texts] + 1, closes[texts]
        negative = data[first] == _MINUS
        lead = first + negative
        digits = end - lead
        # One sum per text: 0 for digits alone, 1 with a point, far more with anything else.
        bounds = np.empty(2 * texts.size, np.int64)
        bounds[0::2], bounds[1::2] = lead, end
        others = np.add.reduceat(_STRANGENESS[data], bounds, dtype=np.int32)[0::2]
        zero_led = data[lead] == _ZERO
        last = data[end - 1]
        is_integer = (
            (others == 0)
            & (digits <= _SAFE_INTEGER_LENGTH)
            & (~zero_led | ((digits == 1) & ~negative))
        )
        is_fraction = (
            (others == 1)
            & (digits <= _SAFE_FRACTION_LENGTH)
            & (data[lead] != _DOT)
            & (~zero_led | (data[lead + 1] == _DOT))
            & (last != _DOT)
            & (last != _ZERO)
        )
        plain = is_integer | is_fraction
        self._bad.append(opens[texts][~plain])
        self._dropped += [opens[texts][plain], closes[texts][plain]]


def _real_quotes(data: Bytes) -> Positions:
    """Quotes that begin or end a string: those behind an even number of backslashes."""
    quotes = np.flatnonzero(data == _QUOTE)
    escaped = np.zeros(quotes.size, np.bool_)
    candidates = np.flatnonzero(data[quotes - 1] == _BACKSLASH)
    back = quotes[candidates] - 1
    odd = np.zeros(candidates.size, np.bool_)
    alive = np.ones(candidates.size, np.bool_)
    while alive.any():
        odd[alive] = ~odd[alive]
        back = back - 1
        alive &= data[back] == _BACKSLASH
    escaped[candidates] = odd
    return quotes[~escaped]


def _spells(data: Bytes, opens: Positions, word: bytes) -> Mask:
    found: Mask = (data[opens[:, None] + 1 + np.arange(4)] == np.frombuffer(word, np.uint8)).all(1)
    return found
