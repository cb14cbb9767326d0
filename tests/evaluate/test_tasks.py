"""Downstream tasks: local rows as the harness's questions, results as JSON and tables, and wrong input."""

import json
import math
import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")

from datasets import Dataset
from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM

from loriini.common.errors import InputError
from loriini.evaluate.harness import LoriiniLM
from loriini.evaluate.settings import RouterFree, TaskSettings
from loriini.evaluate.tasks import loading, running
from loriini.evaluate.tasks.loading import FILES, FORMS, GROUPS, IN_CONTEXT, load_tasks, requested
from loriini.evaluate.tasks.running import evaluate_task, evaluate_tasks, table_of
from loriini.export.export import ExportSettings, export_model
from runs import byte_tokenizer, write_tokenizer
from tiny import tiny_model


@dataclass(frozen=True)
class Example:
    """A file's row, and the question that it becomes: its context or contexts, its answers, the right one."""

    task: str
    file: str
    row: dict[str, Any]
    contexts: list[str]
    answers: list[str]
    gold: Any


ROWS = Path(__file__).with_name("local_tasks.jsonl").read_text(encoding="utf-8").splitlines()
EXAMPLES = {example.task: example for example in (Example(**json.loads(row)) for row in ROWS)}
"""A question of every task, and of a file of each form for any task."""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


THREE = {"query": "Ice is", "choices": ["hot", "cold", "dry"], "gold": 0}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return byte_tokenizer()


