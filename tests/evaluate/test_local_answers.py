"""Local task files with a wrong answer, without a field in a row, or beside another of their task."""

from pathlib import Path
from typing import Any

import pytest
from local_tasks import EXAMPLES, mmlu_rows, write_rows

from loriini.common.errors import InputError
from loriini.evaluate.tasks import loading
from loriini.evaluate.tasks.catalog import Request, requested

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")

THREE = {"query": "Ice is", "choices": ["hot", "cold", "dry"]}


def refused(folder: Path, name: str, rows: list[dict[str, Any]], shots: int = 0) -> str:
    """The message that refuses a task with these rows, after the folder's name."""
    write_rows(folder / f"{EXAMPLES[name].file if name in EXAMPLES else name}.jsonl", rows)
    with pytest.raises(InputError) as refusal:
        loading.load_tasks({name: Request(name, shots)}, folder)
    return str(refusal.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize("name", ["arc_easy", "anything"])
@pytest.mark.parametrize("gold", ["1", -1, 3, True, 1.0, None, "cold"])
def test_a_gold_that_is_no_index_is_refused(name: str, gold: Any, tmp_path: Path) -> None:
    message = refused(tmp_path, name, [{**THREE, "gold": 2}, {**THREE, "gold": gold}, {**THREE, "gold": 0}])
    allowed = f"'gold' is {gold!r}; give an integer from 0 to 2"
    assert message == f"{name}.jsonl:2: {allowed}; docs/tasks.md has the form"


@pytest.mark.parametrize(
    ("name", "field", "values", "remedy"),
    [
        ("anything", "gold", (1, 2, 3), "0 to 2"),
        ("piqa", "gold", (1, 2), "0 to 1"),
        ("boolq", "gold", (1, 2), "0 to 1"),
        ("siqa", "gold", (1, 2), "0 to 1"),
        ("winogrande", "gold", (1, 2), "0 to 1"),
        ("winogrande", "gold", (0, 1, 2), "0 to 1"),
        ("amazon", "label", (1, 2), "0 to 1"),
        ("yelp", "label", (1, 2), "0 to 1"),
        ("agnews", "label", (1, 2, 3, 0), "1 to 4"),
        ("sst2", "label", (1, 2), "0 to 1"),
        ("sst2_icl", "label", (0, -1), "0 to 1"),
        ("sst2", "label", (-1,), "0 to 1"),
        ("mnli", "label", (0, 3), "0 to 2"),
        ("hellaswag", "label", ("0", "4"), "0 to 3"),
        ("mmlu", "answer", ("0", "4"), "0 to 3"),
    ],
)
def test_answers_beyond_the_choices_are_refused(
    name: str, field: str, values: tuple[Any, ...], remedy: str, tmp_path: Path
) -> None:
    row = THREE if name == "anything" else EXAMPLES[name].row
    message = refused(tmp_path, name, [{**row, field: value} for value in values])
    assert f".jsonl:{len(values)}: {field!r} is {values[-1]!r}; give " in message
    assert f"an integer from {remedy}; docs/tasks.md" in message


@pytest.mark.parametrize("name", ["race_h", "race_m"])
def test_a_letter_of_no_option_is_refused(name: str, tmp_path: Path) -> None:
    row = {**EXAMPLES[name].row, "answer": "E"}
    assert "race.jsonl:1: 'answer' is 'E'; give one of A, B, C, D;" in refused(tmp_path, name, [row])


@pytest.mark.parametrize(
    ("name", "row", "wrong"),
    [
        ("piqa", {"goal": "a", "sol1": "b", "sol2": "c", "label": 0}, {"label": 2}),
        ("piqa", {"goal": "a", "sol1": "b", "sol2": "c", "label": 0}, {"label": -1}),
        ("winogrande", {"sentence": "A _ b", "option1": "c", "option2": "d", "answer": "1"}, {"answer": "3"}),
        (
            "arc_easy",
            {"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}, "answerKey": "A"},
            {"answerKey": "C"},
        ),
    ],
)
@pytest.mark.parametrize("shots", [0, 1])
def test_rows_of_the_harness_are_checked_as_it_reads_them(
    name: str, row: dict[str, Any], wrong: dict[str, Any], shots: int, tmp_path: Path
) -> None:
    if shots:
        write_rows(tmp_path / f"{name}_demos.jsonl", [row, {**row, **wrong}])
        assert f"{name}_demos.jsonl:2: " in refused(tmp_path, name, [row], shots)
    else:
        assert f"{name}.jsonl:2: " in refused(tmp_path, name, [row, {**row, **wrong}])


@pytest.mark.parametrize(("limit", "fails"), [(None, True), (2, True), (1, False)])
def test_a_wrong_answer_of_the_hub_is_refused(
    limit: int | None, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset

    rows = [{"goal": "a", "sol1": "b", "sol2": "c", "label": label} for label in (0, 2)]
    there = dict.fromkeys(("train", "validation"), Dataset.from_list(rows))
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: there)
    if fails:
        with pytest.raises(InputError, match="task 'piqa': question 2: the right answer is 2, of 2 choices"):
            loading.load_tasks(requested(["piqa"]), None, limit)
    else:
        loading.load_tasks(requested(["piqa"]), None, limit)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_field_is_needed_in_every_row(name: str, tmp_path: Path) -> None:
    row = EXAMPLES[name].row
    for field in row.keys() - ({"choices"} if name in ("boolq", "siqa") else set()):
        short = {key: value for key, value in row.items() if key != field}
        assert f".jsonl:2: no field {field!r}; docs/tasks.md" in refused(tmp_path, name, [row, short])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("anything", {"gold": "A"}, "'gold' is 'A'; give an integer from 0 to 2"),
        ("anything", {"choices": "abc"}, "'choices' is 'abc'; give a list of texts"),
        ("anything", {"choices": ["a", 1]}, "'choices' is ['a', 1]; give a list of texts"),
        ("anything", {"choices": ["a"]}, "'choices' has 1 choices; give at least 2"),
        ("jeopardy", {"continuation": 476}, "'continuation' is 476; give a text"),
        ("jeopardy", {"continuation": ""}, "'continuation' is empty; give a text"),
        ("jeopardy", {"continuation": None}, "'continuation' is None; give a text"),
        ("nq_open", {"answer": []}, "'answer' is []; give at least one"),
    ],
)
def test_a_field_of_another_type_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    row = {**THREE, "gold": 0} if name == "anything" else EXAMPLES[name].row
    assert f".jsonl:3: {message};" in refused(tmp_path, name, [row, row, {**row, **change}])


