"""Held-out text by domain: instances, their bytes and documents, and what is refused."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from loriini.analyze.command import sequences_by_domain
from loriini.common.errors import InputError
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.read.document import Document
from loriini.evaluate.heldout import documents_of, tokenize_by_domain
from loriini.evaluate.perplexity import evaluate
from runs import EOS, prepared
from tiny import tiny_model


def documents(*texts: tuple[str, str]) -> list[Document]:
    return [Document(f"d{i}", text, domain) for i, (domain, text) in enumerate(texts)]


def words(numbers: Iterable[int]) -> str:
    return " ".join(f"w{i}" for i in numbers)


def test_a_document_without_a_label_is_named(tokenizer: PreTrainedTokenizerBase) -> None:
    texts = documents(("code", "w1 w2"), ("poems", "w3 w4"))
    with pytest.raises(InputError, match=r"document d1: its domain 'poems' is not a label .*: code, prose"):
        tokenize_by_domain(texts, tokenizer, 9, label_names=["code", "prose"])


def test_documents_are_concatenated_by_domain_and_cut_into_instances(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    texts = documents(("b", words(range(5))), ("a", words(range(9))), ("b", words(range(10, 16))))
    heldout = tokenize_by_domain(texts, tokenizer, length=5)
    assert list(heldout) == ["a", "b"]
    assert heldout["a"].ids.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert heldout["b"].ids.tolist() == [[0, 1, 2, 3, 4, EOS], [10, 11, 12, 13, 14, 15]]
    assert heldout["b"].documents == (0, 1)
    assert heldout["b"].bytes_per_token == pytest.approx(
        (len(words(range(5))) + len(words(range(10, 16)))) / 12
    )


def test_bytes_are_those_of_the_text_that_is_scored(tmp_path: Path) -> None:
    """A long document that begins unlike its end, of which the first instances are scored."""
    tokenizer = AutoTokenizer.from_pretrained(prepared(tmp_path / "corpus").folder / "tokenizer")
    beginning, end = "€ 3 times " * 40, "the other document " * 400
    found = tokenize_by_domain(documents(("a", "3"), ("a", beginning + end)), tokenizer, 15, most=4)["a"]
    decoded = tokenizer.decode(found.ids.flatten()).replace("<|endoftext|>", "")
    assert decoded.startswith("3" + beginning[:20])
    assert len(decoded) < len(beginning)
    assert found.bytes_per_token == pytest.approx(len(decoded.encode()) / found.ids.numel())


def test_held_out_text_has_the_tokens_of_training_text(tmp_path: Path) -> None:
    """Also where a text spells the token that ends a document."""
    text = "3 times <|endoftext|> 3"
    folder = prepared(tmp_path / "corpus").folder / "tokenizer"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token == "<|endoftext|>"
    (encoded,) = CachedTokenizer(folder / "tokenizer.json", np.uint16)([text])
    ids = np.frombuffer(encoded, np.uint16).tolist()
    heldout = tokenize_by_domain(documents(("a", text)), tokenizer, length=64)
    assert heldout["a"].ids.tolist() == [[*ids, tokenizer.eos_token_id]]
    (routed,) = sequences_by_domain(documents(("a", text)), tokenizer, 64)["a"]
    assert routed.tolist() == ids


def test_no_more_than_so_many_instances_are_read(tokenizer: PreTrainedTokenizerBase) -> None:
    long = words(range(45))
    texts = documents(*[("a", words(range(9)))] * 10, ("b", words(range(9))), ("c", long), ("c", long))
    heldout = tokenize_by_domain(texts, tokenizer, length=9, most=3)
    assert {domain: len(text.ids) for domain, text in heldout.items()} == {"a": 3, "b": 1, "c": 3}
    assert documents_of(heldout) == {"a": (0, 1, 2), "b": (0,), "c": (0, 0, 0)}
    (cut,) = tokenize_by_domain(documents(*[("a", words(range(14)))] * 2), tokenizer, length=9).values()
    assert cut.documents == (0, 0, 1)


def test_text_shorter_than_an_instance_is_all_there_is(tokenizer: PreTrainedTokenizerBase) -> None:
    heldout = tokenize_by_domain(documents(("a", "w1 w2")), tokenizer, length=9)
    assert heldout["a"].ids.tolist() == [[1, 2, EOS]]
    assert evaluate(tiny_model("mixtral", vocab_size=64), heldout)["tokens"] == {"a": 2}


def test_a_domain_without_tokens_is_named() -> None:
    no_unknown = Tokenizer(BPE({"a": 0, "<eos>": 1}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=no_unknown, eos_token="<eos>")
    texts = documents(("en", "a" * 9), ("ja", "日本"))
    for read in (tokenize_by_domain, sequences_by_domain):
        with pytest.raises(InputError, match="domain 'ja': the tokenizer makes no token of its text; leave"):
            read(texts, tokenizer, 4)


def test_no_documents_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(InputError, match="no held-out document to evaluate on"):
        tokenize_by_domain([], tokenizer, 9)
