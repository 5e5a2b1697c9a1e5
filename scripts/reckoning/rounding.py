"""How many digits a number deserves, the same in sentences, tables and figures.

The last digit printed is the one that the interval's half-width still supports (two digits of the half-width while its
first digit is 1 or 2, else one, as the Guide to the Expression of Uncertainty in Measurement, 7.2.6, advises).
"""

from __future__ import annotations

import math

THIN = "\u202f"


def decimals_for(half_width: float) -> int:
    """Return the decimal places that an interval of this half-width supports; negative: tens, hundreds."""
    if not half_width > 0 or not math.isfinite(half_width):
        return 0
    exponent = math.floor(math.log10(half_width))
    first_digit = half_width / 10**exponent
    return -exponent + (1 if first_digit < 3 else 0)


def fixed(value: float, decimals: int) -> str:
    """Return `value` rounded to `decimals` places (negative: to tens, hundreds), with thin spaces from 10 000 on."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    rounded = round(value, decimals)
    text = f"{rounded:.{max(decimals, 0)}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    whole, _, fraction = text.partition(".")
    digits = whole.lstrip("-")
    if len(digits) >= 5:
        groups = []
        while digits:
            groups.insert(0, digits[-3:])
            digits = digits[:-3]
        whole = ("-" if whole.startswith("-") else "") + THIN.join(groups)
    text = f"{whole}.{fraction}" if fraction else whole
    return text.replace("-", "\u2212", 1) if text.startswith("-") else text


def decimals_of_interval(value: float, low: float, high: float) -> int:
    """Return the decimal places of an estimate and of both ends of its interval."""
    # On the log scale intervals are lopsided: the nearer end says what the value's digits are worth.
    nearer = min(value - low, high - value)
    decimals = decimals_for(nearer if nearer > 0 else (high - low) / 2)
    size = math.floor(math.log10(max(abs(value), abs(low), abs(high)))) if value or low or high else 0
    # An interval wider than its value still needs one digit of the value; a very tight one stops at five.
    return max(min(decimals, 4 - size), -size)
