"""NULL beside absent values in a column that is unwrapped as a whole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accelerator.plain import plain_column

NULL = '{"NULL":true}'


@pytest.mark.parametrize(
    "tagged",
    [
        [NULL],
        [None, NULL],
        [None, None, NULL, None, '{"S":"x"}', NULL],
        ['{"L":[{"NULL":true}]}', None, NULL],
        ['{"N":"1"}', NULL, NULL, None],
    ],
)
def test_a_null_is_sql_null_wherever_it_stands(tagged: list[str | None]) -> None:
    """Absent values before it have no bytes, so they begin where it begins."""
    shown = plain_column(pa.chunked_array([tagged], pa.string())).to_pylist()
    texts = {NULL: None, '{"S":"x"}': '"x"', '{"N":"1"}': "1", None: None}
    wanted = [texts.get(each, "[null]") for each in tagged]
    assert shown == wanted
