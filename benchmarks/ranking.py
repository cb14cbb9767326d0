"""Which designs of a leaderboard are ranked: those of equal active size."""

from collections.abc import Mapping, Sequence
from typing import Any

from loriini.compare.remarks import EQUAL_ACTIVE
from loriini.routing import DESIGNS

Row = Mapping[str, Any]


def of_equal_size(variants: Sequence[Row]) -> list[Row]:
    """Those with as many active parameters as the first, up to a ratio of EQUAL_ACTIVE."""
    return [v for v in variants if 1 / EQUAL_ACTIVE <= size_over_first(v, variants) <= EQUAL_ACTIVE]


def of_other_size(variants: Sequence[Row]) -> list[Row]:
    """All but those."""
    equal = [v["design"] for v in of_equal_size(variants)]
    return [v for v in variants if v["design"] not in equal]


def size_over_first(variant: Row, variants: Sequence[Row]) -> float:
    """Active parameters over the first design's."""
    return float(variant["parameters"]["active"] / variants[0]["parameters"]["active"])


def is_counted(variant: Row) -> bool:
    """Whether a design's experts for a token are a known number, and so its FLOPs."""
    return not DESIGNS[variant["design"]].experts_vary


def is_told_labels(design: str) -> bool:
    """Whether a design routes by the domain of a document, held-out ones too: a reference, no leader."""
    return DESIGNS[design].scorer == "label"
