"""The command that measures perplexity, or runs downstream tasks."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar

from loriini.cli.arguments import check_models, output_file
from loriini.cli.output import format_table
from loriini.common.errors import InputError, printable
from loriini.common.options import Option, refuse_given
from loriini.evaluate.settings import EvaluationSettings, TaskSettings

DOCUMENT_OPTIONS = ("text_field", "domain_field", "on_error", "length", "contexts", "skip", "instances")
TASK_OPTIONS = ("limit", "num_fewshot", "label", "tasks_data")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure perplexity on held-out text, by domain, or run downstream tasks."""

    runs: Annotated[tuple[Path, ...], Option("RUN", positional=True)]
    """Runs' folders, model folders or Hub ids; several are compared on the same tokens."""
    text: EvaluationSettings = field(default_factory=EvaluationSettings)
    questions: TaskSettings = field(default_factory=TaskSettings)
    out: Annotated[Path | None, Option("FILE", parse=output_file('"perplexity"', '"tasks"'))] = None
    """Also write the JSON to this file."""

    less_memory: ClassVar = "lower --batch-size"

    def run(self) -> None:
        if bool(self.text.documents) == bool(self.questions.tasks):
            raise InputError("give --documents PATH… or --tasks NAME…, one of them")
        check_models(*self.runs)
        if self.text.documents:
            refuse_given(self.questions, TASK_OPTIONS, "is for --tasks; leave it out")
            from loriini.evaluate.runs import evaluate_runs

            results = evaluate_runs(self.runs, self.text)
            tables = [_perplexity_table(results), *_differences(results)]
        else:
            refuse_given(self.text, DOCUMENT_OPTIONS, "is for --documents; leave it out")
            from loriini.evaluate.tasks.running import evaluate_tasks, table_of

            results = evaluate_tasks(self.runs, self.questions)
            tables = [format_table(*table_of(results), align_right=True)]
        written = results if len(results) > 1 else results[0]
        print(json.dumps(written, indent=1), flush=True)  # first, as the file may not be written
        print(*tables, sep="\n", file=sys.stderr)
        if self.out:
            from loriini.common.atomic import write_json

            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, written)


def _perplexity_table(results: Sequence[Mapping[str, Any]]) -> str:
    """The perplexity of each run by domain, and its mean over domains."""
    from loriini.reporting.wording import scored_tokens

    first = results[0]
    heads = [result.get("run", "perplexity") for result in results]
    rows = [
        [domain, f"{tokens:,}", *(f"{result['perplexity'][domain]:,.3f}" for result in results)]
        for domain, tokens in first["tokens"].items()
    ]
    if len(rows) > 1:
        means = (f"{fmean(result['perplexity'].values()):,.3f}" for result in results)
        rows.append(["mean", f"{sum(first['tokens'].values()):,}", *means])
    table = format_table(("domain", "tokens", *heads), rows, align_right=True)
    return f"perplexity of held-out text: {scored_tokens(first)}\n{table}"


def _differences(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences from the first run as lines of text."""
    from loriini.evaluate.intervals import Difference
    from loriini.reporting.wording import interval, percent

    lines = [
        f"perplexity relative to {results[0].get('run')}, with the 95 % interval over held-out documents "
        "(it does not cover the seed: another training of the same model differs, too)"
    ]
    for result in results[1:]:
        for domain, values in result["difference"].items():
            difference = Difference.from_dict(values)
            name = f"{printable(result['run'])}  {printable(domain)}"
            lines.append(f"  {name}: {percent(difference.change)} ({interval(difference)})")
    return lines if len(lines) > 1 else []
