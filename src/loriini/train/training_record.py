"""What a run's folder says about its training, for the model card."""

from collections.abc import Sequence
from pathlib import Path

from loriini.model.card import TrainingRecord
from loriini.train.metrics import METRICS, read_metrics, read_records
from loriini.train.run import RUN, read_run

EVALUATION, SAMPLES = "evaluation.jsonl", "samples.jsonl"


def training_record(folder: Path, steps: Sequence[int] = ()) -> TrainingRecord | None:
    """The record of a run after a step, by default its last; None for a folder that is no run.

    Of several steps, whose weights were averaged, it is the last one's, without losses, which the mean's are
    not.
    """
    if not (folder / RUN).exists():
        return None
    run, _ = read_run(folder / RUN)
    step = max(steps, default=run.steps)
    metrics = next((m for m in read_metrics(folder / METRICS) if m["step"] == step), {})
    measured = next((m for m in read_records(folder / EVALUATION) if m["step"] == step), {})
    if len(steps) > 1:
        return TrainingRecord(run.name, step, run.steps, metrics.get("tokens"), averaged=tuple(steps))
    return TrainingRecord(
        name=run.name,
        step=step,
        steps=run.steps,
        tokens=metrics.get("tokens"),
        loss=metrics.get("loss"),
        perplexity=measured.get("perplexity", {}),
    )
