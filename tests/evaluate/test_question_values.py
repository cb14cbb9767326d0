"""The values of questions, by which the tasks of two runs are compared."""

import pytest

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")

from loriini.evaluate.tasks.running import _of_questions

SAMPLES = {
    "one subject": [{"filter": "strict", "acc": 1.0}, {"filter": "loose", "acc": 0.0}],
    "another": [{"filter": "strict", "acc": 0.0}, {"filter": "loose", "acc": 0.0}],
}


def test_they_are_of_one_filter_and_there_only_if_their_mean_is_the_tasks_value() -> None:
    assert _of_questions(SAMPLES, "acc,strict", 0.5) == [1.0, 0.0]
    assert _of_questions(SAMPLES, "acc", 0.25) == [1.0, 0.0, 0.0, 0.0]
    assert _of_questions(SAMPLES, "acc,strict", 0.6) == [], "such as a perplexity, of log-likelihoods"
    assert _of_questions(SAMPLES, "f1", 0.5) == []
