"""Documents are scored in contexts of their own, each as it is alone, however they are batched."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini import LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.evaluate.heldout import HeldOut, documents_of, tokenize_by_domain
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.perplexity import evaluate, score_tokens
from loriini.evaluate.runs import evaluate_runs
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.generate.routing_inputs import routing_inputs
from loriini.model.weights.loading import load_model
from runs import EOS, write_tokenizer
from tiny import EVERY, SEGMENT, tiny_model

LENGTHS = (3, SEGMENT + 4, 1, 0, 5 * SEGMENT, SEGMENT + 1, 2 * SEGMENT)
"""Tokens of the documents, without the EOS at their ends."""
CONTEXT = 2 * SEGMENT + 1
TEXTS = [" ".join(f"w{i + n}" for i in range(n)) for n in LENGTHS]


@pytest.fixture
def heldout(tokenizer: PreTrainedTokenizerBase) -> dict[str, HeldOut]:
    documents = [Document(str(i), text, "prose") for i, text in enumerate(TEXTS)]
    return tokenize_by_domain(documents, tokenizer, CONTEXT)


def alone(model: LoriiniForCausalLM, ids: Tensor, number: int, prompt: int | None) -> list[float]:
    """The naive twin: the losses of one instance as a batch of its own."""
    inputs: dict[str, Any] = routing_inputs(model, "prose", 1, number)
    if prompt is not None:
        lengths = torch.tensor([min(prompt, len(ids) - 1)])
        inputs |= {"prompt_lengths": lengths, "inference_routing": "prompt"}
    return score_tokens(model, ids[None], "fp32", **inputs).loss[0].tolist()


def mean(losses: list[float]) -> float:
    return sum(losses) / len(losses) if losses else math.nan


@pytest.mark.parametrize("routing", ["training", "prompt"])
@pytest.mark.parametrize("design", EVERY)
def test_padding_changes_no_number(heldout: dict[str, HeldOut], design: str, routing: Any) -> None:
    labels = {"label_names": ["code", "prose"]} if design == "label" else {}
    text, model, skip = heldout["prose"], tiny_model(design, vocab_size=64, **labels), 2
    prompt = skip if routing == "prompt" else None
    losses = [alone(model, ids, number, prompt) for number, ids in enumerate(text.instances)]
    counted = [of_instance[skip:] for of_instance in losses]
    found = evaluate(model, heldout, skip, batch_size=3, precision="fp32", routing=routing, shown=False)
    assert found["instance_tokens"]["prose"] == [*map(len, counted)]
    assert found["tokens"]["prose"] == sum(map(len, counted))
    expected = pytest.approx([*map(mean, counted)], rel=1e-5, nan_ok=True)
    assert found["instance_losses"]["prose"] == expected
    for measure, parts in (("perplexity", counted), ("perplexity_all", losses)):
        assert math.log(found[measure]["prose"]) == pytest.approx(mean([*chain(*parts)]), rel=1e-5)


def test_every_token_but_the_first_of_a_document_is_predicted_once(heldout: dict[str, HeldOut]) -> None:
    text = heldout["prose"]
    lengths = [len(ids) for ids in text.instances]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) == CONTEXT + 1
    assert len(text.instances) == 6 + 2  # one document is empty, one has three windows
    for number, (n, words) in enumerate(zip(LENGTHS, TEXTS, strict=True)):
        here = [i for i, document in enumerate(text.documents) if document == number]
        windows = [text.instances[i].tolist() for i in here]
        ids = [int(word[1:]) for word in words.split()] + [EOS]
        assert [*chain(*(window[1:] for window in windows))] == ids[1:]
        assert [window[0] for window in windows] == ids[:n:CONTEXT]
    assert text.bytes_per_token == pytest.approx(sum(map(len, TEXTS)) / sum(n + 1 for n in LENGTHS))


def test_documents_that_are_too_short_are_counted(heldout: dict[str, HeldOut]) -> None:
    model = tiny_model("lory", vocab_size=64)
    found = evaluate(model, heldout, shown=False)
    assert found["skip"] == SEGMENT
    assert [heldout["prose"].too_short(skip) for skip in (SEGMENT, 0)] == [2, 0]
    with pytest.raises(InputError, match=r"--skip, .*--contexts strung"):
        evaluate(model, heldout, CONTEXT)


def test_several_runs_are_compared_by_the_predictions_that_count(
    tmp_path: Path, heldout: dict[str, HeldOut], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, experts in (("dense", 1), ("lory", 4)):
        folder = write_tokenizer(tmp_path / name / "model")
        tiny_model(name, num_experts=experts, vocab_size=64, eos_token_id=EOS).save_pretrained(folder)
        (tmp_path / name / "run.json").write_text(json.dumps({"document_mask": True, "length": CONTEXT}))
        runs.append(tmp_path / name)
    text = tmp_path / "prose.jsonl"
    text.write_text("".join(json.dumps({"text": t, "domain": "prose"}) + "\n" for t in TEXTS if t))
    settings = EvaluationSettings((str(text),), device="cpu")
    dense, lory = evaluate_runs(runs, settings)
    said = " ".join(capsys.readouterr().err.split())
    assert "only perplexity_all counts: prose (2)" in said
    assert "document_mask" not in said
    assert dense["tokens"] == lory["tokens"]
    assert dense["contexts"] == lory["contexts"] == "documents"
    assert "instance_tokens" not in lory
    of_runs = [evaluate(load_model(run, "cpu")[0], heldout, SEGMENT) for run in runs]
    losses, tokens = [found["instance_losses"] for found in of_runs], of_runs[0]["instance_tokens"]
    expected = differences_by_domain(*losses, documents_of(heldout), tokens)["all"]
    assert lory["difference"]["all"] == expected.to_dict()
    (strung,) = evaluate_runs(runs[:1], replace(settings, contexts="strung"))
    said = capsys.readouterr().err
    assert strung["contexts"] == "strung"
    assert "perplexity_all" not in said
    assert "--contexts documents keeps them apart" in said
