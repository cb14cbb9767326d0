"""The covering arrays that the test grids rest on."""

from itertools import combinations, product

from covering import pairwise_rows


def test_every_pair_of_values_shares_a_row() -> None:
    axes = ["abcde", [1, 2, 3], [True, False], "xy"]
    rows = pairwise_rows(axes)
    for (i, a), (j, b) in combinations(enumerate(axes), 2):
        assert {(row[i], row[j]) for row in rows} == set(product(range(len(a)), range(len(b))))
    assert len(rows) < 20  # of 60
