"""Windows of steps over which curves are drawn."""

from loriini.reporting.curves import utilisation


def test_the_last_full_window_counts() -> None:
    steps = [{"tokens": i, "active": [0b01 if i < 4 else 0b10], "experts": 2} for i in range(6)]
    ends, shares = utilisation(steps, window=3)
    assert ends.tolist() == [2, 5]
    assert shares.tolist() == [[0.5], [1.0]]
    assert utilisation(steps[:5], window=3)[0].tolist() == [2]
