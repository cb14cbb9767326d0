"""Requested tasks as the harness's: its own YAML or ours, over the Hub's data sets or local files."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.common.progress import warn
from loriini.evaluate.tasks.answers import check_answers, check_local_answers
from loriini.evaluate.tasks.catalog import GROUPS, TASKS, Request, TaskEntry
from loriini.evaluate.tasks.forms import simple_form
from loriini.evaluate.tasks.local import Splits, find_file, read_splits

OUR_YAML = Path(__file__).parent / "yaml"
OPTIONS = {"siqa": 3, "commonsense_qa": 5}
"""Tasks that local files may hold with fewer options, and how many published figures are of."""


@dataclass(frozen=True)
class Loaded:
    """The harness's `TaskDict` of a task, or of a group with one value, and the examples it shows."""

    tasks: dict[str, Any]
    shots: int


def check_installed() -> None:
    """InputError where lm-evaluation-harness is not installed."""
    if find_spec("lm_eval") is None:
        raise InputError("--tasks needs lm-evaluation-harness: pip install 'loriini[tasks]'")


def load_tasks(
    asked: Mapping[str, Request], data: Path | None, limit: int | None = None
) -> dict[str, Loaded]:
    """The harness's tasks by the key of their results; with `data`, they read its files and need no network.

    InputError for names that are neither the harness's nor ours, for data that is missing or malformed, and
    for a question (of the first `limit` of the Hub's) whose right answer is not among its choices.
    """
    if data is not None:
        _check_files(asked, data)
        return {key: _from_files(key, request, data) for key, request in asked.items()}
    loaded: dict[str, Loaded] = {}
    for key, request in asked.items():
        loaded |= _from_hub(key, request, {*loaded, *asked} - {key})
    for key, task in loaded.items():
        for member in task.tasks["tasks"].values():
            check_answers(member, f"task {key!r}", limit)
    return loaded


def _check_files(asked: Mapping[str, Request], data: Path) -> None:
    """InputError for the first task without a file; it names the tasks that have one."""
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; give --tasks-data the folder of the tasks' files")
    there, missing = [], []
    for key, request in asked.items():
        try:
            find_file(request.task, _task(request.task), data)
            there.append(key)
        except InputError as absent:
            if request.task not in TASKS:
                raise _unknown(request.task, [path.stem for path in data.glob("*.jsonl")]) from None
            missing.append(str(absent))
    if missing:
        others = f", or give only those that are there: --tasks {' '.join(there)}" if there else ""
        raise InputError(f"{missing[0]}{others}")


def _task(name: str) -> TaskEntry:
    return TASKS.get(name, TaskEntry())


def _from_hub(key: str, request: Request, taken: Collection[str] = ()) -> dict[str, Loaded]:
    """A task, or a group with a value of its own, by `key`; tasks of other groups and tags by their names.

    With their number of examples, where `key` has it or the name is `taken`.
    """
    name, task = request.task, TASKS.get(request.task)
    wanted = (task and task.name) or name
    manager = _manager(_folder(task)) if task else _index()
    if wanted not in manager.all_tasks:
        raise _unknown(name, manager.all_tasks)
    try:
        loaded = manager.load([wanted])
    except ImportError as error:
        raise _needs_module(f"task {name!r}", error) from error
    except Exception as error:
        raise InputError(
            f"task {name!r}: its data set could not be loaded ({_reason(error)}); check the network, "
            "or give local files by --tasks-data DIR"
        ) from error
    shots = request.shots
    tasks, group = loaded["tasks"], loaded["groups"].get(wanted)
    if group and group.has_aggregation:
        group.name = key
        return {key: _loaded(tasks, {key: group}, shots)}
    if len(tasks) == 1:
        return {key: _loaded({key: tasks.popitem()[1]}, {}, shots)}
    found = {}
    for name, member in tasks.items():
        number = _shots(member, shots)
        name = f"{name}@{number}" if "@" in key or name in taken else name
        found[name] = _loaded({name: member}, {}, number)
    return found


def _from_files(key: str, request: Request, data: Path) -> Loaded:
    """A task of the catalogue, one of a simple form, or else the harness's with rows of its own fields."""
    name, task = request.task, _task(request.task)
    shots, splits = request.shots_of(task), read_splits(request, task, data)
    file = find_file(name, task, data, shown=True)
    if name == "mmlu":
        return _mmlu(key, splits, request, file)
    first = splits["test"][0].document
    if name in TASKS:
        wanted, manager = task.name or name, _manager(_folder(task))
    elif simple := simple_form(first):
        wanted, manager = simple, _manager(OUR_YAML)
    else:
        wanted, manager = name, _index()
    if wanted not in manager.all_subtasks:
        raise _unknown(name, manager.all_subtasks)
    options, choices = OPTIONS.get(name, 0), first.get("choices")
    if isinstance(choices, list) and len(choices) < options:  # those of the Hub's rows are an object
        warn(f"{file}: fewer options than the {options} of {name}; do not compare with published figures")
    changes = {setting: field for setting, field in task.changes if field in first}
    found = _load_local(manager, {wanted: splits}, file, changes)["tasks"][wanted]
    return _loaded({key: found}, {}, shots)


