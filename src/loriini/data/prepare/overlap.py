"""Held-out texts among the documents that a corpus trains on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from loriini.common.errors import InputError, first_few
from loriini.common.grouping import group_by_size
from loriini.common.progress import warn
from loriini.data.prepare.corpus import Corpus, open_corpus
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.prepare.tokenized.tokens import BATCH_CHARACTERS
from loriini.data.read.document import Document


def trained_texts(corpus: Corpus, texts: Sequence[str]) -> list[int]:
    """Indices of the texts that equal a document in the corpus's instances.

    Documents of a text's size, in tokens and in bytes, are compared with it token by token; of the others
    only the sizes are read. Near-duplicates are not found.
    """
    tokens = corpus.tokens
    encode = CachedTokenizer(corpus.tokenizer / "tokenizer.json", tokens.tokens.dtype)
    eos = np.array(tokens.eos_token_id, tokens.tokens.dtype).tobytes()
    encoded = [ids + eos for batch in group_by_size(texts, len, BATCH_CHARACTERS) for ids in encode(batch)]
    sizes = [
        len(ids) // len(eos) << 32 | len(text.encode()) for ids, text in zip(encoded, texts, strict=True)
    ]
    sizes_N = np.diff(tokens.offsets) << 32 | tokens.bytes
    alike = np.flatnonzero(np.isin(sizes_N, np.array(sizes, np.int64))).tolist()
    known = set(encoded)
    found = [i for i in alike if tokens.document(i).tobytes() in known]
    trained = np.intersect1d(corpus.instances.pieces.documents_P, found).tolist()
    spelled = {tokens.document(i).tobytes() for i in trained}
    return [index for index, ids in enumerate(encoded) if ids in spelled]


def warn_of_overlap(corpora: Iterable[Path], documents: Sequence[Document]) -> None:
    """Warn of documents that are also in one of `corpora`; a corpus that cannot be opened is skipped."""
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
