"""The paired bootstrap against a plain loop, its coverage, and what it refuses."""

from dataclasses import astuple

import numpy as np
import pytest

from loriini.evaluate import intervals
from loriini.evaluate.intervals import (
    Difference,
    degrees_of_freedom,
    difference_of_means,
    differences_by_domain,
    widened,
)

RNG = np.random.default_rng(0)
A = {"prose": RNG.normal(3.0, 0.5, 40), "code": RNG.normal(2.0, 0.8, 25)}
B = {domain: losses - 0.02 + RNG.normal(0, 0.05, len(losses)) for domain, losses in A.items()}


def factor_of(documents: list[int]) -> float:
    """By how much an interval of few documents is widened."""
    return float(widened(np.ones(1), 0.0, degrees_of_freedom(documents))[0])


def perplexity(losses: dict[str, np.ndarray]) -> float:
    return float(np.mean([np.exp(np.mean(values)) for values in losses.values()]))


def test_the_interval_is_that_of_a_loop_over_resamples() -> None:
    rng, logs = np.random.default_rng(7), []
    for _ in range(4000):
        picked = {domain: rng.integers(len(losses), size=len(losses)) for domain, losses in A.items()}
        a, b = (perplexity({d: x[picked[d]] for d, x in losses.items()}) for losses in (A, B))
        logs.append(np.log(b / a))
    found = differences_by_domain(A, B)["all"]
    measured = np.log(perplexity(B) / perplexity(A))
    assert found.change == pytest.approx(np.expm1(measured), rel=1e-12)
    wider = factor_of([40, 25]) * np.sqrt(25 / 24)  # of 40, by a little less
    ends = measured + wider * (np.quantile(logs, [0.025, 0.975]) - measured)
    assert (found.low, found.high) == pytest.approx(tuple(np.expm1(ends)), abs=5e-4)
    assert found == differences_by_domain(A, B)["all"]


def test_a_difference_of_means_is_over_the_same_questions() -> None:
    """Nine of ten questions have the same answer: their difficulty is no part of the interval."""
    a = np.array([0, 1] * 100)
    b = np.where(np.arange(200) % 20 == 0, 1, a)
    found = difference_of_means(a, b, "piqa")
    assert found.change == pytest.approx(0.05)
    sd = np.std(b - a, ddof=1) / np.sqrt(200)
    assert (found.low, found.high) == pytest.approx((0.05 - 1.97 * sd, 0.05 + 1.97 * sd), abs=0.005)
    for same, change in (([1], -1), ([1, 1, 1], -1), ([0, 0, 0], 0)):  # no spread says nothing of others
        found = difference_of_means(same, [0] * len(same), "piqa")
        assert found.to_dict() == {"change": change, "low": None, "high": None}


def test_documents_are_drawn_with_all_of_their_instances() -> None:
    """Against a loop over resamples, and for losses that are alike within a document."""
    documents = {"d": [0] * 9 + [1] + [2] * 5 + [4] * 5 + [7, 8, 9, 9]}
    a, b = A["prose"][:24], B["prose"][:24] + 0.1 * np.sin(documents["d"])
    of_document = [np.flatnonzero(np.array(documents["d"]) == i) for i in (0, 1, 2, 4, 7, 8, 9)]
    rng, logs = np.random.default_rng(7), []
    for _ in range(4000):
        picked = np.concatenate([of_document[i] for i in rng.integers(7, size=7)])
        logs.append(b[picked].mean() - a[picked].mean())
    found = differences_by_domain({"d": a}, {"d": b}, documents)["all"]
    assert found.change == differences_by_domain({"d": a}, {"d": b})["all"].change
    wider = factor_of([7]) * np.sqrt(7 / 6)
    ends = np.mean(b - a) + wider * (np.quantile(logs, [0.025, 0.975]) - np.mean(b - a))
    assert (found.low, found.high) == pytest.approx(tuple(np.expm1(ends)), abs=3e-3)


def test_the_factor_is_that_of_students_t() -> None:
    assert factor_of([2]) == pytest.approx(12.706 / 1.960, rel=1e-3)
    assert factor_of([5, 5]) == pytest.approx(2.306 / 1.960, rel=1e-3)  # 8 degrees of freedom
    assert 1 < factor_of([1000, 1000]) < 1.001


@pytest.mark.parametrize("documents", [(2,), (3, 3, 8, 20)])
def test_few_documents_are_covered_as_often_as_many(
    documents: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain bootstrap covers 55 % for two documents, 75 % for three, 80 % for five."""
    monkeypatch.setattr(intervals, "RESAMPLES", 2000)
    rng, covered = np.random.default_rng(5), 0
    for _ in range(150):
        a, b, numbers = {}, {}, {}
        for i, G in enumerate(documents):
            number_N = np.repeat(np.arange(G), rng.integers(1, 8, G))
            levels, gains = rng.normal(3, 0.4, G), rng.normal(0.02, 0.03, G)
            numbers[str(i)] = number_N.tolist()
            a[str(i)] = levels[number_N] + rng.normal(0, 0.2, len(number_N))
            b[str(i)] = a[str(i)] + gains[number_N]
        found = differences_by_domain(a, b, numbers)["all"]
        covered += found.low <= np.expm1(0.02) <= found.high
    assert 132 <= covered <= 149


def test_of_a_single_document_instances_are_drawn() -> None:
    alone = {domain: [3] * len(losses) for domain, losses in A.items()}
    assert differences_by_domain(A, B, alone)["all"] == differences_by_domain(A, B)["all"]


def test_one_instance_gives_no_interval() -> None:
    found = differences_by_domain({"d": [3.0]}, {"d": [2.9]})["all"]
    assert not found.decided
    assert found.to_dict() == {"change": pytest.approx(np.expm1(-0.1)), "low": None, "high": None}


def test_a_difference_is_decided_where_its_interval_excludes_zero() -> None:
    intervals = ((-0.2, -0.1), (0.1, 0.2), (-0.1, 0.1))
    assert [Difference(0.0, *interval).decided for interval in intervals] == [True, True, False]


def test_wide_differences_have_finite_bounds_above_minus_one() -> None:
    for worse in ([5.0, 15.0], [20.0, 200.0], [5.0, 2000.0]):
        found = differences_by_domain({"d": [5.0, 5.0]}, {"d": worse})["all"]
        assert -1 < found.low < found.change <= found.high < np.inf


def test_losses_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"domains differ: \['code', 'prose'\] and \['code'\]"):
        differences_by_domain(A, {"code": B["code"]})["all"]
    with pytest.raises(ValueError, match=r"'code': losses of shapes \(25,\) and \(24,\)"):
        differences_by_domain({"code": A["code"]}, {"code": B["code"][1:]})


def test_an_instance_of_several_tokens_counts_as_often() -> None:
    tokens, document_of = [3, 0, 1, 2, 4], [0, 0, 0, 1, 2]
    a, b = np.random.default_rng(0).normal(size=(2, 5))
    once = differences_by_domain({"d": a}, {"d": b}, {"d": document_of}, {"d": tokens})["all"]
    repeated = differences_by_domain(
        {"d": a.repeat(tokens)}, {"d": b.repeat(tokens)}, {"d": np.repeat(document_of, tokens).tolist()}
    )["all"]
    assert astuple(once) == pytest.approx(astuple(repeated))
    unknown = np.where(np.array(tokens) > 0, a, np.nan)
    assert differences_by_domain({"d": unknown}, {"d": b}, {"d": document_of}, {"d": tokens})["all"] == once
