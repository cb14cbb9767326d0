"""Lory's items about answers to questions, by routing of the prompt and of segments."""

from collections.abc import Iterator, Mapping

from loriini.papers.reproduce.charts import Chart, dots
from loriini.papers.reproduce.claims.claim import Claim, above, close
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values
from loriini.papers.reproduce.experiments import common as c

SIZES = ("0.3B", "1.5B")
EXPERTS = (8, 16, 32)
CLOSE_ANSWERS = 0.01
"""Share of the questions up to which two accuracies count as about equal."""


def better_answers(m: Measured, pairs: Mapping[str, str]) -> Iterator[Claim]:
    """More questions answered, and right answers more likely."""
    for row, dense in pairs.items():
        quantity = f"accuracy of {row} minus that of {dense}"
        yield above(quantity, c.accuracy_of(m, row), c.accuracy_of(m, dense), unit="of the questions")
        quantity = f"log-likelihood of the right answer, {row} minus {dense}"
        yield above(quantity, c.likelihood_of(m, row), c.likelihood_of(m, dense))


def answers_by_size(m: Measured) -> Iterator[Claim]:
    """Every Lory model against the dense model of its size."""
    yield from better_answers(m, {f"{s}/{e}E": s for s in SIZES for e in EXPERTS})


def answer_charts(m: Measured) -> Iterator[Chart]:
    """Mean accuracy and log-likelihood of every row."""
    rows = m.finished
    accuracy = {row: {"mean": c.accuracy_of(m, row)} for row in rows}
    yield dots("questions answered", "accuracy (chance: 0.25)", accuracy)
    yield c.likelihood_chart(m, rows)


def prompt_about_as_good(m: Measured) -> Iterator[Claim]:
    """Held-out loss and answers, routed once by the prompt and at every segment.

    Answers decide nothing where both ways are as good as guessing.
    """
    for experts in (8, 16):
        row = f"1.5B/{experts}E (prompt)"
        quantity = f"1.5B/{experts}E: loss routed by prompt minus that by segment"
        yield close(quantity, m.loss(row, measure="prompt"), m.loss(row, measure="segment"))
        quantity = f"1.5B/{experts}E: accuracy routed by prompt minus that by segment"
        by_prompt, by_segment = (c.accuracy_of(m, row, q) for q in ("questions", "questions by segment"))
        if c.is_above_chance(by_prompt) and c.is_above_chance(by_segment):
            yield close(quantity, by_prompt, by_segment, CLOSE_ANSWERS, unit="of the questions")
        else:
            yield Claim(f"{quantity}; {c.AT_CHANCE}", {})


def inference_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Accuracy and perplexity, routed as the row says."""
    how = row.partition("(")[2].rstrip(")")
    questions = "questions" if how == "prompt" else "questions by segment"
    return {
        "mean, %": c.scaled(c.accuracy_of(m, row, questions), 100),
        "log-likelihood": c.likelihood_of(m, row, questions),
        "perplexity": c.exp(m.loss(row, measure=how)),
    }


def inference_chart(m: Measured) -> Iterator[Chart]:
    """Perplexity by either routing."""
    series = {row: {"perplexity": inference_columns(m, row)["perplexity"]} for row in m.finished}
    yield dots("perplexity by inference routing", "perplexity", series)
