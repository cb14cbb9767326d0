"""What is measured of a model: questions."""

from dataclasses import replace
from statistics import fmean

import pytest
import torch

from loriini import LoriiniForCausalLM
from loriini.evaluate.heldout import HeldOut
from loriini.papers.reproduce import measures
from loriini.papers.reproduce.measures import LoadedModel, languages, questions
from loriini.papers.reproduce.texts import LANGUAGES
from tiny import SEGMENT, VOCABULARY, tiny_config


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    monkeypatch.setattr(measures, "ANSWER", SEGMENT // 2)
    ids = torch.randint(VOCABULARY, (6, 3 * SEGMENT))
    model = LoriiniForCausalLM(tiny_config("lory")).eval()
    return LoadedModel(model, "training", "fp32", {"birds": HeldOut(ids, 4.0)}, lambda kind: {}, SEGMENT)


def test_questions_differ_by_how_they_are_routed(setting: LoadedModel) -> None:
    """They are longer than a segment, within which routing by prompt is routing by segment."""
    found = [questions(replace(setting, routing=how)) for how in ("training", "prompt", "segment")]
    unless_given, prompt, segment = (of["log_likelihood"]["birds"] for of in found)
    assert unless_given == prompt != segment


def test_a_question_is_answered_by_the_likeliest_passage(setting: LoadedModel) -> None:
    """Each of six questions has the answers of the three instances before it as wrong ones."""
    ids = setting.heldout["birds"].instances[:, : 2 * SEGMENT]
    context = SEGMENT + SEGMENT // 2
    right = 0
    for i in range(6):
        scores = []
        for shift in range(4):
            asked = torch.cat([ids[i, :context], ids[(i - shift) % 6, context:]])[None]
            logits = setting.model(
                asked[:, :-1], prompt_lengths=torch.tensor([context]), inference_routing="prompt"
            ).logits
            losses = torch.nn.functional.cross_entropy(logits[0], asked[0, 1:], reduction="none")
            scores.append(-losses[context - 1 :].mean().item())
        right += scores[0] == max(scores)
    found = questions(setting)
    assert found["accuracy"]["birds"] == pytest.approx(right / 6)
    assert sum(found["right"]["birds"]) == right
    likelihood = pytest.approx(found["log_likelihood"]["birds"], rel=1e-5)
    assert fmean(found["log_likelihoods"]["birds"]) == likelihood


def test_topics_are_not_measured_as_languages(setting: LoadedModel) -> None:
    """The same text would be claimed to agree with experts as topics and not to as languages."""
    assert not languages(replace(setting, of_kind=lambda kind: setting.heldout))
    of_kind = {LANGUAGES: {"multi_de": setting.heldout["birds"]}}
    assert languages(replace(setting, of_kind=lambda kind: of_kind.get(kind, setting.heldout)))["layers"]
