"""The tasks whose place in the harness and whose local files are known, and the papers' groups of them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loriini.common.errors import InputError
from loriini.evaluate.tasks import forms
from loriini.evaluate.tasks.forms import TaskRow


@dataclass(frozen=True)
class TaskEntry:
    """Where a task's YAML is, and how a local file becomes its documents.

    `folder` is under the harness's `tasks`; empty: the YAML is ours. `name` is the YAML's task where it
    differs. A file whose first row has the field `form` is of the form that `to_document` turns into the
    task's own fields (None: the row is left out); rows of other files have these already. The file is the
    first that exists of a stem (by default the task's name) and an ending; examples are in the file of the
    same stem and the ending `examples`. `shots` is the number of examples where nothing else is asked for.
    """

    folder: str = ""
    name: str = ""
    form: str = "query"
    to_document: Callable[[TaskRow], TaskRow | None] | None = None
    stems: tuple[str, ...] = ()
    endings: tuple[str, ...] = ("", "_test", "_validation", "_val", "_dev")
    examples: str = "_demos"
    shots: int = 0
    changes: tuple[tuple[str, str], ...] = ()
    """Settings of the YAML, and the fields of documents that replace them where there are such."""


IN_CONTEXT = 16
"""Examples of Lory's classification tasks, after Min et al. 2022."""


def _glue(name: str, texts: tuple[str, ...], *labels: str) -> TaskEntry:
    return TaskEntry(f"glue/{name}", form="label", to_document=forms.labels(*labels, texts=texts))


def _in_context(form: str, to_document: Callable[[TaskRow], TaskRow | None], *stems: str) -> TaskEntry:
    return TaskEntry(form=form, to_document=to_document, stems=stems, shots=IN_CONTEXT)


PAIR = ("sentence1", "sentence2")

TASKS = {
    "piqa": TaskEntry("piqa", to_document=forms.piqa),
    "siqa": TaskEntry("siqa", "social_iqa", to_document=forms.siqa, changes=(("doc_to_choice", "choices"),)),
    "boolq": TaskEntry("super_glue/boolq", to_document=forms.boolq),
    "hellaswag": TaskEntry("hellaswag", form="endings", to_document=forms.hellaswag),
    "winogrande": TaskEntry("winogrande", form="context_options", to_document=forms.winogrande),
    "race_m": TaskEntry(form="example_id", to_document=forms.race_m, stems=("race_m", "race")),
    "race_h": TaskEntry("race", "race", "example_id", forms.race, stems=("race_h", "race")),
    "arc_easy": TaskEntry("arc", to_document=forms.arc),
    "arc_challenge": TaskEntry("arc", to_document=forms.arc),
    "nq_open": TaskEntry("nq_open", form="question", to_document=forms.nq_open),
    "triviaqa": TaskEntry("triviaqa", form="aliases", to_document=forms.triviaqa),
    "agnews": _in_context("description", forms.agnews),
    "amazon": _in_context("text", forms.amazon, "amazon_polarity", "amazon"),
    "yelp": _in_context("text", forms.yelp, "yelp_polarity", "yelp"),
    "fever": _in_context("claim", forms.fever),
    "sst2_icl": _in_context("label", forms.labels("negative", "positive", texts=("sentence",)), "sst2"),
    "mrpc_icl": _in_context("label", forms.labels("not_equivalent", "equivalent", texts=PAIR), "mrpc"),
    "mnli": _glue("mnli", ("premise", "hypothesis"), "entailment", "neutral", "contradiction"),
    "mrpc": _glue("mrpc", PAIR, "not_equivalent", "equivalent"),
    "qnli": _glue("qnli", ("question", "sentence"), "entailment", "not_entailment"),
    "qqp": _glue("qqp", ("question1", "question2"), "not_duplicate", "duplicate"),
    "sst2": _glue("sst2", ("sentence",), "negative", "positive"),
    "mmlu": TaskEntry(
        "mmlu/default", form="choice0", to_document=forms.mmlu, endings=("_test", ""), examples="_dev"
    ),
    "wikitext": TaskEntry("wikitext", form="page", to_document=forms.wikitext),
}

GROUPS = {
    "lory": {
        **dict.fromkeys(("piqa", "siqa", "boolq", "hellaswag", "winogrande"), 0),
        **dict.fromkeys(("race_m", "race_h", "arc_easy", "arc_challenge"), 0),
        **dict.fromkeys(("nq_open", "triviaqa"), 5),
        **dict.fromkeys(("agnews", "amazon", "sst2_icl", "yelp", "fever", "mrpc_icl"), IN_CONTEXT),
    },
    "aoe": {
        **dict.fromkeys(("arc_easy", "piqa", "siqa", "winogrande", "hellaswag"), 0),
        **dict.fromkeys(("mnli", "mrpc", "qnli", "qqp", "sst2"), 3),
    },
    "router-free": {"mmlu": 5, "arc_challenge": 5},
}
"""Examples of each task by group: Lory table 1 (classification as Min et al. 2022, the rest as Llama 2), AoE
section 4.1.1 and its experiment without routers (section 3.1)."""


@dataclass(frozen=True)
class Request:
    """A task to run; `shots` None, for a task that is not in TASKS: as many examples as its YAML says.

    `stated` says whether its name carried the number of examples, as in `arc_challenge@5`.
    """

    task: str
    shots: int | None = None
    stated: bool = field(default=False, compare=False)

    def shots_of(self, task: TaskEntry) -> int:
        """The examples of local files that the task shows."""
        return task.shots if self.shots is None else self.shots

    def fewer(self, shots: int) -> str:
        """How to ask for at most `shots` examples."""
        return f"write {self.task}@{shots}" if self.stated else f"use --num-fewshot {shots}"


def requested(names: Sequence[str], shots: int | None = None) -> dict[str, Request]:
    """The tasks of names and groups, in their order, by the key of their results.

    A name may carry its number of examples, as in `arc_challenge@5`; `shots` is that of all others. The key
    of a task that is asked for with several numbers carries it too. InputError for another suffix, and for a
    group with one.
    """
    asked: dict[Request, None] = {}
    for name in names:
        members: Iterable[tuple[str, int | None]] = GROUPS[name].items() if name in GROUPS else [_named(name)]
        stated = "@" in name
        number = None if stated else shots
        asked |= {Request(task, own if number is None else number, stated): None for task, own in members}
    tasks = [request.task for request in asked]
    return {
        request.task
        if tasks.count(request.task) == 1 or request.shots is None
        else f"{request.task}@{request.shots}": request
        for request in asked
    }


def _named(name: str) -> tuple[str, int | None]:
    """A task and its number of examples, `TASK` or `TASK@NUMBER`."""
    task, at, number = name.partition("@")
    if at and task in GROUPS:
        raise InputError(f"--tasks {name}: a group; give its tasks' number of examples as --num-fewshot")
    if at and not re.fullmatch(r"\d{1,4}", number, re.ASCII):
        raise InputError(f"--tasks {name}: {number!r} is no number of examples; write for example {task}@5")
    if at:
        return task, int(number)
    return task, TASKS[task].shots if task in TASKS else None