def _mmlu(key: str, splits: Splits, request: Request, file: Path) -> Loaded:
    """A task a subject, examples of the same subject, one value for all questions."""
    from lm_eval.config.group import AggMetricConfig

    manager, shots = _manager(_folder(TASKS["mmlu"])), request.shots_of(TASKS["mmlu"])
    subjects = {}
    for subject in sorted({question.document["subject"] for question in splits["test"]}):
        if f"mmlu_{subject}" not in manager.all_subtasks:
            raise InputError(f"{file}: MMLU has no subject {subject!r}; correct the file")
        chosen = {
            name: [q for q in all_ if q.document["subject"] == subject] for name, all_ in splits.items()
        }
        if (there := len(chosen["examples"])) < shots:
            raise InputError(f"{file}: {there} examples of {subject}, {shots} needed; {request.fewer(there)}")
        subjects[f"mmlu_{subject}"] = chosen
    loaded = _load_local(manager, subjects, file)
    group = loaded["groups"]["local"]
    group.name, group.aggregate_metric_list = key, [AggMetricConfig(metric="acc")]
    return _loaded(loaded["tasks"], {key: group}, shots)


def _local_settings(splits: Splits) -> dict[str, Any]:
    """What a task's YAML says about its documents, for documents in memory."""
    from datasets import Dataset

    rows = {
        name: Dataset.from_list([question.document for question in questions])
        for name, questions in splits.items()
        if questions
    }

    def custom_dataset(**_: Any) -> dict[str, Dataset]:
        return rows

    return {
        "custom_dataset": custom_dataset,
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
        "fewshot_split": "examples" if "examples" in rows else None,
    }


def _load_local(
    manager: Any, splits: Mapping[str, Splits], file: Path, changes: Mapping[str, str] | None = None
) -> Any:
    """The harness's tasks by name over these documents, with their answers checked.

    Settings over a task's YAML are allowed for members of groups only: the group is `local`.
    """
    try:
        settings = [
            {"task": name, **_local_settings(rows), **(changes or {})} for name, rows in splits.items()
        ]
        loaded = manager.load([{"group": "local", "task": settings}])
    except ImportError as error:
        raise _needs_module(f"{file}: task {', '.join(splits)}", error) from error
    except Exception as error:
        raise InputError(
            f"{file}: its rows do not have this task's form ({_reason(error)}); docs/tasks.md has the forms"
        ) from error
    for name, rows in splits.items():
        check_local_answers(loaded["tasks"][name], rows)
    return loaded


def _loaded(tasks: dict[str, Any], groups: dict[str, Any], shots: int | None) -> Loaded:
    """Tasks that show `shots` examples; None: as many as each YAML says."""
    for task in tasks.values():
        task.set_config("num_fewshot", _shots(task, shots))
    return Loaded({"tasks": tasks, "groups": groups}, next(iter(tasks.values())).config.num_fewshot)


def _shots(task: Any, shots: int | None) -> int:
    """The examples that a task shows: `shots`, or as many as its YAML says."""
    return (task.config.num_fewshot or 0) if shots is None else shots


def _folder(task: TaskEntry) -> Path:
    import lm_eval

    return Path(lm_eval.__file__).parent / "tasks" / task.folder if task.folder else OUR_YAML


def _manager(folder: Path) -> Any:
    """The tasks of one folder: indexing all of the harness's takes many seconds."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(folder), include_defaults=False)


@cache
def _index() -> Any:
    """All tasks of the harness."""
    from lm_eval.tasks import TaskManager

    return TaskManager()


def _unknown(name: str, others: list[str]) -> InputError:
    hint = nearest(name, {*TASKS, *GROUPS, *others}) or f"the groups are {', '.join(GROUPS)}; "
    return InputError(f"no task or group is named {name!r}; {hint}docs/tasks.md lists them")


def _needs_module(task: str, error: ImportError) -> InputError:
    """That the harness's own code for a task does not run with the packages that are installed."""
    return InputError(
        f"{task}: lm-evaluation-harness needs a module that is not installed, or not in this version "
        f"({_reason(error)}); install it, or leave the task out"
    )


def _reason(error: Exception) -> str:
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}"
