"""Numbers as a reader needs them: digits from the precision of the interval, units beside them, never `nan`.

Digits are those of `reckoning.rounding`. Without an interval there is no evidence for a precision: three significant
digits.
"""

from __future__ import annotations

import math
from typing import Any

from reckoning.rounding import THIN, decimals_of_interval, fixed

UNKNOWN = "–"


def finite(value: Any) -> float | None:
    """Return a number, or None for everything that is not a finite one (null, text, booleans, NaN, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def significant(value: Any, digits: int = 3) -> str:
    """Return a number that has no interval, in `digits` significant digits and without trailing zeros."""
    number = finite(value)
    if number is None:
        return UNKNOWN
    if number == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(number)))
    text = fixed(number, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def exact(value: Any) -> str:
    """Return a number as it was given (a published value): all its own digits, none added."""
    number = finite(value)
    if number is None:
        return UNKNOWN
    return fixed(number, 0) if number == int(number) else f"{number:.10g}"


def estimate(value: Any, low: Any = None, high: Any = None) -> str:
    """Return the estimate alone, in the digits that its interval supports."""
    number, bottom, top = finite(value), finite(low), finite(high)
    if number is None:
        return UNKNOWN
    if bottom is None or top is None or not top > bottom:
        return significant(number)
    return fixed(number, decimals_of_interval(number, bottom, top))


def interval(value: Any, low: Any, high: Any) -> str:
    """Return `[low, high]` in the digits that the interval supports, or an empty text where there is none."""
    number, bottom, top = finite(value), finite(low), finite(high)
    if bottom is None or top is None:
        return ""
    if not top > bottom:
        return f"[{significant(bottom)}, {significant(top)}]"
    middle = (bottom + top) / 2 if number is None else number
    decimals = decimals_of_interval(middle, bottom, top)
    return f"[{fixed(bottom, decimals)}, {fixed(top, decimals)}]"


def with_interval(value: Any, low: Any, high: Any, unit: str = "") -> str:
    """Return `estimate unit [low, high]`, or what of it is known."""
    number = estimate(value, low, high)
    if number == UNKNOWN:
        return UNKNOWN
    joined = f"{number}{unit}" if unit in ("×", "%") else f"{number} {unit}".rstrip()
    span = interval(value, low, high)
    return f"{joined} {span}" if span else joined


def p_value(value: Any) -> str:
    """Return a p value: never zero, two digits at most."""
    number = finite(value)
    if number is None:
        return UNKNOWN
    if number < 0.001:
        return "<" + THIN + "0.001"
    return significant(number, 2) if number < 0.1 else fixed(number, 2)


def percent(value: Any, digits: int = 2) -> str:
    """Return a share (0.021) as per cent (2.1 %)."""
    number = finite(value)
    return UNKNOWN if number is None else f"{significant(100 * number, digits)}{THIN}%"


def duration(seconds: Any) -> str:
    """Return a length of time for people: `48 s`, `12 min`, `9 h 20 min`."""
    number = finite(seconds)
    if number is None:
        return UNKNOWN
    if number < 90:
        return f"{significant(number, 2)} s"
    minutes = round(number / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def count(value: Any, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 launch`, `3 launches`."""
    number = finite(value)
    if number is None:
        return f"{UNKNOWN} {many or one + 's'}"
    return f"{fixed(number, 0)} {one if number == 1 else (many or one + 's')}"


def moment(text: str) -> str:
    """Return the day and minute of an ISO 8601 moment, with its zone; any other text as it is."""
    date, separator, time = text.partition("T")
    if not separator or len(time) < 5:
        return text
    zone = " UTC" if time.endswith(("Z", "+00:00")) else f" {time[-6:]}" if time[-6:-5] in "+-" else ""
    return f"{date} {time[:5]}{zone}"
