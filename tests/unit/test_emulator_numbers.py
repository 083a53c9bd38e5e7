"""DynamoDB's numbers: one text for each value, and the limits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import AwsError
from emulator.numbers import normal_number


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("01", "1"),
        ("+1", "1"),
        ("1E+2", "100"),
        ("1e2", "100"),
        ("100", "100"),
        ("-0", "0"),
        ("0.000", "0"),
        ("0E+300", "0"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-1.50", "-1.5"),
        ("12.3400E1", "123.4"),
        ("1E-3", "0.001"),
        ("9" * 38, "9" * 38),
        ("1" + "0" * 125, "1" + "0" * 125),
        ("9.9999999999999999999999999999999999999E+125", "9" * 38 + "0" * 88),
        ("1E-130", "0." + "0" * 129 + "1"),
        ("0" * 60 + "7", "7"),
    ],
)
def test_a_number_comes_back_in_its_normal_form(written: str, normal: str) -> None:
    """Two texts of one value are one text: plain decimal, no needless zeros or signs."""
    assert normal_number(written) == normal


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("9" * 39, "more than 38 significant digits"),
        ("1." + "0" * 37 + "1", "more than 38 significant digits"),
        ("1E+126", "Number overflow"),
        ("-1E+126", "Number overflow"),
        ("9.9E-131", "Number underflow"),
        ("", "cannot be converted to a numeric value"),
        (" 1", "cannot be converted to a numeric value"),
        ("1_000", "cannot be converted to a numeric value"),
        ("NaN", "cannot be converted to a numeric value"),
        ("Infinity", "cannot be converted to a numeric value"),
        ("0x10", "cannot be converted to a numeric value"),
        ("\u0661", "cannot be converted to a numeric value"),
        ("1\n", "cannot be converted to a numeric value"),
    ],
)
def test_what_dynamodb_refuses_is_refused(written: str, message: str) -> None:
    """No text that DynamoDB refuses is stored, rounded or truncated."""
    with pytest.raises(AwsError, match=message) as caught:
        normal_number(written)
    assert caught.value.code == "ValidationException"


_DIGITS = st.integers(min_value=-(10**38) + 1, max_value=10**38 - 1)


@given(digits=_DIGITS, exponent=st.integers(-100, 80))
def test_the_normal_form_has_the_same_value_and_is_its_own_normal_form(
    digits: int, exponent: int
) -> None:
    """Normalising changes no value, and a normal form does not change any more."""
    normal = normal_number(f"{digits}E{exponent}")
    with localcontext() as context:
        context.prec = 300
        assert Decimal(normal) == Decimal(f"{digits}E{exponent}")
    assert normal_number(normal) == normal


@given(left=_DIGITS, right=_DIGITS, exponent=st.integers(-100, 80))
def test_equal_values_have_equal_texts_and_others_do_not(
    left: int, right: int, exponent: int
) -> None:
    """A key compares by its normal form, so the text must decide exactly as the value does."""
    left_text = normal_number(f"{left}E{exponent}")
    assert (left_text == normal_number(f"{right}E{exponent}")) == (left == right)
