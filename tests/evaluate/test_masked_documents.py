"""Evaluation with document masking gives each document the losses that it has alone."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.evaluate.heldout import HeldOut, documents_of, tokenize_by_domain
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.perplexity import evaluate, score_tokens
from loriini.evaluate.runs import evaluate_runs
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.weights.loading import load_model
from runs import write_tokenizer
from tiny import SEGMENT, tiny_model

LENGTHS = (3, SEGMENT + 4, 1, 2 * SEGMENT, SEGMENT + 1)
"""Tokens of the documents, without the EOS at their ends."""
TEXTS = [" ".join(f"w{i + n}" for i in range(n)) for n in LENGTHS]


@pytest.fixture
def heldout(tmp_path: Path) -> dict[str, HeldOut]:
    documents = [Document(str(i), text, "prose") for i, text in enumerate(TEXTS)]
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path))
    return tokenize_by_domain(documents, tokenizer, 2 * SEGMENT)


def pieces(text: HeldOut) -> list[tuple[int, torch.Tensor]]:
    """The instance of each piece of a document, and its tokens with the one after it."""
    found = []
    for instance, ids in enumerate(text.ids):
        starts = (text.positions[instance, :-1] == 0).nonzero().flatten().tolist()
        for start, stop in zip(starts, [*starts[1:], len(ids) - 1], strict=True):
            found.append((instance, ids[start : stop + 1]))
    return found


@pytest.mark.parametrize("design", ["lory", "mixtral", "smear", "segment-then-token"])
def test_a_document_has_the_losses_that_it_has_alone(heldout: dict[str, HeldOut], design: str) -> None:
    text, model, skip = heldout["prose"], tiny_model(design, vocab_size=64), 2
    losses = [[] for _ in text.ids]
    everything = []
    for instance, ids in pieces(text):
        alone = score_tokens(model, ids[None], "fp32").loss[0].tolist()
        losses[instance] += alone[skip:]
        everything += alone
    found = evaluate(
        model,
        heldout,
        skip,
        batch_size=2,
        precision="fp32",
        document_mask=True,
        shown=False,
    )
    counted = [loss for of_instance in losses for loss in of_instance]
    assert found["tokens"]["prose"] == len(counted) == sum(found["instance_tokens"]["prose"])
    assert math.log(found["perplexity"]["prose"]) == pytest.approx(sum(counted) / len(counted), rel=1e-5)
    assert math.log(found["perplexity_all"]["prose"]) == pytest.approx(
        sum(everything) / len(everything), rel=1e-5
    )
    means = [sum(own) / len(own) for own in losses]
    assert found["instance_losses"]["prose"] == pytest.approx(means, rel=1e-5)
    assert found["document_mask"]


def test_positions_begin_again_where_documents_and_instances_do(heldout: dict[str, HeldOut]) -> None:
    document_of = [i for i, n in enumerate(LENGTHS) for _ in range(n + 1)]
    text, row = heldout["prose"], 2 * SEGMENT + 1
    for instance, found in enumerate(text.positions.tolist()):
        inside = document_of[instance * row : (instance + 1) * row]
        assert found == [i - inside.index(document) for i, document in enumerate(inside)]
    assert text.documents[1] == document_of[row]


def test_documents_that_are_too_short_and_prompts_are_refused(heldout: dict[str, HeldOut]) -> None:
    model = tiny_model("lory", vocab_size=64)
    with pytest.raises(InputError, match="--skip"):
        evaluate(model, heldout, 2 * SEGMENT - 1, document_mask=True)
    with pytest.raises(InputError, match="have no prompt"):
        evaluate(model, heldout, SEGMENT, routing="prompt", document_mask=True)


def test_several_runs_are_compared_by_the_predictions_that_count(
    tmp_path: Path, heldout: dict[str, HeldOut], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, experts in (("dense", 1), ("lory", 4)):
        folder = write_tokenizer(tmp_path / name / "model")
        tiny_model(name, num_experts=experts, vocab_size=64, eos_token_id=2).save_pretrained(folder)
        (tmp_path / name / "run.json").write_text(json.dumps({"document_mask": True, "length": 2 * SEGMENT}))
        runs.append(tmp_path / name)
    text = tmp_path / "prose.jsonl"
    text.write_text("".join(json.dumps({"text": t, "domain": "prose"}) + "\n" for t in TEXTS))
    settings = EvaluationSettings((str(text),), device="cpu", skip=2, document_mask=True)
    dense, lory = evaluate_runs(runs, settings)
    assert "document_mask" not in capsys.readouterr().err
    assert dense["tokens"] == lory["tokens"]
    assert "instance_tokens" not in lory
    of_runs = [evaluate(load_model(run, "cpu")[0], heldout, 2, document_mask=True) for run in runs]
    losses, tokens = [found["instance_losses"] for found in of_runs], of_runs[0]["instance_tokens"]
    expected = differences_by_domain(*losses, documents_of(heldout), tokens)["all"]
    assert lory["difference"]["all"] == expected.to_dict()
    evaluate_runs(runs[:1], replace(settings, document_mask=False))
    assert "--document-mask keeps them apart" in capsys.readouterr().err
