"""Several models on the same tokens: what they skip, what they differ by, and when they do not compare."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast

from loriini.common.checks import option_of
from loriini.common.errors import InputError
from loriini.common.hardware import find_device
from loriini.data.read.read import read_documents
from loriini.evaluate.heldout import documents_of, tokenize_by_domain
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.perplexity import evaluate
from loriini.evaluate.runs import ENOUGH, evaluate_runs
from loriini.evaluate.settings import EvaluationSettings, RouterFree
from loriini.model.weights.loading import load_config, load_model
from loriini.model.weights.run_record import training_of
from runs import EOS, VOCABULARY, write_tokenizer
from tiny import SEGMENT, tiny_model

SIZES = {"vocab_size": VOCABULARY, "eos_token_id": EOS, "max_position_embeddings": 32}


@pytest.fixture
def documents(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path / "held-out.jsonl"
    with open(path, "w") as file:
        for domain, low in (("low", 0), ("high", 30)):
            text = " ".join(f"w{i}" for i in rng.integers(low, low + 30, 200))
            file.write(json.dumps({"text": text, "domain": domain}) + "\n")
    return str(path)


def saved(folder: Path, design: str, **changes: Any) -> Path:
    experts = 1 if design == "dense" else 4
    tiny_model(design, **{**SIZES, "num_experts": experts, **changes}).save_pretrained(folder)
    return write_tokenizer(folder)


def test_several_runs_count_the_same_tokens(tmp_path: Path, documents: str) -> None:
    runs = [saved(tmp_path / name, name) for name in ("dense", "lory", "mixtral")]
    results = evaluate_runs(runs, EvaluationSettings((documents,), device="cpu"))
    assert [result["run"] for result in results] == list(map(str, runs))
    assert [result["skip"] for result in results] == [SEGMENT] * 3
    assert results[0]["tokens"] == results[1]["tokens"] == results[2]["tokens"]
    assert "difference" not in results[0]
    losses = []
    for run, result in zip(runs, results, strict=True):
        model, tokenizer = load_model(run, "cpu")
        heldout = tokenize_by_domain(read_documents([documents]), tokenizer, 32)
        expected = evaluate(model, heldout, SEGMENT)
        losses.append(expected.pop("instance_losses"))
        tokens = expected.pop("instance_tokens")
        added = ("run", "difference", "seconds", "contexts")
        assert {key: value for key, value in result.items() if key not in added} == expected
    for result, of_run in zip(results[1:], losses[1:], strict=True):
        over_all = differences_by_domain(losses[0], of_run, documents_of(heldout), tokens)["all"]
        assert result["difference"]["all"] == over_all.to_dict()
        assert result["difference"].keys() == {"low", "high", "all"}


def test_one_of_several_domains_may_not_be_called_all(tmp_path: Path, documents: str) -> None:
    run = saved(tmp_path / "dense", "dense")
    every = tmp_path / "all.jsonl"
    every.write_text(json.dumps({"text": "w1 w2 w3 " * 40}) + "\n")
    with pytest.raises(InputError, match=r"a domain is called 'all', .* give it another by NAME=PATH"):
        evaluate_runs([run], EvaluationSettings((documents, str(every)), device="cpu"))
    (alone,) = evaluate_runs([run], EvaluationSettings((str(every),), device="cpu"))
    assert alone["perplexity"].keys() == {"all"}


def test_one_value_decides_what_is_skipped(tmp_path: Path, documents: str) -> None:
    lory, dense = saved(tmp_path / "lory", "lory"), saved(tmp_path / "dense", "dense")
    (alone,) = evaluate_runs([dense], EvaluationSettings((documents,)))
    assert (alone["skip"], "run" in alone) == (0, False)
    for result in evaluate_runs([lory, dense], EvaluationSettings((documents,), skip=7, length=16)):
        assert result["skip"] == 7
        assert set(result["tokens"].values()) == {200 // 16 * (16 - 7) + 200 % 16 - 7}


def test_a_loss_that_counts_segment_1_is_warned_of(
    tmp_path: Path, documents: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [saved(tmp_path / name, name) for name in ("dense", "lory")]
    for skip in (SEGMENT - 1, SEGMENT):
        capsys.readouterr()
        evaluate_runs(runs, EvaluationSettings((documents,), skip=skip))
        assert capsys.readouterr().err.count("counts tokens of segment 1") == (skip < SEGMENT)
    evaluate_runs(runs, EvaluationSettings((documents,), skip=1, routing="prompt"))
    assert "counts tokens of segment 1" not in capsys.readouterr().err


def test_intervals_of_few_documents_are_warned_of(
    tmp_path: Path, documents: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [saved(tmp_path / name, name) for name in ("dense", "lory")]
    evaluate_runs(runs[:1], EvaluationSettings((documents,)))
    assert "few held-out documents" not in capsys.readouterr().err
    rows = [json.dumps({"text": "w1 w2 " * 16, "domain": "many"}) for _ in range(ENOUGH)]
    (tmp_path / "many.jsonl").write_text("\n".join(rows) + "\n")
    evaluate_runs(runs, EvaluationSettings((documents, str(tmp_path / "many.jsonl"))))
    assert "says little: high (1), low (1); give at least 10" in " ".join(capsys.readouterr().err.split())


def test_the_shortest_context_is_that_of_all(tmp_path: Path, documents: str) -> None:
    runs = [saved(tmp_path / str(n), "dense", max_position_embeddings=n) for n in (32, 24)]
    for result in evaluate_runs(runs, EvaluationSettings((documents,), contexts="strung")):
        assert result["tokens"] == dict.fromkeys(("high", "low"), 201 // 25 * 24)
    short = saved(tmp_path / "gpt2", "dense", block="gpt2", max_position_embeddings=24)
    with pytest.raises(InputError, match=r"--length 32: .*gpt2 has learned positions up to 24"):
        evaluate_runs([runs[0], short], EvaluationSettings((documents,), length=32))


def test_models_of_different_tokenizers_do_not_compare(tmp_path: Path, documents: str) -> None:
    runs = [saved(tmp_path / name, "dense") for name in ("a", "b")]
    order = [*range(1, EOS), 0]
    vocabulary = {f"w{i}": number for i, number in enumerate(order)} | {"<eos>": EOS}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(runs[1])
    refusal = r"b: its tokenizer is not that of .*a, .*compare bits_per_byte_counted"
    with pytest.raises(InputError, match=refusal):
        evaluate_runs(runs, EvaluationSettings((documents,)))


def test_wrong_settings_are_refused() -> None:
    for name, value in {"length": 0, "skip": -1, "on_error": "go on"}.items():
        with pytest.raises(InputError, match=option_of(name)):
            EvaluationSettings((), **{name: value})
    with pytest.raises(InputError, match="--device gpu"):
        EvaluationSettings((), device="gpu")


def test_without_routers_it_is_reported_how(tmp_path: Path, documents: str) -> None:
    heads = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MixtralConfig(**SIZES, **heads, intermediate_size=24, num_local_experts=5, initializer_range=0.3)
    MixtralForCausalLM(config).save_pretrained(write_tokenizer(tmp_path / "mixtral"))
    assert load_config(tmp_path / "mixtral").num_experts == 5
    (routed,) = evaluate_runs([tmp_path / "mixtral"], EvaluationSettings((documents,)))
    assert routed["seconds"] > 0
    assert "router_free" not in routed
    perplexities = set()
    for text, how in {"hidden:2:uniform": "hidden:2:uniform", "gate": "gate:2:softmax_selected"}.items():
        settings = EvaluationSettings((documents,), router_free=RouterFree.parse(text))
        (free,) = evaluate_runs([tmp_path / "mixtral"], settings)
        assert free["router_free"] == how
        perplexities.add(free["perplexity"]["low"])
    assert len(perplexities | {routed["perplexity"]["low"]}) == 3
    settings = EvaluationSettings((documents,), router_free=RouterFree.parse("hidden:2:even"))
    with pytest.raises(InputError, match=r"--router-free hidden:2:even: routing.gates is 'even'"):
        evaluate_runs([tmp_path / "mixtral"], settings)


def test_a_model_is_placed_on_the_device_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = saved(tmp_path / "lory", "lory")
    assert load_model(run, "cpu")[0].device == find_device("cpu") == torch.device("cpu")
    assert load_model(run)[0].device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "cuda:99", "meta", ""):
        with pytest.raises(InputError, match=f"--device {name}"):
            load_model(run, name)
    monkeypatch.setattr("loriini.common.hardware.pick_device", lambda: torch.device("meta"))
    assert load_model(run)[0].device.type == "meta"


def test_the_precision_is_that_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    saved(run / "model", "lory")
    assert training_of(run).evaluated_in == training_of(run / "model").evaluated_in == "auto"
    (run / "run.json").write_text('{"precision": "bf16"}')
    assert training_of(run).evaluated_in == "auto"  # in bfloat16 where the hardware has it
    (run / "run.json").write_text('{"precision": "fp32"}')
    assert training_of(run).evaluated_in == training_of(run / "model").evaluated_in == "fp32"
    assert training_of(saved(run / "other", "lory")).evaluated_in == "auto"


def test_what_is_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run: given twice; give it once"):
        evaluate_runs([tmp_path / "run", tmp_path / "run"], EvaluationSettings(("a.jsonl",)))
    other = tmp_path / ".." / tmp_path.name / "run"
    with pytest.raises(InputError, match=f"{re.escape(str(other))}: given twice, also as .*; give it once"):
        evaluate_runs([tmp_path / "run", other], EvaluationSettings(("a.jsonl",)))
    with pytest.raises(InputError, match="it must be several values"):
        EvaluationSettings("held.jsonl")  # type: ignore[arg-type]
