"""Downstream tasks that cannot be run: unknown names, missing files, rows of another form, wrong numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from local_tasks import EXAMPLES, mmlu_rows, write_all, write_rows

from loriini.common.errors import InputError
from loriini.evaluate.settings import RouterFree
from loriini.evaluate.tasks import TaskSettings, evaluate_tasks, loading
from loriini.evaluate.tasks.catalog import TASKS, Request, requested
from runs import write_tokenizer
from tiny import tiny_model

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of one row for every task in the catalogue."""
    return write_all(tmp_path_factory.mktemp("tasks"))


def test_absent_files_are_named_with_the_tasks_that_are_there(folder: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "piqa.jsonl", [EXAMPLES["piqa"].row])
    message = (
        f"{tmp_path}: no file for task 'qqp'; put qqp.jsonl, qqp_test.jsonl, qqp_validation.jsonl, "
        "qqp_val.jsonl or qqp_dev.jsonl there, or give only those that are there: --tasks piqa"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        loading.load_tasks(requested(["piqa", "qqp", "sst2"]), tmp_path)
    with pytest.raises(InputError, match="nowhere: no such folder; give --tasks-data"):
        loading.load_tasks(requested(["piqa"]), tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"piqa.jsonl:2: not JSON .*; give one object a line"),
        ("[" * 100_000, r"piqa.jsonl:2: not JSON .*; give one object a line"),
        ("[]", r"piqa.jsonl:2: not a JSON object; give one object a line"),
        (
            '{"query": "Question: a", "gold": 0}',
            r"piqa.jsonl:2: no field 'choices'; docs/tasks.md has the form",
        ),
        ('{"query": "Question: a", "choices": ["b"]}', r"piqa.jsonl:2: 'choices' has 1 choices; give 2"),
    ],
)
def test_a_malformed_row_is_named_by_its_line(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "piqa.jsonl").write_text(json.dumps(EXAMPLES["piqa"].row) + "\n" + row + "\n")
    with pytest.raises(InputError, match=message):
        loading.load_tasks(requested(["piqa"]), tmp_path)


@pytest.mark.parametrize(
    ("name", "rows", "shots", "message"),
    [
        ("piqa", [], 0, "piqa.jsonl: no row for this task"),
        ("piqa", [{"goal": "a"}], 0, "piqa.jsonl: its rows do not have this task's form"),
        (
            "piqa",
            [EXAMPLES["piqa"].row] * 4,
            3,
            "piqa.jsonl: 2 examples for task 'piqa', 3 needed; use --num-fewshot 2$",
        ),
        ("piqa", [EXAMPLES["piqa"].row] * 4, 1, "piqa.jsonl: no question besides the examples, all rows"),
        ("mmlu", mmlu_rows("sailing", 1), 0, "mmlu.jsonl: MMLU has no subject 'sailing'; correct the file"),
        ("boolq", [{"query": "no form", "gold": 1}], 0, "boolq.jsonl:1: 'no form'… does not have the form"),
    ],
)
def test_a_file_of_another_form_is_refused(
    name: str, rows: list[dict[str, Any]], shots: int, message: str, tmp_path: Path
) -> None:
    write_rows(tmp_path / f"{name}.jsonl", rows)
    with pytest.raises(InputError, match=message):
        loading.load_tasks({name: Request(name, shots)}, tmp_path)


@pytest.mark.parametrize(
    ("task", "rows"), [("piqa", [EXAMPLES["piqa"].row] * 4), ("mmlu", mmlu_rows("virology", 4))]
)
def test_too_many_examples_that_the_name_carries_are_lowered_there(
    task: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    write_rows(tmp_path / f"{task}.jsonl", rows)
    with pytest.raises(InputError, match=rf"2 examples .*, 5 needed; write {task}@2$"):
        loading.load_tasks(requested([f"{task}@5"], shots=0), tmp_path)


def test_an_unknown_task_is_answered_with_the_nearest_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="named 'piqaa'; the nearest is piqa"):
        loading.load_tasks(requested(["piqaa"]), folder)
    with pytest.raises(InputError, match="named 'lori'; the nearest is lory"):
        loading.load_tasks(requested(["lori"]), folder)
    with pytest.raises(InputError, match=r"the nearest is nq_open;"):  # of the harness's names and ours, once
        loading.load_tasks(requested(["nq_opne"]), folder)
    few = loading._manager(loading._folder(TASKS["piqa"]))
    monkeypatch.setattr(loading, "_index", lambda: few)
    with pytest.raises(InputError, match="named 'zzz'; the groups are lory, aoe, router-free;"):
        loading.load_tasks(requested(["zzz"]), None)


@pytest.mark.parametrize("local", [True, False])
def test_a_module_that_the_harness_lacks_is_no_fault_of_the_rows(
    local: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.tasks import TaskManager

    def load(*_: Any) -> None:
        raise ModuleNotFoundError("No module named 'squad_metrics'")

    monkeypatch.setattr(TaskManager, "load", load)
    with pytest.raises(InputError, match=r"piqa.*needs a module .*'squad_metrics'.*; install it, or leave"):
        loading.load_tasks(requested(["piqa"]), folder if local else None)


def test_without_a_network_local_files_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "datasets.load_dataset", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("down"))
    )
    with pytest.raises(
        InputError, match=r"task 'piqa': .*down\); check the network, or give .* --tasks-data DIR"
    ):
        loading.load_tasks(requested(["piqa"]), None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 0}, "--limit is 0; it must be at least 1"),
        ({"num_fewshot": -1}, "--num-fewshot is -1; it must be at least 0"),
    ],
)
def test_wrong_numbers_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TaskSettings(("piqa",), **settings)


def test_the_missing_harness_and_a_folder_that_is_no_run_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no trained model here; give a run's folder"):
        evaluate_tasks([tmp_path], TaskSettings(("piqa",), folder))
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs lm-evaluation-harness: pip install 'loriini\[tasks\]'"):
        evaluate_tasks([tmp_path], TaskSettings(("piqa",), folder))


@pytest.mark.parametrize(
    ("design", "settings", "message"),
    [
        ("sequence-top2", {"routing": "segment"}, "sequence-top2: routing=segment: "),
        ("label", {}, "label: this model routes by label; give one"),
        ("dense", {"router_free": RouterFree("hidden")}, "dense: --router-free hidden:2:softmax_selected: "),
    ],
)
def test_a_later_run_is_refused_before_any_model_is_loaded(
    design: str, settings: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    for name in ("mixtral" if "router_free" in settings else "lory", design):
        model = tiny_model(name, **({"label_names": ["code", "prose"]} if name == "label" else {}))
        model.config.save_pretrained(write_tokenizer(tmp_path / name))  # no weights, which cannot be loaded
    runs = [path for path in tmp_path.iterdir() if path.name != design]
    with pytest.raises(InputError, match=message):
        evaluate_tasks([*runs, tmp_path / design], TaskSettings(("piqa",), folder, **settings))
