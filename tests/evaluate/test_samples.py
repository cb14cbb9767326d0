"""Text that a model writes: reproducible, routed as asked, and only what it was asked for."""

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from loriini import LoriiniForCausalLM
from loriini.errors import InputError
from loriini.evaluate.samples import continue_text
from runs import EOS, VOCABULARY, write_tokenizer
from tiny import tiny_model

PROMPT = "w3 w1 w4 w1 w5"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def model_of(design: str = "lory") -> LoriiniForCausalLM:
    return tiny_model(design, vocab_size=VOCABULARY, eos_token_id=EOS, bos_token_id=EOS)


def test_greedy_text_is_what_the_model_finds_likeliest(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of("mixtral")
    ids = tokenizer(PROMPT, return_tensors="pt", add_special_tokens=False)["input_ids"]
    expected = tokenizer.decode(model(ids).logits[0, -1].argmax())
    assert continue_text(model, tokenizer, PROMPT, max_new_tokens=1, greedy=True) == expected


def test_a_seed_decides_what_is_sampled(tokenizer: PreTrainedTokenizerBase) -> None:
    written = [continue_text(model_of(), tokenizer, PROMPT, 12, seed=seed) for seed in (0, 1)]
    assert written[0] != written[1]


def test_the_same_seed_samples_the_same_text(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of()
    assert len({continue_text(model, tokenizer, PROMPT, 12, seed=7) for _ in range(3)}) == 1


def test_no_more_is_written_than_asked_for(tokenizer: PreTrainedTokenizerBase) -> None:
    text = continue_text(model_of(), tokenizer, PROMPT, max_new_tokens=5)
    assert len(text.split()) <= 5
    assert PROMPT not in text


@pytest.mark.parametrize("routing", ["prompt", "segment"])
def test_an_empty_prompt_is_the_end_of_text_alone(tokenizer: PreTrainedTokenizerBase, routing: str) -> None:
    model = model_of()
    empty = continue_text(model, tokenizer, "", 6, greedy=True, routing=routing)
    assert empty == continue_text(model, tokenizer, "<eos>", 6, greedy=True, routing=routing)


def test_routing_is_as_asked(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of()
    prompt, segment = (
        continue_text(model, tokenizer, PROMPT, 24, greedy=True, routing=routing)
        for routing in ("prompt", "segment")
    )
    assert prompt != segment


def test_the_label_says_which_expert_writes(tokenizer: PreTrainedTokenizerBase) -> None:
    model = model_of("label")
    model.config.label_names = ["code", "prose"]
    code, prose = (
        continue_text(model, tokenizer, PROMPT, 12, greedy=True, label=label) for label in ("code", "prose")
    )
    assert code != prose
    with pytest.raises(InputError, match="routes by label; give one; the model's labels are: code, prose"):
        continue_text(model, tokenizer, PROMPT, 12)


def test_what_cannot_be_written_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(InputError, match="--max-new-tokens 0: give at least 1"):
        continue_text(model_of(), tokenizer, PROMPT, 0)
    with pytest.raises(InputError, match="routes whole sequences; use --routing prompt"):
        continue_text(model_of("smear"), tokenizer, PROMPT, 4, routing="segment")
