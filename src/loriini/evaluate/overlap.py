"""Whether held-out documents are among those that a model was trained on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from loriini.corpus.overlap import trained_texts
from loriini.corpus.prepare import open_corpus
from loriini.errors import InputError
from loriini.jobs.artifact import first_few
from loriini.progress import warn
from loriini.sources.document import Document


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
