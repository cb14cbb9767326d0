"""What random routers drew."""

import pytest

from loriini.routing import scorer


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The draw of every random router of a test, in their order."""
    draws: list[int] = []
    standard_normal = scorer.standard_normal
    monkeypatch.setattr(
        scorer, "standard_normal", lambda d, *shape: draws.append(int(d)) or standard_normal(d, *shape)
    )
    return draws
