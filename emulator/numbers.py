"""DynamoDB's numbers: one text for each value.

Owns the normal form, and the limits of 38 significant digits and of magnitudes between 1E-130 and
9.99…E+125. Must not use floats or a decimal context: both lose digits.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
"""

from __future__ import annotations

import re

from emulator.errors import validation

MAX_DIGITS = 38
MAX_EXPONENT = 125
MIN_EXPONENT = -130

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]{1,9}))?\Z")


def normal_number(text: str) -> str:
    """The text that DynamoDB gives back for a number: plain decimal, no needless zeros or signs.

    Raises:
        AwsError: ValidationException when the text is no number or breaks a limit.
    """
    if text.isdigit() and text.isascii() and len(text) <= MAX_DIGITS and text[0] != "0":
        return text
    match = _NUMBER.match(text)
    if match is None:
        raise validation(f"The parameter cannot be converted to a numeric value: {text}")
    sign, whole, fraction, bare_fraction, exponent_text = match.groups()
    fraction = fraction or bare_fraction or ""
    digits = ((whole or "") + fraction).lstrip("0")
    exponent = int(exponent_text or 0) - len(fraction)
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    exponent += len(digits) - len(significant)
    _check_limits(len(significant), exponent + len(significant) - 1)
    plain = _plain(significant, exponent)
    return f"-{plain}" if sign == "-" else plain


def _check_limits(digit_count: int, magnitude: int) -> None:
    if magnitude > MAX_EXPONENT:
        raise validation(
            "Number overflow. Attempting to store a number with magnitude larger than "
            "supported range"
        )
    if magnitude < MIN_EXPONENT:
        raise validation(
            "Number underflow. Attempting to store a number with magnitude smaller than "
            "supported range"
        )
    if digit_count > MAX_DIGITS:
        raise validation(
            f"Attempting to store more than {MAX_DIGITS} significant digits in a Number"
        )


def _plain(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    point = len(digits) + exponent
    if point > 0:
        return f"{digits[:point]}.{digits[point:]}"
    return f"0.{'0' * -point}{digits}"
