"""Downstream tasks: local rows as the harness's questions, results as JSON and tables, and wrong input."""

import json
import math
import random
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_tasks import EXAMPLES, mmlu_rows, write_all, write_rows
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from loriini.common.errors import InputError
from loriini.evaluate.settings import RouterFree
from loriini.evaluate.tasks import TaskSettings, evaluate_tasks, loading, running, table_of
from loriini.evaluate.tasks.catalog import GROUPS, TASKS, Request, requested
from loriini.evaluate.tasks.local import read_splits
from loriini.export.export import ExportSettings, export_model
from tiny import SEGMENT, tiny_model

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")

from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM

from loriini.evaluate.harness import LoriiniLM
from loriini.evaluate.tasks.running import evaluate_task

SHARED = Path(__file__).parents[3] / "shared" / "eval"
ABSENT = {"amazon", "fever", "qqp", "wikitext"}
"""Tasks without a file in `SHARED`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of one row for every task in the catalogue."""
    return write_all(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """A token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate([*alphabet, "<eos>"])}
    byte_level = Tokenizer(models.BPE(vocabulary, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token="<eos>")


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


def load(name: str, folder: Path, shots: int = 0) -> Any:
    """The harness's task of a name, over local files, with its requests built."""
    (loaded,) = loading.load_tasks({name: Request(name, shots)}, folder).values()
    (task,) = loaded.tasks["tasks"].values()
    task.set_fewshot_seed(1)
    task.build_all_requests()
    return task


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_local_row_is_asked_as_the_harness_asks(name: str, folder: Path) -> None:
    task, example = load(name, folder), EXAMPLES[name]
    (document,) = task.eval_docs
    asked = [instance.args for instance in task.instances]
    if example.answers:
        contexts = example.contexts * (len(example.answers) // len(example.contexts))
        assert asked == list(zip(contexts, example.answers, strict=True))
    else:
        assert [context for context, _ in asked] == list(example.contexts)
    target = task.doc_to_target(document)
    assert (int(target) if name == "hellaswag" else target) == example.gold
    if name == "winogrande":
        assert task.doc_to_text(document) == example.row["gold"]


def test_siqa_with_two_options_is_said_to_be_easier_than_siqa(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("siqa", folder)
    assert "siqa.jsonl: fewer options than the 3 of siqa; do not compare" in capsys.readouterr().err
    answers = {"answerA": "to hide", "answerB": "for fun", "answerC": "to win"}
    row = {"context": "Al ran.", "question": "Why?", **answers, "label": "2"}
    write_rows(tmp_path / "siqa.jsonl", [row])
    task = load("siqa", tmp_path)
    assert [answer for _, answer in (i.args for i in task.instances)] == [f" {a}" for a in answers.values()]
    assert task.doc_to_target(task.eval_docs[0]) == 1
    assert capsys.readouterr().err.count("compare") == 0


def test_every_task_of_the_catalogue_is_tried() -> None:
    assert set(TASKS) - set(EXAMPLES) == {"wikitext"}, "which the rolling test reads"


def test_examples_come_from_their_own_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "agnews_test.jsonl", [{"title": "Q", "description": "q.", "label": 1}])
    demos = [{"title": f"D{i}", "description": "d.", "label": i % 4 + 1} for i in range(4)]
    write_rows(tmp_path / "agnews_demos.jsonl", demos)
    context = load("agnews", tmp_path, shots=4).instances[0].args[0]
    *shown, question = context.split(" D")[1:-1], context[-4:]
    assert question == "Q q."
    labels = ["World", "Sports", "Business", "Sci/Tech"]
    assert all(f"D{i} d. {labels[i]} " in context for i in range(4)), shown


def test_questions_without_a_file_of_examples_give_some_of_their_own(tmp_path: Path) -> None:
    write_rows(tmp_path / "yelp_polarity_test.jsonl", [{"text": f"T{i}.", "label": i % 2} for i in range(10)])
    task = load("yelp", tmp_path, shots=5)
    assert [document["text"] for document in task.eval_docs] == [f"T{i}." for i in range(5, 10)]
    for instance in task.instances:
        *examples, question = [int(word[1]) for word in instance.args[0].split() if word[0] == "T"]
        assert sorted(examples) == [0, 1, 2, 3, 4]
        assert question >= 5


def test_examples_of_mmlu_are_of_the_questions_subject(tmp_path: Path) -> None:
    subjects = ("abstract_algebra", "virology")
    write_rows(tmp_path / "mmlu_test.jsonl", [row for s in subjects for row in mmlu_rows(s, 2)])
    write_rows(tmp_path / "mmlu_dev.jsonl", [row for s in subjects for row in mmlu_rows(s, 3)])
    (loaded,) = loading.load_tasks({"mmlu": Request("mmlu", 2)}, tmp_path).values()
    for subject, task in zip(subjects, loaded.tasks["tasks"].values(), strict=True):
        task.build_all_requests()
        asked = {instance.args[0] for instance in task.instances}
        assert len(asked) == 2
        assert all(context.count(f"{subject} ") == 3 for context in asked), "two examples and the question"


def test_groups_are_those_of_the_papers() -> None:
    shots = {group: {r.task: r.shots for r in requested([group]).values()} for group in GROUPS}
    assert len(shots["lory"]) == 17
    assert {name for name, k in shots["lory"].items() if k == 5} == {"nq_open", "triviaqa"}
    assert sum(k == 16 for k in shots["lory"].values()) == 6
    assert {name for name, k in shots["aoe"].items() if k == 3} == {"mnli", "mrpc", "qnli", "qqp", "sst2"}
    assert sum(k == 0 for k in shots["aoe"].values()) == 5
    assert shots["router-free"] == {"mmlu": 5, "arc_challenge": 5}


class Shortest(LM):
    """Prefers the shortest answer; scores a character at -1."""

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return [(-float(len(r.args[1].strip())), False) for r in requests]

    loglikelihood_rolling = generate_until = loglikelihood


def test_results_are_the_mean_and_its_standard_error(tmp_path: Path) -> None:
    rows = [{"query": f"Question: {i}", "choices": ["a", "bbb"], "gold": int(i > 5)} for i in range(8)]
    write_rows(tmp_path / "arc_easy.jsonl", rows)
    write_rows(tmp_path / "arc_easy_demos.jsonl", rows[:3])
    (loaded,) = loading.load_tasks({"key": Request("arc_easy", 2)}, tmp_path).values()
    result = evaluate_task(Shortest(), "key", loaded, limit=7)
    accuracy = 6 / 7
    error = math.sqrt(accuracy * (1 - accuracy) / 6)
    assert result["metrics"]["acc"] == pytest.approx({"value": accuracy, "stderr": error})
    assert result["metric"] == "acc_norm", "ties are the first choice's"
    assert {key: result[key] for key in ("value", "n", "shots")} == {"value": accuracy, "n": 7, "shots": 2}


class Two(LM):
    """Answers 2, in a sentence and not after ####."""

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return ["The answer is 2." for _ in requests]

    loglikelihood = loglikelihood_rolling = generate_until


def test_a_metric_of_several_filters_has_a_value_for_each(tmp_path: Path) -> None:
    answers = ["So it is.\n#### 2", "So it is.\n#### 2", "So it is.\n#### 3"]
    write_rows(
        tmp_path / "gsm8k.jsonl", [{"question": f"Sum {i}?", "answer": a} for i, a in enumerate(answers)]
    )
    (loaded,) = loading.load_tasks({"key": Request("gsm8k", 0)}, tmp_path).values()
    result = evaluate_task(Two(), "key", loaded)
    assert result["metric"] == "exact_match,strict-match", "the harness's first"
    assert {key: found["value"] for key, found in result["metrics"].items()} == {
        "exact_match,strict-match": 0,
        "exact_match,flexible-extract": pytest.approx(2 / 3),
    }


def text(length: int) -> str:
    return "".join(random.choices(string.ascii_lowercase + "  ", k=length)).strip() or "x"


def random_files(folder: Path) -> Path:
    """Files of eight rows for seven tasks of different kinds."""
    subjects = ("abstract_algebra", "virology")
    rows: dict[str, Callable[[int], dict[str, Any]]] = {
        "piqa": lambda i: {"query": f"Question: {text(9)}\n", "choices": [text(8), text(5)], "gold": i % 2},
        "hellaswag": lambda i: {
            **EXAMPLES["hellaswag"].row,
            "endings": [text(6) for _ in "1234"],
            "label": i % 4,
        },
        "winogrande": lambda i: {
            "context_options": [text(9), text(9)],
            "continuation": text(7),
            "gold": i % 2,
        },
        "nq_open": lambda i: {"question": text(12), "answer": [*string.ascii_lowercase]},
        "agnews_test": lambda i: {"title": text(5), "description": text(9), "label": i % 4 + 1},
        "mmlu_test": lambda i: {
            **mmlu_rows(subjects[i % 2], 1)[0],
            "question": text(9),
            "answer": str(i % 4),
        },
        "mmlu_dev": lambda i: {**mmlu_rows(subjects[i % 2], 1)[0], "question": text(9), "answer": str(i % 4)},
        "wikitext": lambda i: {"page": text(1500 if i == 0 else 40)},
        "jeopardy": lambda i: {"context": text(6), "continuation": text(4)},
    }
    for file, row in rows.items():
        write_rows(folder / f"{file}.jsonl", [row(i) for i in range(8)])
    return folder


KINDS = ("piqa", "hellaswag", "winogrande@1", "nq_open@2", "agnews@3", "mmlu@2", "wikitext")


def test_one_expert_scores_as_a_llama_of_its_weights_does_in_hf(
    model_of: Callable[..., Path], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    ours = LoriiniLM(str(model_of("dense")), device="cpu", batch_size=4)
    hf = HFLM(
        str(export_model(ours.model, tokenizer, ExportSettings("llama"), tmp_path / "llama")),
        device="cpu",
        batch_size=4,
    )
    loaded = loading.load_tasks(requested(KINDS), random_files(tmp_path))
    loaded["nq_open"].tasks["tasks"]["nq_open"].set_config(
        "generation_kwargs", {"max_gen_toks": 24}, update=True
    )
    found, expected = (
        {key: evaluate_task(lm, key, task, limit=4) for key, task in loaded.items()} for lm in (ours, hf)
    )
    bits = [scores.pop("wikitext")["metrics"]["bits_per_byte"]["value"] for scores in (found, expected)]
    assert f"{bits[0]:.6f}" == f"{bits[1]:.6f}"
    assert found == expected
    values = [result["value"] for result in found.values()]
    assert sum(0 < value < 1 for value in values) >= 3, "or the comparison says little"


def test_several_runs_make_one_table_and_nothing_else_is_printed(
    model_of: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [model_of("lory"), model_of("dense", context=64)]
    settings = TaskSettings(
        ("agnews", "jeopardy", "wikitext"), random_files(tmp_path), limit=3, num_fewshot=2
    )
    results = evaluate_tasks(runs, settings)
    assert json.loads(json.dumps(results)) == results
    assert [result["run"] for result in results] == [str(run) for run in runs]
    for result in results:
        assert list(result["tasks"]) == ["agnews", "jeopardy", "wikitext"]
        for task in result["tasks"].values():
            assert {"metric", "value", "stderr", "n", "shots"} <= task.keys()
            assert (task["n"], task["shots"]) == (3, 2)
    assert results[0]["tasks"]["wikitext"].keys() >= {"perplexity", "perplexity_all"}
    assert [result["tasks"]["wikitext"]["skip"] for result in results] == [SEGMENT] * 2
    assert all(result["seconds"] > 0 for result in results)
    later = results[1]["tasks"]
    assert [key for key in later if "difference" in later[key]] == ["agnews", "jeopardy"], "means"
    assert "truncated" not in results[0]["tasks"]["agnews"]
    cut = results[1]["tasks"]["agnews"]["truncated"]
    assert "truncated" not in results[1]["tasks"]["jeopardy"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not any(noise in captured.err for noise in ("%|", "bootstrapping")), "the harness's own"
    assert f"agnews: {cut} inputs exceed the context of 64 tokens" in captured.err
    head, rows = table_of(results)
    assert head == ["task", "metric", "shots", "n", *map(str, runs)]
    first = results[0]["tasks"]["agnews"]
    assert later["agnews"]["difference"]["change"] == pytest.approx(later["agnews"]["value"] - first["value"])
    assert f"({later['agnews']['difference']['change']:+.4f}, " in rows[0][5]
    assert rows[0][:5] == ["agnews", "acc", "2", "3", f"{first['value']:.4f} ± {first['stderr']:.4f}"]
    assert [len(row) for row in rows] == [6, 6, 6]


def test_a_run_is_evaluated_in_its_precision_and_routed_as_asked(
    model_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = model_of("lory"), TaskSettings(("jeopardy",), random_files(tmp_path))
    values = []
    for precision in ("fp32", "bf16"):
        monkeypatch.setattr(running, "run_precision", lambda _, precision=precision: precision)
        (result,) = evaluate_tasks([run], settings)
        values.append(math.log(result["tasks"]["jeopardy"]["metrics"]["perplexity"]["value"]))
    assert values[0] != values[1]
    assert values[0] == pytest.approx(values[1], rel=0.05)
    for design, how in (("mixtral", {"router_free": RouterFree("hidden")}), ("label", {"label": "code"})):
        run_of = model_of(design, **({"label_names": ["code", "prose"]} if design == "label" else {}))
        (result,) = evaluate_tasks([run_of], replace(settings, **how))
        assert {key: result[key] for key in how} == {key: str(value) for key, value in how.items()}
    with pytest.raises(InputError, match="--router-free nowhere"):
        evaluate_tasks([run], replace(settings, router_free=RouterFree("nowhere")))


@pytest.mark.parametrize("name", sorted(TASKS.keys() - ABSENT))
def test_files_that_were_found_in_public_are_in_the_tasks_form(name: str) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there")
    task = TASKS[name]
    splits = read_splits(Request(name, 5), task, SHARED)
    least = {"mmlu": 900, "mrpc": 400, "mrpc_icl": 400, "sst2": 870, "sst2_icl": 870}
    assert len(splits["test"]) >= least.get(name, 436)
    rows, examples = ({json.dumps(q.document) for q in splits[name]} for name in ("test", "examples"))
    assert rows
    assert not rows & examples


def test_the_hubs_documents_are_read_by_the_same_tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a data set of the Hub holds, a local file may hold too: rows with the task's own fields."""
    asked = []

    def from_hub(path: str, name: str | None = None, **_: Any) -> Any:
        asked.append((path, name))
        row = {"goal": "Open a jar", "sol1": "Turn it", "sol2": "Eat it", "label": 0}
        from datasets import Dataset

        return dict.fromkeys(("train", "validation"), Dataset.from_list([row]))

    monkeypatch.setattr("datasets.load_dataset", from_hub)
    (loaded,) = loading.load_tasks(requested(["piqa"]), None).values()
    (task,) = loaded.tasks["tasks"].values()
    task.build_all_requests()
    assert asked == [("baber/piqa", None)]
    assert [instance.args for instance in task.instances] == [
        (EXAMPLES["piqa"].contexts[0], answer) for answer in EXAMPLES["piqa"].answers
    ]