@pytest.mark.parametrize(
    ("name", "field"),
    [("piqa", "choices"), ("arc_easy", "choices"), ("winogrande", "context_options"), ("race_m", "options")],
)
def test_an_empty_choice_is_refused_by_its_line(name: str, field: str, tmp_path: Path) -> None:
    row = EXAMPLES[name].row
    message = refused(tmp_path, name, [{**row, field: [*row[field][:-1], ""]}])
    assert f".jsonl:1: {field!r} has an empty choice, number {len(row[field])}; give it" in message


def test_texts_that_are_all_empty_are_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, "wikitext", [{"page": ""}, {"page": ""}])
    assert message == "wikitext.jsonl: all texts are empty; give some with text"
    write_rows(tmp_path / "wikitext.jsonl", [{"page": ""}, {"page": "a"}])
    loading.load_tasks(requested(["wikitext"]), tmp_path)


def test_rows_of_the_harness_all_have_the_fields_of_the_first(tmp_path: Path) -> None:
    row = {"question": "2 + 2?", "answer": "So.\n#### 4"}
    assert "gsm8k.jsonl:2: no field 'answer';" in refused(tmp_path, "gsm8k", [row, {"question": "a"}])
    message = "gsm8k.jsonl:2: 'answer' is 4 (int, in the first row str); give all rows the same type;"
    assert message in refused(tmp_path, "gsm8k", [row, {**row, "answer": 4}])


def test_more_fields_than_the_form_has_may_differ(tmp_path: Path) -> None:
    row = {**THREE, "gold": 0}
    write_rows(tmp_path / "anything.jsonl", [{**row, "id": 1}, {**row, "id": "x", "more": 1}, row])
    (loaded,) = loading.load_tasks(requested(["anything"]), tmp_path).values()
    assert len(loaded.tasks["tasks"]["anything"].eval_docs) == 3


def test_of_several_files_the_test_set_is_read_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = EXAMPLES["sst2"].row
    names = ["sst2_dev", "sst2_val", "sst2_validation", "sst2_test", "sst2"]
    for i, name in enumerate(names):
        write_rows(tmp_path / f"{name}.jsonl", [{**row, "sentence": name}])
        (loaded,) = loading.load_tasks(requested(["sst2"]), tmp_path).values()
        assert loaded.tasks["tasks"]["sst2"].eval_docs[0]["sentence"] == name
        others = ", ".join(f"{other}.jsonl" for other in reversed(names[:i]))
        said = f"{tmp_path}: task 'sst2' reads {name}.jsonl, not {others}\n" if i else ""
        assert capsys.readouterr().err == said


def test_the_rows_of_a_subject_are_named_by_their_line(tmp_path: Path) -> None:
    subjects = ("virology", "abstract_algebra", "virology")
    rows = [mmlu_rows(subject, 1)[0] for subject in subjects]
    own = [{**row, "choices": [*"abcd"], "answer": i // 2 * 9} for i, row in enumerate(rows)]
    for row in own:
        del row["choice0"]
    assert "mmlu_test.jsonl:3: the right answer is 9, of 4 choices" in refused(tmp_path, "mmlu", own)
