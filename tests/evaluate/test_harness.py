"""Answers of the harness's LM beside one call of the model each, and beside the harness's own `hf` model."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from covering import grid
from loriini.common.errors import InputError
from loriini.export.export import ExportSettings, export_model
from runs import EOS, VOCABULARY
from tiny import tiny_model

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from loriini.evaluate.harness import LoriiniLM

CONTEXT = 24
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
QUIET = {"disable_tqdm": True}


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def lm_of(tokenizer: PreTrainedTokenizerBase) -> Callable[..., LoriiniLM]:
    """An LM of a tiny model of a design."""

    def make(design: str = "lory", **settings: Any) -> LoriiniLM:
        labels = {"label_names": ["prose", "code"]} if design == "label" else {}
        sizes = {"vocab_size": VOCABULARY, "eos_token_id": EOS, "max_position_embeddings": CONTEXT}
        torch.manual_seed(1)
        model = tiny_model(design, num_experts=1 if design == "dense" else 4, **sizes, **labels)
        label = {"label": "code"} if design == "label" else {}
        return LoriiniLM(model, tokenizer=tokenizer, **{"batch_size": 4, **label, **settings})

    return make


def words(ids: Tensor) -> str:
    return " ".join(f"w{i}" for i in ids.tolist())


def random_words(length: int) -> str:
    return words(torch.randint(VOCABULARY - 1, (length,)))


def instances(kind: str, arguments: list[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=a, idx=0) for a in arguments]


def questions() -> list[tuple[str, str]]:
    """Contexts of many lengths, some too long and one empty, each with two answers that start alike."""
    asked = []
    for length in (1, 3, 4, 5, 9, 14, 30, 0):
        context, answer = random_words(length), random_words(3)
        asked += [(context, f" {answer} w1"), (context, f" {answer} w2 w3")]
    return asked


def token_ids(lm: LoriiniLM, context: str, answer: str) -> tuple[Tensor, int]:
    """The ids (1, L) of both in the model's context, and how many of them are the answer's."""
    ids = lm.tok_encode(context) or [EOS]
    answered = lm.tok_encode(answer)
    return torch.tensor([(ids + answered)[-CONTEXT - 1 :]]), len(answered)


def answer_by_hand(lm: LoriiniLM, context: str, answer: str) -> tuple[float, bool]:
    """The answer's log-likelihood and whether it is greedy, by a call for this question alone."""
    ids, length = token_ids(lm, context, answer)
    prompt = ids.shape[1] - length
    routing: dict[str, Any] = {"routing_labels": torch.tensor([1])}
    if lm.routing != "training":
        routing |= {"prompt_lengths": torch.tensor([prompt]), "inference_routing": lm.routing}
    log_probs = lm.model(ids[:, :-1], **routing).logits[0, prompt - 1 :].log_softmax(-1, dtype=torch.float32)
    target = ids[0, prompt:]
    return log_probs.gather(1, target[:, None]).sum().item(), bool((log_probs.argmax(1) == target).all())


@grid(
    design=["lory", "smear", "ec-segment", "mixtral", "label", "dense"],
    routing=["prompt", "segment", "training"],
)
def test_answers_in_batches_are_those_of_one_call_each(
    design: str, routing: str, lm_of: Callable[..., LoriiniLM]
) -> None:
    if design == "smear" and routing == "segment":
        with pytest.raises(InputError, match="whole sequences; use 'prompt'"):
            lm_of(design, routing=routing)
        return
    lm, asked = lm_of(design, routing=routing), questions()
    found = lm.loglikelihood(instances("loglikelihood", asked), **QUIET)
    expected = [answer_by_hand(lm, *question) for question in asked]
    close([value for value, _ in found], [value for value, _ in expected])
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert lm.truncated == 2, "the two questions after the context of 30 tokens"


def test_answers_are_computed_in_the_precision_asked_for(lm_of: Callable[..., LoriiniLM]) -> None:
    lm, question = lm_of(mixed_precision_dtype="bfloat16"), (random_words(9), " w1 w2")
    ((found, _),) = lm.loglikelihood(instances("loglikelihood", [question]), **QUIET)
    exact, _ = answer_by_hand(lm, *question)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, _ = answer_by_hand(lm, *question)
    assert found == pytest.approx(expected, rel=1e-5), "log-probabilities and their sum are float32"
    assert abs(found - exact) > 2 * abs(found - expected)


def test_of_an_answer_longer_than_the_context_the_last_tokens_are_scored(
    lm_of: Callable[..., LoriiniLM],
) -> None:
    lm, answer = lm_of(), random_words(CONTEXT + 5)
    found = lm.loglikelihood(instances("loglikelihood", [("w1", f" {answer}")]), **QUIET)
    before, *scored = answer.split()[-CONTEXT - 1 :]
    close(found[0][0], answer_by_hand(lm, before, " ".join(scored))[0])
    assert lm.truncated == 1


