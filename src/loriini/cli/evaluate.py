"""The command that measures perplexity, or runs downstream tasks."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar

from loriini.cli.arguments import check_models, output_file
from loriini.cli.output import format_table
from loriini.common.errors import InputError, printable
from loriini.common.options import Only, Option, refuse_given
from loriini.evaluate.settings import EvaluationRouting, EvaluationSettings, TaskSettings

OF_DOCUMENTS = ("documents", "text_field", "domain_field", "on_error", "length", "skip", "instances")
SHARED = ("device", "router_free", "batch_size")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure perplexity on held-out text, by domain, or run downstream tasks."""

    runs: Annotated[tuple[Path, ...], Option("RUN", positional=True)]
    """Runs' folders, model folders or Hub ids; several are compared on the same tokens."""
    text: Annotated[EvaluationSettings, Only(*OF_DOCUMENTS, "document_mask", *SHARED)] = field(
        default_factory=EvaluationSettings
    )
    questions: Annotated[TaskSettings, Only("tasks", "limit", "num_fewshot", "label")] = field(
        default_factory=TaskSettings
    )
    tasks_data: Annotated[Path | None, Option("DIR")] = None
    """Local files of the tasks, in place of the Hub's data."""
    routing: EvaluationRouting | None = None
    """How tokens are routed (training for `--documents`, prompt for `--tasks`)."""
    out: Annotated[Path | None, Option("FILE", parse=output_file('"perplexity"', '"tasks"'))] = None
    """Also write the JSON to this file."""

    less_memory: ClassVar = "lower --batch-size"

    def run(self) -> None:
        if bool(self.text.documents) == bool(self.questions.tasks):
            raise InputError("give --documents PATH… or --tasks NAME…, one of them")
        if self.text.documents:
            refuse_given(self, ("tasks_data",), "is for --tasks; leave it out")
            refuse_given(self.questions, ("limit", "num_fewshot", "label"), "is for --tasks; leave it out")
        else:
            names = (*OF_DOCUMENTS[1:], "document_mask")
            refuse_given(self.text, names, "is for --documents; leave it out")
        check_models(*self.runs)
        results = self._perplexities() if self.text.documents else self._answers()
        written = results if len(results) > 1 else results[0]
        print(json.dumps(written, indent=1), flush=True)  # first, as the file may not be written
        if self.text.documents:
            print(_perplexity_table(results), *_differences(results), sep="\n", file=sys.stderr)
        else:
            from loriini.evaluate.tasks import table_of

            print(format_table(*table_of(results), align_right=True), file=sys.stderr)
        if self.out:
            from loriini.common.atomic import write_json

            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, written)

    def _perplexities(self) -> list[dict[str, Any]]:
        from loriini.evaluate.runs import evaluate_runs

        return evaluate_runs(self.runs, replace(self.text, routing=self.routing or "training"))

    def _answers(self) -> list[dict[str, Any]]:
        from loriini.evaluate.tasks import evaluate_tasks

        settings = replace(
            self.questions,
            data=self.tasks_data,
            routing=self.routing or "prompt",
            device=self.text.device,
            router_free=self.text.router_free,
            batch_size=self.text.batch_size or TaskSettings.batch_size,
        )
        return evaluate_tasks(self.runs, settings)


def _perplexity_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Perplexity by domain, and its mean: of one run with its bits per byte, of several side by side.

    Bits per byte are over the counted tokens.
    """
    first, *others = results
    columns = {
        "perplexity": first["perplexity"],
        "bits per byte (counted)": first["bits_per_byte_counted"],
    }
    if others:
        columns = {result["run"]: result["perplexity"] for result in results}
    measured = {domain: [values[domain] for values in columns.values()] for domain in first["tokens"]}
    rows = [[domain, tokens, *measured[domain]] for domain, tokens in first["tokens"].items()]
    if len(rows) > 1:
        by_column = zip(*measured.values(), strict=True)
        rows.append(["mean", sum(first["tokens"].values()), *map(fmean, by_column)])
    shown = [
        [domain, f"{tokens:,}", *(f"{value:,.3f}" for value in values)] for domain, tokens, *values in rows
    ]
    each = "document" if first.get("document_mask") else "instance"
    left_out = f", without the first {first['skip']} tokens of each {each}" if first["skip"] else ""
    table = format_table(("domain", "tokens", *columns), shown, align_right=True)
    return f"perplexity of held-out text{left_out}\n{table}"


def _differences(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The differences from the first run as lines of text."""
    from loriini.evaluate.intervals import Difference
    from loriini.reporting.wording import interval, percent

    if len(results) == 1:
        return
    yield (
        f"perplexity relative to {results[0]['run']}, with the 95 % interval over held-out documents "
        "(it does not cover the seed: another training of the same model differs, too)"
    )
    for result in results[1:]:
        for domain, values in result["difference"].items():
            difference = Difference.from_dict(values)
            name = f"{printable(result['run'])}  {printable(domain)}"
            yield f"  {name}: {percent(difference.change)} ({interval(difference)})"
