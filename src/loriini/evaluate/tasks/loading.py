"""Load requested tasks into the harness: its own YAML or ours, over the Hub's data sets or local files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from loriini.common.checks import nearest
from loriini.common.errors import InputError

FILES, HUB = (Path(__file__).parent / name for name in ("files", "hub"))
"""Our YAML for local files, and for data sets of the Hub for which the harness has no task."""
FORMS = {"multiple_choice": {"query", "choices", "gold"}, "continuation": {"context", "continuation"}}
"""Task → fields: the task that reads a local file of any other name is chosen by the fields of its rows."""
HARNESS_NAMES = {"siqa": "social_iqa", "race_h": "race"}
"""Our name of a task → the harness's."""
IN_CONTEXT = 16
"""Examples of Lory's classification tasks, after Min et al. 2022."""

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
"""Group → task → number of examples: Lory table 1 (classification as Min et al. 2022, the rest as Llama 2),
AoE section 4.1.1, and AoE's experiment without routers (section 3.1)."""


@dataclass(frozen=True)
class Loaded:
    """The harness's `TaskDict` of a task, or of a group with its own value, and its number of examples."""

    tasks: dict[str, Any]
    shots: int


def check_installed() -> None:
    """InputError where lm-evaluation-harness is not installed."""
    if find_spec("lm_eval") is None:
        raise InputError("--tasks needs lm-evaluation-harness: pip install 'loriini[tasks]'")


def requested(names: Sequence[str], shots: int | None = None) -> dict[str, int | None]:
    """The tasks that names and groups stand for, in order, each with its number of examples.

    `shots`, if given, is the number for all tasks. A number of None means as many as the task's YAML says.
    InputError if groups ask for different numbers for the same task.
    """
    asked: dict[str, int | None] = {}
    for name in names:
        own = IN_CONTEXT if GROUPS["lory"].get(name) == IN_CONTEXT else None
        for task, number in GROUPS.get(name, {name: own}).items():
            wanted = number if shots is None else shots
            if asked.setdefault(task, wanted) != wanted:
                raise InputError(
                    f"--tasks {' '.join(names)}: {task} with {asked[task]} and with {wanted} examples; give "
                    "--num-fewshot, or one at a time"
                )
    return asked


def load_tasks(
    asked: Mapping[str, int | None], data: Path | None, limit: int | None = None
) -> dict[str, Loaded]:
    """The harness's tasks, by the key of their results; with a folder `data`, they read only its files.

    InputError for names that are neither the harness's nor ours, for data that is missing or malformed, and
    for a question of a file (of the first `limit`) whose right answer is not among its choices.
    """
    if data is not None and not data.is_dir():
        raise InputError(f"{data}: no such folder; give --tasks-data the folder of the tasks' files")
    loaded: dict[str, Loaded] = {}
    for name, shots in asked.items():
        loaded |= _from_files(name, shots or 0, data, limit) if data else _from_hub(name, shots)
    return loaded


def _from_files(name: str, shots: int, data: Path, limit: int | None) -> dict[str, Loaded]:
    """A task over local files: one of our YAML files, or one of FORMS."""
    from lm_eval.tasks import TaskManager

    from loriini.evaluate.tasks.local import find_file, read_rows

    settings = {"folder": str(data), "name": name, "shots": shots}
    manager = TaskManager(include_path=str(FILES), include_defaults=False, metadata=settings)
    form = name
    if name not in manager.all_tasks:
        if not any(data.glob(f"{name}*.jsonl")):
            raise _unknown(name, [*manager.all_tasks, *(path.stem for path in data.glob("*.jsonl"))])
        file = find_file(data, name)[1]
        first = read_rows(file)[0]
        fitting = (form for form, fields in FORMS.items() if first.keys() >= fields)
        if not (form := next(fitting, "")):
            raise InputError(
                f"{file}: its rows do not have a form that is known; docs/tasks.md has the forms"
            )
    task = _load(manager, form, f"{data}: task {name!r}")["tasks"][form]
    _check_questions(task, f"{data}: task {name!r}", limit)
    return {name: _loaded({name: task}, {}, shots)}


