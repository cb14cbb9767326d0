"""Questions of the harness's tasks that no choice answers: it would count every answer as wrong."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from loriini.common.errors import InputError
from loriini.evaluate.tasks.local import Question, Splits


def check_answers(task: Any, name: str, limit: int | None = None) -> None:
    """InputError, beginning with `name`, for a question of the first `limit` that no choice answers."""
    if _counts_choices(task):
        for number, document in enumerate(islice(task.eval_docs, limit), 1):
            if problem := _problem(task, document):
                raise InputError(
                    f"{name}: question {number}: {problem}; give local files by --tasks-data DIR"
                )


def check_local_answers(task: Any, splits: Splits) -> None:
    """InputError, with file and line, for a question or example that the task cannot ask or answer.

    Also for rolling texts that are all empty.
    """
    documents = {"test": task.eval_docs, "examples": task.fewshot_docs() if splits["examples"] else ()}
    for split, found in documents.items():
        places = [question.place for question in splits[split]]
        if len(found) != len(places):  # the task leaves out some
            places = [f"{_file(splits[split])}: document {i}" for i in range(1, len(found) + 1)]
        for document, place in zip(found, places, strict=True):
            try:
                problem = _rendered(task, document)
            except Exception as error:
                reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(f"{place}: {reason}; docs/tasks.md has the forms") from error
            if problem:
                raise InputError(f"{place}: {problem}; docs/tasks.md has the forms")
    rolling = task.OUTPUT_TYPE == "loglikelihood_rolling"
    if rolling and not any(task.doc_to_target(document) for document in documents["test"]):
        raise InputError(f"{_file(splits['test'])}: all texts are empty; give some with text")


def _file(questions: list[Question]) -> str:
    return questions[0].place.rpartition(":")[0]


def _rendered(task: Any, document: Mapping[str, Any]) -> str | None:
    """What is wrong with a document, rendered as a question."""
    task.doc_to_text(document)
    task.doc_to_target(document)
    return _problem(task, document) if _counts_choices(task) else None


def _counts_choices(task: Any) -> bool:
    """Whether the harness itself compares the likeliest choice with the right one."""
    from lm_eval.api.task import ConfigurableTask

    itself = type(task).process_results is ConfigurableTask.process_results
    return itself and task.OUTPUT_TYPE == "multiple_choice" and not callable(task.config.process_results)


def _problem(task: Any, document: Mapping[str, Any]) -> str | None:
    """That a right answer is neither the index of a choice nor its text; None where all are."""
    choices = task.doc_to_choice(document)
    right = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    for answer in right if isinstance(right, list) else [right]:
        if answer not in (choices if isinstance(answer, str) else range(len(choices))):
            allowed = f"an integer from 0 to {len(choices) - 1}, or a choice's text"
            return f"the right answer is {answer!r:.60}, of {len(choices)} choices; it must be {allowed}"
    return None
