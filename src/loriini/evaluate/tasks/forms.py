"""Rows of local files as documents with the fields of the tasks' YAML: one function a form."""

import re
from collections.abc import Callable
from string import ascii_uppercase
from typing import Any

TaskRow = dict[str, Any]


def labels(*names: str, texts: tuple[str, ...] = ()) -> Callable[[TaskRow], TaskRow]:
    """`texts` and the index of `label` among `names`, where it is a name; indices, also as text, stay."""

    def to_index(row: TaskRow) -> TaskRow:
        label = row["label"]
        index = names.index(label) if label in names else _index(row, "label", len(names), ", ".join(names))
        return {**{field: _text(row, field) for field in texts}, "label": index}

    return to_index


def piqa(row: TaskRow) -> TaskRow:
    """`query` "Question: …" and two `choices`; `gold` is the index of the right one."""
    first, second = _choices(row, "choices", 2)
    return {"goal": _question(row), "sol1": first, "sol2": second, "label": _index(row, "gold", 2)}


def arc(row: TaskRow) -> TaskRow:
    """`query` "Question: …", `choices`, `gold`."""
    texts = _choices(row, "choices")
    letters = ascii_uppercase[: len(texts)]
    choices = {"text": texts, "label": list(letters)}
    right = letters[_index(row, "gold", len(texts))]
    return {"question": _question(row), "choices": choices, "answerKey": right}


def boolq(row: TaskRow) -> TaskRow:
    """`query` "Passage: … Question: …?" and `gold`, 1 for yes."""
    passage, question = _parts(r"Passage: (.*)\nQuestion: (.*?)\??", row, "query")
    return {"passage": passage, "question": question, "label": _index(row, "gold", 2)}


def siqa(row: TaskRow) -> TaskRow:
    """`query` with its options by letter, and `gold`: the options' texts become the choices."""
    pattern = r"Context: (.*?)\nQuestion: (.*?)\nChoices:\n(.*)\nAnswer:"
    context, question, options = _parts(pattern, row, "query")
    choices = [option[3:] for option in options.split("\n")]
    label = _index(row, "gold", len(choices)) + 1
    return {"context": context, "question": question, "choices": choices, "label": label}


def winogrande(row: TaskRow) -> TaskRow:
    """`context_options` and `continuation`: a blank that either whole context fills."""
    first, second = _choices(row, "context_options", 2)
    return {
        "sentence": f"_ {_text(row, 'continuation')}",
        "option1": first,
        "option2": second,
        "answer": str(_index(row, "gold", 2) + 1),
    }


def race(row: TaskRow) -> TaskRow | None:
    """A high school's question as the only problem of its article; None for a middle school's."""
    problem = {"question": _text(row, "question"), "options": _choices(row, "options", 4)}
    problem["answer"] = _letter(row)
    high = _text(row, "example_id").startswith("high")
    return {"article": _text(row, "article"), "problems": str([problem])} if high else None


def race_m(row: TaskRow) -> TaskRow | None:
    """A middle school's question; None for a high school's."""
    texts = {field: _text(row, field) for field in ("article", "question")}
    answered = {"options": _choices(row, "options", 4), "answer": _letter(row)}
    return {**texts, **answered} if _text(row, "example_id").startswith("middle") else None


def triviaqa(row: TaskRow) -> TaskRow:
    """`context` "Question: … Answer:", `answer`, `aliases`; examples show the first, the answer."""
    (question,) = _parts(r"Question: (.*?)\??\nAnswer:", row, "context")
    answer = _text(row, "answer")
    aliases = [answer, *(alias for alias in _texts(row, "aliases") if alias != answer)]
    return {"question": question, "answer": {"value": answer, "aliases": aliases}}


def hellaswag(row: TaskRow) -> TaskRow:
    """`activity_label`, `ctx_a`, `ctx_b`, `endings` and `label`, an index that may be text."""
    endings = _choices(row, "endings")
    texts = {field: _text(row, field) for field in ("activity_label", "ctx_a", "ctx_b")}
    return {**texts, "endings": endings, "label": _index(row, "label", len(endings), as_text=True)}


def nq_open(row: TaskRow) -> TaskRow:
    """`question` and `answer`, a list of right answers."""
    if not _texts(row, "answer"):
        raise ValueError("'answer' is []; give at least one")
    return {"question": _text(row, "question"), "answer": row["answer"]}


def wikitext(row: TaskRow) -> TaskRow:
    """A `page`."""
    return {"page": _text(row, "page")}


def agnews(row: TaskRow) -> TaskRow:
    """`title`, `description` and `label` from 1."""
    text = f"{_text(row, 'title')} {_text(row, 'description')}"
    return {"text": text, "label": _index(row, "label", 4, first=1) - 1}


