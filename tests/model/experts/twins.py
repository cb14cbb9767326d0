"""Experts computed by their naive twins."""

import pytest

from loriini.model.experts.stacked import (
    FactorizedExperts,
    GeluExperts,
    SwigluExperts,
    by_outputs_loop,
    by_parameters_loop,
)


def use_twins(patch: pytest.MonkeyPatch) -> None:
    """Let experts of every kind compute by their twins."""
    for kind in (SwigluExperts, GeluExperts, FactorizedExperts):
        patch.setattr(kind, "by_outputs", by_outputs_loop)
        patch.setattr(kind, "by_parameters", lambda e, x, gates, *_: by_parameters_loop(e, x, gates))
