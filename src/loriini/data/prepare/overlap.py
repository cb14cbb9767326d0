"""Held-out texts among the documents that a corpus trains on.

Axes: N documents of a corpus, B documents of a block.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loriini.common.errors import InputError, first_few
from loriini.common.progress import warn
from loriini.data.prepare.prepare import Corpus, open_corpus
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.prepare.tokenized.tokens import Tokens
from loriini.data.read.document import Document

BLOCK = 1 << 20
"""Documents whose sizes are read at once."""


def trained_texts(corpus: Corpus, texts: Sequence[str]) -> list[int]:
    """Indices of the texts that are whole documents of the corpus's instances.

    Documents of the same size, in tokens and in bytes, are compared token by token; of the others only the
    sizes are read. An imported corpus knows the bytes of what its tokens decode to, where a tokenizer that
    normalizes text has changed it. Near-duplicates are not found.
    """
    tokens = corpus.tokens
    encode = CachedTokenizer(corpus.tokenizer / "tokenizer.json", tokens.tokens.dtype)
    eos = np.array(tokens.eos_token_id, tokens.tokens.dtype).tobytes()
    encoded = [ids + eos for ids in encode(list(texts))]
    lengths = np.array([len(ids) // len(eos) for ids in encoded], np.int64)
    spelled = [list(texts)]
    if "documents" not in corpus.manifest["stages"]:
        as_lists = [np.frombuffer(ids, tokens.tokens.dtype).tolist() for ids in encoded]
        spelled.append(encode.library.decode_batch(as_lists, skip_special_tokens=True))
    sizes = [np.array([len(text.encode()) for text in of], np.int64) for of in spelled]
    indices = defaultdict[bytes, list[int]](list)
    for index, ids in enumerate(encoded):
        indices[ids].append(index)
    alike = _of_size(tokens, np.concatenate([_both_sizes(lengths, of) for of in sizes]))
    found = {i: same for i in alike if (same := indices.get(tokens.document(i).tobytes()))}
    if not found:
        return []
    documents_P = corpus.instances.pieces.documents_P
    trained = documents_P[np.isin(documents_P, list(found))].tolist()  # without a sorted copy of all pieces
    return sorted({index for document in trained for index in found[document]})


def warn_of_overlap(corpora: Iterable[Path], documents: Sequence[Document]) -> None:
    """Warn of documents that are also in one of these corpora; a corpus that cannot be opened is skipped."""
    for folder in corpora:
        try:
            corpus = open_corpus(folder)
        except InputError:  # moved or removed since the training
            continue
        if found := trained_texts(corpus, [document.text for document in documents]):
            names = first_few([documents[i].id for i in found])
            warn(
                f"{len(found):,} of {len(documents):,} held-out documents are also in the corpus {folder} "
                f"({names}); leave them out, their perplexity is not that of new text"
            )


def _of_size(tokens: Tokens, wanted: NDArray[np.int64]) -> Iterator[int]:
    """The numbers of the documents that have one of these sizes."""
    for start in range(0, len(tokens), BLOCK):
        lengths_B = np.diff(tokens.offsets[start : start + BLOCK + 1])
        sizes_B = _both_sizes(lengths_B, tokens.bytes[start : start + BLOCK])
        yield from (start + np.flatnonzero(np.isin(sizes_B, wanted))).tolist()


def _both_sizes(lengths: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens and bytes of documents in one number each."""
    return lengths << 32 | sizes
