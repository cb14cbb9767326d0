"""Known mistakes in inputs, corpora and jobs."""

from mutations.mutation import Mutation

DATA = (
    Mutation(
        "files are renamed before they are synced",
        "common/atomic.py",
        "        for name in files:\n            fsync(Path(folder, name))\n",
        "",
    ),
    Mutation(
        "edited manifests are believed",
        "data/jobs/artifact.py",
        "if manifest.pop(OWN_HASH, None) != digest(manifest):",
        "if manifest.pop(OWN_HASH, None) is False:",
        "tests/data/prepare/test_corpus.py",
    ),
    Mutation(
        "a folder without a manifest is replaced",
        "data/jobs/artifact.py",
        "    check_replaceable(folder)\n",
        "    shutil.rmtree(folder, ignore_errors=True)\n",
    ),
    Mutation(
        "offsets of decoded columns are not checked",
        "data/read/formats.py",
        "_rows(_checked(batch.select(columns)) for",
        "_rows(batch.select(columns) for",
    ),
    Mutation(
        "ids outside the vocabulary are read",
        "data/prepare/tokenized/instances.py",
        "if largest >= self.vocab_size:",
        "if False:",
    ),
    Mutation(
        "a piece belongs to the document that ends where it starts",
        "data/prepare/tokenized/pieces.py",
        'cuts[:-1], side="right")',
        "cuts[:-1])",
    ),
    Mutation(
        "a document that goes on from another task's instances is read from its beginning",
        "data/prepare/tokenized/instances.py",
        "    begins_D[0] = ends_D[0] - (cut.ends_M[begin] - first)\n",
        "",
    ),
    Mutation(
        "all instances are cut at once",
        "data/prepare/tokenized/instances.py",
        "    pieces = cut.block(first, last)\n",
        "    pieces = cut.block(0, len(cut)).block(first, last)\n",
    ),
    Mutation(
        "texts are cut between a sign and a letter",
        "data/prepare/tokenized/cached_tokenizer.py",
        r"(?<=[A-Za-z0-9])(?=[{_SIGN}])|\Z",
        r"(?<=[A-Za-z0-9])(?=[{_SIGN}])|(?<=')(?=t)|\Z",
    ),
    Mutation(
        "a line that begins where a part ends is lost",
        "data/read/compressed.py",
        "while place < stop and",
        "while place < stop - 1 and",
    ),
    Mutation(
        "a hang-up of the terminal kills a command",
        "common/signals.py",
        "ENDING = (signal.SIGTERM, signal.SIGHUP)",
        "ENDING = (signal.SIGTERM,)",
        "tests/hostile/test_signals.py",
    ),
    Mutation(
        "Ctrl-C ends the server that trainings are forked from while it imports",
        "data/jobs/processes.py",
        "        resource_tracker.ensure_running()  # it may unblock them\n",
        "",
        "tests/hostile/test_signals.py -k Ctrl",
    ),
    Mutation(
        "random order keeps near-duplicates",
        "data/prepare/similarity/walks.py",
        "return permutation[keep[permutation]]",
        "return permutation",
        "tests/data/prepare/similarity/test_walks.py tests/data/prepare/similarity/test_order.py",
    ),
    Mutation(
        "exported pieces have the domain of their instance",
        "data/convert/corpus_export.py",
        "for i in corpus.tokens.domains[documents_P]]",
        "for i in np.repeat(instances.domains_I[first:last], np.diff(pieces.starts_I))]",
        "tests/data/convert/test_corpus_formats.py",
    ),
)
