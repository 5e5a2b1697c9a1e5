"""Numbers in sentences: as many digits as the interval bears out, and plain words for ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable

from reckoning.rounding import decimals_of_interval, fixed


def list_of(items: Iterable[str], last: str = "and") -> str:
    """Return `a, b and c`."""
    items = list(items)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def number(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return a value, or an end of its interval, with the digits that the interval bears out; else three figures."""
    if not math.isfinite(value):
        return "unknown"
    if low is not None and high is not None and high > low:
        middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
        return fixed(value, decimals_of_interval(middle, low, high))
    places = max(0, 2 - (math.floor(math.log10(abs(value))) if value else 0))
    return f"{value:.{min(places, 6)}f}"


def interval(value: float, low: float | None, high: float | None, unit: str = "") -> str:
    """Return `612 tok/s (598 to 626)`; without an interval only the value."""
    unit = f" {unit}" if unit else ""
    if low is None or high is None or low == high:
        return f"{number(value)}{unit}"
    return f"{number(value, low, high)}{unit} ({number(low, low, high)} to {number(high, low, high)})"


def percent(share: float, low: float | None = None, high: float | None = None) -> str:
    """Return a share as per cent without trailing zeros: 0.03 -> `3 %`."""
    value = share * 100
    if low is not None and high is not None:
        return f"{_figures(value)} % ({_figures(low * 100)} to {_figures(high * 100)} %)"
    return f"{_figures(value)} %"


def _figures(value: float) -> str:
    if value == 0:
        return "0"
    size = abs(value)
    places = 0 if size >= 10 else 1 if size >= 1 else 2
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ratio_range(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Return `+2.5 % (+1.1 to +3.9 %)`, or `3.70 times (3.52 to 3.90)` for ratios of 2 and more or below a half."""
    if ratio >= 2 or ratio <= 0.5:
        if low is None or high is None or low == high:
            return f"{ratio:.3g} times"
        return f"{number(ratio, low, high)} times ({number(low, low, high)} to {number(high, low, high)})"
    return signed_percent(ratio, low, high)


def signed_percent(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Return a ratio as a change: `+2.5 % (+1.1 to +3.9 %)`."""
    if low is None or high is None or low == high:
        return f"{_signed(ratio)} %"
    return f"{_signed(ratio)} % ({_signed(low)} to {_signed(high)} %)"


def _signed(ratio: float) -> str:
    value = (ratio - 1) * 100
    text = _figures(value)
    return f"+{text}" if value > 0 and text != "0" else text.replace("-", "\u2212")


def hours(value_h: float) -> str:
    """Return a duration given in hours: `142 h`, `3.2 h`, `25 min`."""
    if value_h >= 100:
        return f"{value_h:.0f} h"
    if value_h >= 1:
        return f"{value_h:.1f} h"
    return f"{value_h * 60:.0f} min" if value_h * 60 >= 1 else f"{value_h * 3600:.0f} s"
