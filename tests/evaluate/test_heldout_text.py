"""Held-out text by domain: instances, their bytes and documents, and what is refused."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from loriini.common.errors import InputError
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.read.document import Document
from loriini.evaluate.heldout import documents_of, tokenize_by_domain
from loriini.evaluate.perplexity import evaluate
from runs import EOS, prepared
from tiny import tiny_model


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a prepared corpus's tokenizer."""
    return prepared(tmp_path_factory.mktemp("corpus") / "corpus").folder / "tokenizer"


def documents(*texts: tuple[str, str]) -> list[Document]:
    return [Document(f"d{i}", text, domain) for i, (domain, text) in enumerate(texts)]


def words(numbers: Iterable[int]) -> str:
    return " ".join(f"w{i}" for i in numbers)


def test_documents_are_concatenated_by_domain_and_cut_into_instances(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    texts = documents(("b", words(range(5))), ("a", words(range(9))), ("b", words(range(10, 16))))
    heldout = tokenize_by_domain(texts, tokenizer, length=5, contexts="strung")
    assert list(heldout) == ["a", "b"]
    assert torch.stack(heldout["a"].instances).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert torch.stack(heldout["b"].instances).tolist() == [[0, 1, 2, 3, 4, EOS], [10, 11, 12, 13, 14, 15]]
    assert heldout["b"].documents == (0, 1)
    assert heldout["b"].bytes_per_token == pytest.approx(
        (len(words(range(5))) + len(words(range(10, 16)))) / 12
    )


def test_bytes_are_those_of_the_text_that_is_scored(byte_level: Path) -> None:
    """A long document that begins unlike its end, of which the first instances are scored."""
    tokenizer = AutoTokenizer.from_pretrained(byte_level)
    beginning, end = "€ 3 times " * 40, "the other document " * 400
    texts = documents(("a", "3"), ("a", beginning + end))
    found = tokenize_by_domain(texts, tokenizer, 15, most=4, contexts="strung")["a"]
    decoded = tokenizer.decode(torch.cat(found.instances)).replace("<|endoftext|>", "")
    assert decoded.startswith("3" + beginning[:20])
    assert len(decoded) < len(beginning)
    assert found.bytes_per_token == pytest.approx(len(decoded.encode()) / (4 * 16))


def test_held_out_text_has_the_tokens_of_training_text(byte_level: Path) -> None:
    """Also where a text spells the token that ends a document."""
    text = "3 times <|endoftext|> 3"
    tokenizer = AutoTokenizer.from_pretrained(byte_level)
    assert tokenizer.eos_token == "<|endoftext|>"
    (encoded,) = CachedTokenizer(byte_level / "tokenizer.json", np.uint16)([text])
    ids = np.frombuffer(encoded, np.uint16).tolist()
    (instance,) = tokenize_by_domain(documents(("a", text)), tokenizer, length=64)["a"].instances
    assert instance.tolist() == [*ids, tokenizer.eos_token_id]


def test_no_more_than_so_many_instances_are_read(tokenizer: PreTrainedTokenizerBase) -> None:
    long = words(range(45))
    texts = documents(*[("a", words(range(9)))] * 10, ("b", words(range(9))), ("c", long), ("c", long))
    heldout = tokenize_by_domain(texts, tokenizer, length=9, most=3)
    assert {domain: len(text.instances) for domain, text in heldout.items()} == {"a": 3, "b": 1, "c": 3}
    assert documents_of(heldout) == {"a": (0, 1, 2), "b": (0,), "c": (0, 0, 0)}
    two = documents(*[("a", words(range(14)))] * 2)
    for contexts, expected in (("documents", (0, 1, 0, 1)), ("strung", (0, 0, 1))):
        assert tokenize_by_domain(two, tokenizer, 9, contexts=contexts)["a"].documents == expected


def test_text_shorter_than_an_instance_is_all_there_is(tokenizer: PreTrainedTokenizerBase) -> None:
    heldout = tokenize_by_domain(documents(("a", "w1 w2")), tokenizer, length=9, contexts="strung")
    assert [ids.tolist() for ids in heldout["a"].instances] == [[1, 2, EOS]]
    assert evaluate(tiny_model("mixtral", vocab_size=64), heldout)["tokens"] == {"a": 2}


def test_a_domain_without_tokens_is_named() -> None:
    no_unknown = Tokenizer(BPE({"a": 0, "<eos>": 1}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=no_unknown, eos_token="<eos>")
    texts = documents(("en", "a" * 9), ("ja", "日本"))
    with pytest.raises(InputError, match="domain 'ja': the tokenizer makes no token of its text; leave"):
        tokenize_by_domain(texts, tokenizer, 4)