def amazon(row: TaskRow) -> TaskRow:
    """`text` and `label`, without the title that the Hub has apart."""
    return {"title": "", "content": _text(row, "text"), "label": _index(row, "label", 2)}


def yelp(row: TaskRow) -> TaskRow:
    """`text` and `label`."""
    return {"text": _text(row, "text"), "label": _index(row, "label", 2)}


def fever(row: TaskRow) -> TaskRow | None:
    """A claim that is supported or refuted; None for one without enough information."""
    judged = row["label"] in ("SUPPORTS", "REFUTES")
    return {"input": _text(row, "claim"), "output": [{"answer": row["label"]}]} if judged else None


def mmlu(row: TaskRow) -> TaskRow:
    """`question`, `choice0` to `choice3`, `answer` and `subject`."""
    return {
        "question": _text(row, "question"),
        "choices": [_text(row, f"choice{i}") for i in range(4)],
        "answer": _index(row, "answer", 4, as_text=True),
        "subject": _text(row, "subject"),
    }


def multiple_choice(row: TaskRow) -> TaskRow:
    """`query`, `choices` and the index `gold`, of any task."""
    choices = _choices(row, "choices")
    return {"query": _text(row, "query"), "choices": choices, "gold": _index(row, "gold", len(choices))}


def continuation(row: TaskRow) -> TaskRow:
    """`context` and `continuation`, of any task."""
    texts = {field: _text(row, field) for field in ("context", "continuation")}
    if not texts["continuation"]:
        raise ValueError("'continuation' is empty; give a text")
    return texts


SIMPLE_FORMS = {
    "multiple_choice": (("query", "choices", "gold"), multiple_choice),
    "continuation": (("context", "continuation"), continuation),
}
"""Our tasks for rows that carry all that is asked: their fields, and what makes documents of them."""


def simple_form(row: TaskRow) -> str | None:
    """The form in SIMPLE_FORMS whose fields a row has."""
    return next((name for name, (wanted, _) in SIMPLE_FORMS.items() if row.keys() >= set(wanted)), None)


def like(first: TaskRow) -> Callable[[TaskRow], TaskRow]:
    """Rows with the fields of the first, and values of its types; ValueError for others."""

    def same_form(row: TaskRow) -> TaskRow:
        for field, value in first.items():
            if not _alike(value, row[field]):
                kinds = f"{type(row[field]).__name__}, in the first row {type(value).__name__}"
                raise ValueError(f"{field!r} is {row[field]!r:.60} ({kinds}); give all rows the same type")
        return row

    return same_form


def _alike(one: Any, other: Any) -> bool:
    numbers = (int, float)
    if type(one) in numbers and type(other) in numbers:
        return True
    return one is None or other is None or type(one) is type(other)


def _question(row: TaskRow) -> str:
    return _text(row, "query").removeprefix("Question: ").rstrip()


def _text(row: TaskRow, field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise ValueError(f"{field!r} is {value!r:.60}; give a text")
    return value


def _texts(row: TaskRow, field: str) -> list[str]:
    value = row[field]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{field!r} is {value!r:.60}; give a list of texts")
    return value


def _choices(row: TaskRow, field: str, number: int | None = None) -> list[str]:
    """A row's choices: `number` of them, or at least two; none is empty."""
    texts = _texts(row, field)
    if len(texts) < 2 or (number and len(texts) != number):
        raise ValueError(f"{field!r} has {len(texts)} choices; give {number or 'at least 2'}")
    if "" in texts:
        raise ValueError(f"{field!r} has an empty choice, number {texts.index('') + 1}; give it a text")
    return texts


def _index(
    row: TaskRow, field: str, number: int, names: str = "", first: int = 0, as_text: bool = False
) -> int:
    """The index of one of `number` answers, which count from `first`; ValueError for anything else."""
    value = row[field]
    if isinstance(value, str) and (as_text or names) and re.fullmatch(r"\d", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not first <= value < first + number:
        either = f"one of {names}, or " if names else ""
        allowed = f"{either}an integer from {first} to {first + number - 1}"
        raise ValueError(f"{field!r} is {row[field]!r:.60}; give {allowed}")
    return value


def _letter(row: TaskRow) -> str:
    """The letter of the right one of four answers."""
    value: str = row["answer"]
    if value not in ("A", "B", "C", "D"):
        raise ValueError(f"'answer' is {value!r:.60}; give one of A, B, C, D")
    return value


def _parts(pattern: str, row: TaskRow, field: str) -> tuple[str, ...]:
    text = _text(row, field)
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match is None:
        raise ValueError(f"{text[:40]!r}… does not have the form {pattern!r}")
    return match.groups()
