"""Numbers as text, and remarks that several reports make."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from loriini.evaluate.intervals import Difference

NO_VALUE = "–"
"""In a table: not measured, or without meaning."""
NO_CLEAR_DIFFERENCE = "no clear difference"
"""What is said of two models unless `is_clear` is True for their difference."""
SEES_LATER = " (sees later tokens)"
"""Follows the name of a model whose losses are not comparable with those of causal models."""


def scored_tokens(settings: Mapping[str, Any]) -> str:
    """Which held-out tokens a perplexity counts, by `contexts` and `skip`."""
    strung = settings["contexts"] == "strung"
    each = (
        "each instance of documents strung together" if strung else "each document, or window of a long one"
    )
    return f"{each}, without its first {settings['skip']} tokens" if settings["skip"] else each


def percent(change: float) -> str:
    """A relative change with its sign, even if it rounds to 0: −3.8 %, −0.0 %."""
    return f"{signed(100 * change, 1)} %"


def signed(value: float, digits: int) -> str:
    """A number with its sign: +0.25, −1.00."""
    return minus(f"{value + 0.0:+.{digits}f}")


def is_clear(difference: Difference) -> bool:
    """True if one model is called better: the interval excludes 0, and the change is not shown as 0.0 %."""
    return difference.decided and round(100 * difference.change, 1) != 0


def minus(text: str) -> str:
    """The text with minus signs in place of hyphens."""
    return text.replace("-", "−")


def interval(difference: Difference) -> str:
    """The interval of a relative change, or why there is none."""
    return "unknown (too few instances)" if isnan(difference.low) else bounds(difference.low, difference.high)


def bounds(low: float, high: float) -> str:
    """The bounds of a relative change: −5.0 to −2.6 %."""
    return f"{signed(100 * low, 1)} to {percent(high)}"


def shared_instance_cosine(mean: float | None) -> str:
    """A mean cosine of documents that share an instance, or why there is none."""
    return f"{NO_VALUE} (no instance holds two documents)" if mean is None else f"{mean:.3f}"


def large(number: float) -> str:
    """A count with three digits: 1.23 M; unchanged below a thousand."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return (
                f"{number / size:.3g} {letter}" if number < 999.5 * size else f"{number / size:.0f} {letter}"
            )
    return f"{number:g}"


def duration(seconds: float) -> str:
    """Seconds, minutes and seconds, or hours and minutes."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def listing(words: Sequence[str], last: str = "and") -> str:
    """One, two and three; `last` is the word before the last."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def sentence_case(text: str) -> str:
    """The text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]
