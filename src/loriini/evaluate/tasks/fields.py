"""Rows of local files as documents with the fields of the tasks' YAML: one function a form."""

import re
from collections.abc import Callable
from typing import Any

TaskRow = dict[str, Any]


def same(row: TaskRow) -> TaskRow:
    """A row that has the task's fields already."""
    return row


def labels(*names: str) -> Callable[[TaskRow], TaskRow]:
    """The index of `label` among `names`, where it is a name; indices, also as text, stay."""

    def to_index(row: TaskRow) -> TaskRow:
        label = row["label"]
        return {**row, "label": names.index(label) if label in names else int(label)}

    return to_index


def piqa(row: TaskRow) -> TaskRow:
    """`query` "Question: …" and two `choices`, of which `gold` is the index of the right one."""
    first, second = row["choices"]
    return {"goal": _question(row), "sol1": first, "sol2": second, "label": row["gold"]}


def arc(row: TaskRow) -> TaskRow:
    """`query` "Question: …", `choices`, `gold`."""
    letters = "ABCDE"[: len(row["choices"])]
    choices = {"text": row["choices"], "label": list(letters)}
    return {"question": _question(row), "choices": choices, "answerKey": letters[row["gold"]]}


def boolq(row: TaskRow) -> TaskRow:
    """`query` "Passage: … Question: …?" and `gold`, 1 for yes."""
    passage, question = _parts(r"Passage: (.*)\nQuestion: (.*?)\??", row["query"])
    return {"passage": passage, "question": question, "label": row["gold"]}


def siqa(row: TaskRow) -> TaskRow:
    """`query` with its options by letter, and `gold`: the options' texts become the choices."""
    pattern = r"Context: (.*?)\nQuestion: (.*?)\nChoices:\n(.*)\nAnswer:"
    context, question, options = _parts(pattern, row["query"])
    choices = [option[3:] for option in options.split("\n")]
    return {"context": context, "question": question, "choices": choices, "label": row["gold"] + 1}


def winogrande(row: TaskRow) -> TaskRow:
    """`context_options` and `continuation`: a blank that either whole context fills."""
    first, second = row["context_options"]
    return {
        "sentence": f"_ {row['continuation']}",
        "option1": first,
        "option2": second,
        "answer": str(row["gold"] + 1),
    }


def race(row: TaskRow) -> TaskRow | None:
    """A high school's question as the only problem of its article; None for a middle school's."""
    problem = {key: row[key] for key in ("question", "options", "answer")}
    high = row["example_id"].startswith("high")
    return {"article": row["article"], "problems": str([problem])} if high else None


def race_m(row: TaskRow) -> TaskRow | None:
    """A middle school's question; None for a high school's."""
    return row if row["example_id"].startswith("middle") else None


def triviaqa(row: TaskRow) -> TaskRow:
    """`context` "Question: … Answer:", `answer`, `aliases`; examples show the first, the answer."""
    (question,) = _parts(r"Question: (.*?)\??\nAnswer:", row["context"])
    aliases = [row["answer"], *(alias for alias in row["aliases"] if alias != row["answer"])]
    return {"question": question, "answer": {"value": row["answer"], "aliases": aliases}}


def agnews(row: TaskRow) -> TaskRow:
    """`title`, `description` and `label` from 1."""
    return {"text": f"{row['title']} {row['description']}", "label": row["label"] - 1}


def amazon(row: TaskRow) -> TaskRow:
    """`text` and `label`, without the title that the Hub has apart."""
    return {"title": "", "content": row["text"], "label": row["label"]}


def fever(row: TaskRow) -> TaskRow | None:
    """A claim that is supported or refuted; None for one without enough information."""
    judged = row["label"] in ("SUPPORTS", "REFUTES")
    return {"input": row["claim"], "output": [{"answer": row["label"]}]} if judged else None


def mmlu(row: TaskRow) -> TaskRow:
    """`question`, `choice0` to `choice3`, `answer` and `subject`."""
    choices = [row[f"choice{i}"] for i in range(4)]
    return {
        "question": row["question"],
        "choices": choices,
        "answer": int(row["answer"]),
        "subject": row["subject"],
    }


def _question(row: TaskRow) -> str:
    return row["query"].removeprefix("Question: ").rstrip()


def _parts(pattern: str, text: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match is None:
        raise ValueError(f"{text[:40]!r}… does not have the form {pattern!r}")
    return match.groups()