def rolling_by_hand(model: PreTrainedModel, ids: list[int], **routing: Any) -> list[Tensor]:
    """Log-probabilities of all tokens, window by window; each window's first token is its context."""
    windows = []
    for start in range(0, len(ids) - 1, CONTEXT):
        window = torch.tensor([ids[start : start + CONTEXT + 1]])
        log_probs = model(window[:, :-1], **routing).logits[0].log_softmax(-1)
        windows.append(log_probs.gather(1, window[0, 1:, None])[:, 0])
    return windows


@pytest.mark.parametrize(
    ("design", "routing", "call"),
    [
        ("lory", "prompt", {"prompt_lengths": torch.tensor([1]), "inference_routing": "segment"}),
        ("lory", "training", {}),
        ("smear", "prompt", {"prompt_lengths": torch.tensor([1]), "inference_routing": "prompt"}),
        ("mixtral", "prompt", {}),
        ("dense", "prompt", {}),
    ],
)
def test_rolling_texts_are_routed_by_segments(
    design: str, routing: str, call: dict[str, Any], lm_of: Callable[..., LoriiniLM]
) -> None:
    lm = lm_of(design, routing=routing)
    texts = [random_words(CONTEXT * 2), random_words(7)]
    expected = [rolling_by_hand(lm.model, [EOS, *lm.tok_encode(text)], **call) for text in texts]
    found = lm.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,) for text in texts]), **QUIET)
    close(found, [sum(w.sum().item() for w in windows) for windows in expected])


@pytest.mark.parametrize("routing", ["prompt", "segment", "training"])
def test_generation_in_batches_is_that_of_one_call_each(
    routing: str, lm_of: Callable[..., LoriiniLM]
) -> None:
    lm = lm_of(routing=routing)
    contexts = [random_words(length) for length in (3, 9, 5)]
    wanted = instances("generate_until", [(c, {"until": ["w999"], "max_gen_toks": 6}) for c in contexts])
    found = lm.generate_until(wanted, **QUIET)
    for text, context in zip(found, contexts, strict=True):
        ids = torch.tensor([lm.tok_encode(context)])
        mode = "prompt" if routing == "prompt" else "segment"
        out = lm.model.generate(
            ids, max_new_tokens=6, do_sample=False, pad_token_id=EOS, inference_routing=mode
        )
        assert text == lm.tok_decode(out[0, ids.shape[1] :])


def test_prompts_that_leave_no_room_to_write_are_cut_and_counted(lm_of: Callable[..., LoriiniLM]) -> None:
    lm = lm_of()
    wanted = [(random_words(length), {"until": ["w999"]}) for length in (CONTEXT, 3)]
    assert all(lm.generate_until(instances("generate_until", wanted), **QUIET))
    assert lm.truncated == 1


@pytest.mark.parametrize("asked", [CONTEXT, 3 * CONTEXT])
def test_more_new_tokens_than_the_context_are_cut_to_half_of_it(
    asked: int, lm_of: Callable[..., LoriiniLM]
) -> None:
    lm, prompts = lm_of(), [random_words(length) for length in (5, 3)]

    def written(settings: dict[str, Any]) -> list[str]:
        wanted = [(prompt, {"until": ["w999"], **settings}) for prompt in prompts]
        return lm.generate_until(instances("generate_until", wanted), **QUIET)

    expected = written({"max_gen_toks": CONTEXT // 2})
    for name in ("max_gen_toks", "max_new_tokens"):
        assert written({name: asked}) == expected
    assert lm.truncated == 0


def test_the_harness_finds_it_by_name_and_loads_a_folder(
    lm_of: Callable[..., LoriiniLM], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    lm, asked = lm_of(), instances("loglikelihood", questions())
    export_model(lm.model, tokenizer, ExportSettings("hf"), tmp_path / "run" / "model")
    expected = lm.loglikelihood(asked, **QUIET)
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        named = get_model("loriini").create_from_arg_string(f"pretrained={folder},device=cpu,batch_size=4")
        assert named.loglikelihood(asked, **QUIET) == expected


@pytest.mark.parametrize(
    ("design", "settings", "message"),
    [
        ("lory", {"routing": "promt"}, "routing promt"),
        ("label", {"label": None}, "--label"),
        ("label", {"label": "poems"}, "'poems'.* prose, code"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(
    design: str, settings: dict[str, Any], message: str, lm_of: Callable[..., LoriiniLM]
) -> None:
    with pytest.raises(InputError, match=message):
        lm_of(design, **settings)


def test_another_model_is_refused(
    lm_of: Callable[..., LoriiniLM], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    llama = export_model(lm_of("dense").model, tokenizer, ExportSettings("llama"), tmp_path / "llama")
    with pytest.raises(InputError, match="not a Loriini model; use --model hf"):
        LoriiniLM(str(llama), device="cpu")
