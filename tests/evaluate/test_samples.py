"""Text that a model writes: reproducible, routed as asked, and only what it was asked for."""

import copy
from typing import Any, Literal

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, TextStreamer

from loriini import LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.evaluate.samples import check_room, continue_text
from loriini.evaluate.settings import Generation
from loriini.model.generate.prompts import opening_ids
from runs import EOS, VOCABULARY
from tiny import tiny_model

PROMPT = "w3 w1 w4 w1 w5"


def model_of(design: str = "lory") -> LoriiniForCausalLM:
    return tiny_model(design, vocab_size=VOCABULARY, eos_token_id=EOS, bos_token_id=EOS)


def test_greedy_text_is_what_the_model_finds_likeliest(tokenizer: PreTrainedTokenizerBase) -> None:
    """After a BOS where the tokenizer adds one."""
    model, adding = model_of("mixtral"), copy.deepcopy(tokenizer)
    adding.bos_token = "w9"
    bos = adding.bos_token_id
    assert opening_ids(adding) == []
    adding.backend_tokenizer.post_processor = TemplateProcessing(single="w9 $A", special_tokens=[("w9", bos)])
    for each, opening in ((tokenizer, []), (adding, [bos])):
        assert opening_ids(each) == opening
        ids = torch.tensor([[*opening, *tokenizer(PROMPT, add_special_tokens=False)["input_ids"]]])
        expected = tokenizer.decode(model(ids).logits[0, -1].argmax())
        assert continue_text(model, each, PROMPT, Generation(1, greedy=True)) == expected


def test_a_seed_decides_what_is_sampled(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of()
    first, again, other = (
        continue_text(model, tokenizer, PROMPT, Generation(12, seed=seed)) for seed in (7, 7, 1)
    )
    assert first == again != other


def test_neither_the_mode_of_the_model_nor_the_random_state_is_changed(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    model = model_of().train()
    state = torch.get_rng_state()
    continue_text(model, tokenizer, PROMPT, Generation(3))
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("routing", ["prompt", "segment"])
def test_an_empty_prompt_is_the_end_of_text_alone(
    tokenizer: PreTrainedTokenizerBase, routing: Literal["prompt", "segment"]
) -> None:
    model = model_of()
    empty = continue_text(model, tokenizer, "", Generation(6, greedy=True, routing=routing))
    assert empty == continue_text(model, tokenizer, "<eos>", Generation(6, greedy=True, routing=routing))


def test_the_label_says_which_expert_writes(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of("label")
    model.config.label_names = ["code", "prose"]
    code, prose = (
        continue_text(model, tokenizer, PROMPT, Generation(12, greedy=True, label=label))
        for label in ("code", "prose")
    )
    assert code != prose
    with pytest.raises(InputError, match=r"give one \(--label\); the model's labels are: code, prose"):
        continue_text(model, tokenizer, PROMPT, Generation(12))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens"),
        ({"temperature": 0.0}, "--temperature .*--greedy"),
        ({"temperature": float("nan")}, "--temperature"),
        ({"top_k": -1}, "--top-k"),
        ({"top_p": 0.0}, "--top-p"),
        ({"routing": "segments"}, "--routing"),
    ],
)
def test_a_value_out_of_range_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Generation(**fields)


def test_sampling_follows_its_settings(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of()
    greedy = continue_text(model, tokenizer, PROMPT, Generation(12, greedy=True))
    for certain in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        assert continue_text(model, tokenizer, PROMPT, Generation(12, **certain)) == greedy
    assert continue_text(model, tokenizer, PROMPT, Generation(12, temperature=9.0, top_k=0)) != greedy


@pytest.mark.parametrize("prompt", [PROMPT, ""])
def test_a_streamer_prints_the_text(
    prompt: str, tokenizer: PreTrainedTokenizerBase, capsys: pytest.CaptureFixture[str]
) -> None:
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    text = continue_text(model_of(), tokenizer, prompt, Generation(12), streamer)
    assert capsys.readouterr().out == f"{text}\n"
    assert len(text.split()) > 1


def test_a_prompt_must_leave_room(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of()
    model.config.max_position_embeddings = 5
    with pytest.raises(InputError, match="the prompt has 5 tokens, the context 5; shorten it"):
        check_room(model.config, tokenizer, PROMPT, Generation(1))
    assert check_room(model.config, tokenizer, "w1 w2", Generation(64)) == 3
    model.config.block = "gpt2"  # with learned positions
    check_room(model.config, tokenizer, "w1 w2", Generation(3))
    for prompt, room in (("w1 w2", 3), ("", 4)):
        with pytest.raises(InputError, match=f"--max-new-tokens 64: the context has room for {room}"):
            check_room(model.config, tokenizer, prompt, Generation(64))