def _from_hub(name: str, shots: int | None) -> dict[str, Loaded]:
    """A task or group from the Hub; a group or tag without a value of its own becomes its single tasks."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    wanted = HARNESS_NAMES.get(name, name)
    # indexing all of the harness's tasks takes many seconds; most are in a folder of their name
    folder = Path(lm_eval.__file__).parent / "tasks" / wanted
    manager = TaskManager(
        include_path=[str(path) for path in (HUB, folder) if path.is_dir()], include_defaults=False
    )
    if wanted not in manager.all_tasks:
        manager = TaskManager(include_path=str(HUB))
    if wanted not in manager.all_tasks:
        raise _unknown(name, manager.all_tasks)
    loaded = _load(manager, wanted, f"task {name!r}")
    tasks, group = loaded["tasks"], loaded["groups"].get(wanted)
    if group and group.has_aggregation:
        return {name: _loaded(tasks, {wanted: group}, shots)}
    if len(tasks) == 1:
        return {name: _loaded({name: tasks.popitem()[1]}, {}, shots)}
    return {member: _loaded({member: task}, {}, shots) for member, task in tasks.items()}


def _load(manager: Any, name: str, where: str) -> Any:
    try:
        return manager.load([name])
    except InputError:
        raise
    except ImportError as error:
        raise InputError(
            f"{where}: lm-evaluation-harness needs a module that is not installed, or not in this version "
            f"({_reason(error)}); install it, or leave the task out"
        ) from error
    except Exception as error:
        raise InputError(
            f"{where}: its documents could not be loaded ({_reason(error)}); check the network, or give "
            "--tasks-data a folder of files as in docs/tasks.md"
        ) from error


def _loaded(tasks: dict[str, Any], groups: dict[str, Any], shots: int | None) -> Loaded:
    """Tasks that show `shots` examples; None: as many as each YAML says."""
    for task in tasks.values():
        task.set_config("num_fewshot", (task.config.num_fewshot or 0) if shots is None else shots)
    return Loaded({"tasks": tasks, "groups": groups}, next(iter(tasks.values())).config.num_fewshot)


def _check_questions(task: Any, where: str, limit: int | None) -> None:
    """InputError for a question that does not have the task's form, or whose right answer is not a choice.

    In the second case, the harness would count every answer as wrong.
    """
    for number, document in enumerate(islice(task.eval_docs, limit), 1):
        try:
            problem = _problem(task, document)
        except Exception as error:  # from a template
            problem = f"it does not have the task's form ({_reason(error)})"
        if problem:
            raise InputError(f"{where}: question {number}: {problem}; docs/tasks.md has the forms")


def _problem(task: Any, document: Mapping[str, Any]) -> str | None:
    """Says that a question's right answer is not one of its choices; None if it is."""
    text, right = task.doc_to_text(document), task.doc_to_target(document)
    if task.OUTPUT_TYPE != "multiple_choice":
        return None
    choices = task.doc_to_choice(document)
    right = text if task.multiple_input else right
    for answer in right if isinstance(right, list) else [right]:
        if answer not in (choices if isinstance(answer, str) else range(len(choices))):
            allowed = f"an integer from 0 to {len(choices) - 1}, or a choice's text"
            return f"the right answer is {answer!r:.60}, of {len(choices)} choices; it must be {allowed}"
    return None


def _unknown(name: str, others: Sequence[str]) -> InputError:
    hint = nearest(name, {*GROUPS, *others}) or f"the groups are {', '.join(GROUPS)}; "
    return InputError(f"no task or group is named {name!r}; {hint}docs/tasks.md lists them")


def _reason(error: Exception) -> str:
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}"