@pytest.fixture(scope="module")
def model_of(
    tokenizer: PreTrainedTokenizerBase, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The folder of a tiny model that reads bytes."""

    def make(design: str, context: int = 1024, **sizes: Any) -> Path:
        sizes |= {"vocab_size": len(tokenizer), "eos_token_id": 256, "max_position_embeddings": context}
        model = tiny_model(design, num_experts=1 if design == "dense" else 4, **sizes)
        return export_model(model, tokenizer, ExportSettings("hf"), tmp_path_factory.mktemp(design) / "model")

    return make


def load(name: str, folder: Path, rows: Sequence[dict[str, Any]] = (), shots: int = 0) -> Any:
    """The harness's task of a name, over local files, with its requests built."""
    if rows:
        file = EXAMPLES[name].file if name in EXAMPLES else name
        write_rows(folder / f"{file}.jsonl", list(rows))
    (loaded,) = load_tasks({name: shots}, folder).values()
    (task,) = loaded.tasks["tasks"].values()
    task.set_fewshot_seed(1)
    task.build_all_requests()
    return task


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_local_row_is_asked_as_the_harness_asks(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    task = load(name, tmp_path, [example.row])
    (document,) = task.eval_docs
    asked = [instance.args for instance in task.instances]
    if example.answers:
        contexts = example.contexts * (len(example.answers) // len(example.contexts))
        assert asked == list(zip(contexts, example.answers, strict=True))
    else:
        assert [context for context, _ in asked] == example.contexts
    target = task.doc_to_target(document)
    if isinstance(example.gold, int) and isinstance(target, str):
        target = task.doc_to_choice(document).index(target)
    assert target == example.gold
    if name == "winogrande":
        assert task.doc_to_text(document) == example.row["gold"]


def test_every_task_has_an_example() -> None:
    ours = {path.stem for path in FILES.glob("[!_]*.yaml")}
    assert ours - EXAMPLES.keys() == {"wikitext", *FORMS}, "which other tests read"
    assert {name for tasks in GROUPS.values() for name in tasks} <= ours


def test_examples_come_from_their_own_file(tmp_path: Path) -> None:
    demos = [{"title": f"D{i}", "description": "d.", "label": i % 4 + 1} for i in range(4)]
    write_rows(tmp_path / "agnews_demos.jsonl", demos)
    row = {"title": "Q", "description": "q.", "label": 1}
    context = load("agnews", tmp_path, [row], shots=4).instances[0].args[0]
    assert context.endswith(" Q q.")
    labels = ["World", "Sports", "Business", "Sci/Tech"]
    assert all(f"D{i} d. {labels[i]} " in context for i in range(4))


def test_questions_without_a_file_of_examples_give_some_of_their_own(tmp_path: Path) -> None:
    task = load("yelp", tmp_path, [{"text": f"T{i}.", "label": i % 2} for i in range(10)], shots=5)
    assert [document["text"] for document in task.eval_docs] == [f"T{i}." for i in range(5, 10)]
    for instance in task.instances:
        *examples, question = [int(word[1]) for word in instance.args[0].split() if word[0] == "T"]
        assert sorted(examples) == [0, 1, 2, 3, 4]
        assert question >= 5


def mmlu_rows(subject: str, count: int) -> list[dict[str, Any]]:
    """Questions of a subject, all different."""
    row = {**EXAMPLES["mmlu"].row, "subject": subject}
    return [{**row, "question": f"{subject} {i}?", "answer": str(i % 4)} for i in range(count)]


def test_examples_of_mmlu_are_of_the_questions_subject(tmp_path: Path) -> None:
    subjects = ("anatomy", "virology")
    write_rows(tmp_path / "mmlu_dev.jsonl", [row for s in subjects for row in mmlu_rows(s, 3)])
    task = load("mmlu", tmp_path, [row for s in subjects for row in mmlu_rows(s, 2)], shots=2)
    for asked, subject in zip(task.instances, [s for s in subjects for _ in range(8)], strict=True):
        assert f"about {subject}.\n\n{subject} 0?" in asked.args[0]
        assert asked.args[0].count(f"{subject} ") == 3, "two examples and the question"
    with pytest.raises(InputError, match=r"mmlu_test.jsonl: question 1: 3 .*--num-fewshot"):
        load("mmlu", tmp_path, shots=4)


def test_names_and_groups_are_tasks_with_numbers_of_examples() -> None:
    assert requested(["piqa", "agnews"]) == {"piqa": None, "agnews": IN_CONTEXT}
    assert requested(["piqa", "router-free"], shots=3) == dict.fromkeys(("piqa", "mmlu", "arc_challenge"), 3)
    assert list(requested(["arc_easy", "lory"], shots=0))[:2] == ["arc_easy", "piqa"]
    with pytest.raises(InputError, match="arc_challenge with 0 and with 5 examples; give --num-fewshot"):
        requested(["lory", "router-free"])
    counts = {name: sorted(set(GROUPS[name].values())) for name in GROUPS}
    assert counts == {"lory": [0, 5, 16], "aoe": [0, 3], "router-free": [5]}
    assert [len(GROUPS[name]) for name in GROUPS] == [17, 10, 2]


class Shortest(LM):
    """Prefers the shortest answer; scores a character at -1. Writes a number, not after ####."""

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return [(-float(len(r.args[1].strip())), False) for r in requests]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return ["The answer is 2." for _ in requests]

    loglikelihood_rolling = generate_until


def test_results_are_the_mean_and_its_standard_error(tmp_path: Path) -> None:
    rows = [{"query": f"Question: {i}", "choices": ["a", "bbb"], "gold": int(i > 5)} for i in range(8)]
    write_rows(tmp_path / "arc_easy.jsonl", rows)
    write_rows(tmp_path / "arc_easy_demos.jsonl", rows[:3])
    (loaded,) = load_tasks({"arc_easy": 2}, tmp_path).values()
    result = evaluate_task(Shortest(), "arc_easy", loaded, limit=7)
    accuracy = 6 / 7
    error = math.sqrt(accuracy * (1 - accuracy) / 6)
    assert result["metrics"]["acc"] == pytest.approx({"value": accuracy, "stderr": error})
    assert result["metric"] == "acc_norm", "ties are the first choice's"
    assert {key: result[key] for key in ("value", "n", "shots")} == {"value": accuracy, "n": 7, "shots": 2}


def test_a_metric_of_several_filters_has_a_value_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of documents of the Hub."""
    rows = [{"question": f"Sum {i}?", "answer": f"So.\n#### {2 + i // 2}"} for i in range(3)]
    there = dict.fromkeys(("train", "validation", "test"), Dataset.from_list(rows))
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: there)
    (loaded,) = load_tasks({"gsm8k": 0}, None).values()
    result = evaluate_task(Shortest(), "gsm8k", loaded, by_question=True)
    assert result["metric"] == "exact_match,strict-match", "the harness's first"
    assert result["by_question"] == [0, 0, 0]
    assert {key: found["value"] for key, found in result["metrics"].items()} == {
        "exact_match,strict-match": 0,
        "exact_match,flexible-extract": pytest.approx(2 / 3),
    }


def text(length: int) -> str:
    return "".join(random.choices(string.ascii_lowercase + "  ", k=length)).strip() or "x"


def random_files(folder: Path) -> Path:
    """Files of eight rows for tasks of different kinds."""
    rows: dict[str, Callable[[int], dict[str, Any]]] = {
        "piqa": lambda i: {"query": f"Question: {text(9)}\n", "choices": [text(8), text(5)], "gold": i % 2},
        "winogrande": lambda i: {
            "context_options": [text(9), text(9)],
            "continuation": text(7),
            "gold": i % 2,
        },
        "nq_open": lambda i: {"question": text(12), "answer": [*string.ascii_lowercase]},
        "agnews_test": lambda i: {"title": text(5), "description": text(9), "label": i % 4 + 1},
        "jeopardy": lambda i: {"context": text(9), "continuation": text(3)},
        "wikitext": lambda i: {"page": " ".join(text(40) for _ in range(1 + i % 3))},
    }
    random.seed(0)
    for file, make in rows.items():
        write_rows(folder / f"{file}.jsonl", [make(i) for i in range(8)])
    return folder


def test_one_expert_scores_as_a_llama_of_its_weights_does_in_hf(
    model_of: Callable[..., Path], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    ours = LoriiniLM(str(model_of("dense")), device="cpu", batch_size=4)
    llama = export_model(ours.model, tokenizer, ExportSettings("llama"), tmp_path / "llama")
    hf = HFLM(str(llama), device="cpu", batch_size=4)
    kinds = {"piqa": 0, "winogrande": 1, "nq_open": 2, "agnews": 3, "wikitext": 0}
    loaded = load_tasks(kinds, random_files(tmp_path))
    settings = {"max_gen_toks": 24}
    loaded["nq_open"].tasks["tasks"]["nq_open"].set_config("generation_kwargs", settings, update=True)
    found, expected = (
        {key: evaluate_task(lm, key, task, limit=4) for key, task in loaded.items()} for lm in (ours, hf)
    )
    bits = [scores.pop("wikitext")["metrics"]["bits_per_byte"]["value"] for scores in (found, expected)]
    assert f"{bits[0]:.6f}" == f"{bits[1]:.6f}"
    assert found == expected
    assert sum(0 < result["value"] < 1 for result in found.values()) >= 2, "or the comparison says little"


def test_several_runs_make_one_table_and_nothing_else_is_printed(
    model_of: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [model_of("lory"), model_of("dense", context=64)]
    names = ("agnews", "jeopardy", "wikitext")
    results = evaluate_tasks(runs, TaskSettings(names, random_files(tmp_path), limit=3, num_fewshot=2))
    assert json.loads(json.dumps(results)) == results
    assert [result["run"] for result in results] == [str(run) for run in runs]
    for result in results:
        assert list(result["tasks"]) == list(names)
        for task in result["tasks"].values():
            assert {"metric", "value", "stderr", "n", "shots"} <= task.keys()
            assert (task["n"], task["shots"]) == (3, 2)
    later = results[1]["tasks"]
    assert [key for key in later if "difference" in later[key]] == ["agnews", "jeopardy"], "means"
    assert "truncated" not in results[0]["tasks"]["agnews"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not any(noise in captured.err for noise in ("%|", "bootstrapping", "kwargs")), "the harness's own"
    assert f"agnews: {later['agnews']['truncated']} inputs exceed the context of 64" in captured.err
    head, rows = table_of(results)
    assert head == ["task", "metric", "shots", "n", *map(str, runs)]
    first, change = results[0]["tasks"]["agnews"], later["agnews"]["difference"]["change"]
    assert change == pytest.approx(later["agnews"]["value"] - first["value"])
    assert f"({change:+.4f}, " in rows[0][5]
    assert rows[0][:5] == ["agnews", "acc", "2", "3", f"{first['value']:.4f} ± {first['stderr']:.4f}"]


def test_a_run_is_evaluated_in_its_precision_and_routed_as_asked(
    model_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = model_of("lory"), TaskSettings(("jeopardy",), random_files(tmp_path))
    values = []
    for precision in ("fp32", "bf16"):
        of_run = SimpleNamespace(evaluated_in=precision)
        monkeypatch.setattr(running, "training_of", lambda _, of_run=of_run: of_run)
        (result,) = evaluate_tasks([run], settings)
        values.append(math.log(result["tasks"]["jeopardy"]["metrics"]["perplexity"]["value"]))
    assert values[0] != values[1]
    assert values[0] == pytest.approx(values[1], rel=0.05)
    for design, how in (("mixtral", {"router_free": RouterFree("hidden")}), ("label", {"label": "code"})):
        run_of = model_of(design, **({"label_names": ["code", "prose"]} if design == "label" else {}))
        (result,) = evaluate_tasks([run_of], replace(settings, **how))
        assert {key: result[key] for key in how} == {key: str(value) for key, value in how.items()}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("anything", {"gold": 3}, "right answer is 3, of 3"),
        ("anything", {"choices": None}, "task's form"),
        ("winogrande", {"gold": 2}, "right answer is 2, of 2"),
        ("agnews", {"label": 0}, "right answer is"),
        ("qnli", {"label": "unknown"}, "task's form"),
        ("mmlu", {"answer": "4"}, "right answer is 4, of 4"),
        ("race_h", {"answer": "E"}, "task's form"),
        ("hellaswag", {"label": 4}, "right answer is 4, of 4"),
    ],
)
def test_a_question_that_no_choice_answers_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    row = THREE if name == "anything" else EXAMPLES[name].row
    with pytest.raises(InputError, match=f"task '{name}': question 2: .*{message}"):
        load(name, tmp_path, [row, {**row, **change}])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{", r"piqa.jsonl:2: not valid JSON"),
        ("1", r"piqa.jsonl:2: not a JSON object"),
        ('{"query": "Question: a", "gold": 0}', "task 'piqa': question 2"),
        ('{"query": "Question: a", "choices": 1, "gold": 0}', r"piqa.jsonl: its rows"),
    ],
)
def test_a_malformed_row_is_refused(second: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "piqa.jsonl").write_text(json.dumps(EXAMPLES["piqa"].row) + "\n" + second + "\n")
    with pytest.raises(InputError, match=message):
        load("piqa", tmp_path)


@pytest.mark.parametrize(
    ("name", "shots", "message"),
    [
        ("piqa", 3, r"piqa.jsonl: 2 examples .*3 needed; use --num-fewshot"),
        ("piqa", 1, r"piqa.jsonl: no question"),
        ("race_m", 0, r"race.jsonl: no row"),
        ("odd", 0, r"odd.jsonl: its rows do not have a form"),
        ("qqp", 0, r"no file for task 'qqp'; .*qqp.jsonl, qqp_test.jsonl"),
        ("piqaa", 0, r"named 'piqaa'; the nearest is piqa"),
        ("lori", 0, r"named 'lori'; the nearest is lory"),
    ],
)
def test_files_that_do_not_do_are_refused(name: str, shots: int, message: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "piqa.jsonl", [EXAMPLES["piqa"].row] * 4)
    write_rows(tmp_path / "race.jsonl", [EXAMPLES["race_h"].row])
    write_rows(tmp_path / "odd.jsonl", [{"goal": "a"}])
    with pytest.raises(InputError, match=message):
        load(name, tmp_path, shots=shots)
    with pytest.raises(InputError, match="--tasks-data"):
        load(name, tmp_path / "nowhere")


def test_of_several_files_the_test_set_is_read(tmp_path: Path) -> None:
    for name in ("sst2_dev", "sst2_val", "sst2_validation", "sst2_test", "sst2"):
        write_rows(tmp_path / f"{name}.jsonl", [{"sentence": name, "label": 1}])
        assert load("sst2", tmp_path).eval_docs[0]["sentence"] == name


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No 'squad'"), "needs a module .*'squad'"),
        (ConnectionError("down"), "the network"),
    ],
)
def test_what_the_harness_cannot_load_is_told(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(InputError, match=f"task 'piqa': .*{message}"):
        load_tasks(requested(["piqa"]), None)


def test_wrong_numbers_are_refused() -> None:
    for option, value in (("limit", 0), ("num_fewshot", -1)):
        with pytest.raises(InputError, match=f"--{option.replace('_', '-')}"):
            TaskSettings(("piqa",), **{option: value})


def test_the_missing_harness_and_a_folder_that_is_no_run_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no trained model"):
        evaluate_tasks([tmp_path], TaskSettings(("piqa",), tmp_path))
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'loriini\[tasks\]'"):
        evaluate_tasks([tmp_path], TaskSettings(("piqa",), tmp_path))


@pytest.mark.parametrize(
    ("design", "settings", "message"),
    [
        ("sequence-top2", {"routing": "segment"}, "sequence-top2: routing=segment: "),
        ("label", {}, "label: this model routes by label; give one"),
        ("dense", {"router_free": RouterFree("hidden")}, "dense: --router-free hidden:2:softmax_selected: "),
    ],
)
def test_a_later_run_is_refused_before_any_model_is_loaded(
    design: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for name in ("mixtral" if "router_free" in settings else "lory", design):
        model = tiny_model(name, **({"label_names": ["code", "prose"]} if name == "label" else {}))
        model.config.save_pretrained(write_tokenizer(tmp_path / name))  # no weights, which cannot be loaded
    runs = [path for path in tmp_path.iterdir() if path.name != design]
    with pytest.raises(InputError, match=message):
        evaluate_tasks([*runs, tmp_path / design], TaskSettings(("piqa",), tmp_path, **settings))
