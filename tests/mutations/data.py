"""Known mistakes in inputs, corpora and jobs."""

from mutations.mutation import Mutation

DATA = (
    Mutation(
        "files are renamed before they are synced",
        "atomic.py",
        "        for name in files:\n            fsync(Path(folder, name))\n",
        "",
        "tests/test_atomic.py",
    ),
    Mutation(
        "edited manifests are believed",
        "jobs/artifact.py",
        "if written is not None and written != digest(manifest):",
        "if False:",
        "tests/corpus/test_verify.py",
    ),
    Mutation(
        "a folder without a manifest is replaced",
        "jobs/artifact.py",
        "    check_unused(folder)\n",
        "    shutil.rmtree(folder, ignore_errors=True)\n",
        "tests/jobs/test_artifact.py",
    ),
    Mutation(
        "a decoder's clean-up can end it with a signal",
        "sources/decoder.py",
        "    _exit(0)\n",
        "    sys.exit(0)\n",
        "tests/sources/test_columns.py",
    ),
    Mutation(
        "offsets of decoded columns are not checked",
        "sources/decoder.py",
        "                _check(column)\n",
        "                pass\n",
        "tests/sources/test_columns.py",
    ),
    Mutation(
        "ids outside the vocabulary are read",
        "corpus/instances.py",
        "if largest >= self.vocab_size:",
        "if False:",
        "tests/corpus/test_instances.py",
    ),
    Mutation(
        "texts are cut between a sign and a letter",
        "corpus/cached_tokenizer.py",
        r"(?<=[A-Za-z0-9])(?=[{_SIGN}])|\Z",
        r"(?<=[A-Za-z0-9])(?=[{_SIGN}])|(?<=')(?=t)|\Z",
        "tests/corpus/test_cached_tokenizer.py",
    ),
    Mutation(
        "a line that begins where a part ends is lost",
        "sources/compressed.py",
        "_lines(chain(within, _to_end_of_line(_chunks(path, (stop, sys.maxsize)))), longest)",
        "_lines(within, longest)",
        "tests/sources/test_compressed.py",
    ),
    Mutation(
        "the rows of a part of a parquet file are numbered from 1",
        "sources/readers.py",
        "for record in batch), rows_before + 1)",
        "for record in batch), 1)",
        "tests/sources/test_streams.py",
    ),
    Mutation(
        "parts of a file are cut into shards by themselves",
        "corpus/documents.py",
        "        if stream.continues:",
        "        if False:",
        "tests/sources/test_streams.py",
    ),
    Mutation(
        "a hang-up of the terminal kills a command",
        "signals.py",
        "ENDING = (signal.SIGTERM, signal.SIGHUP)",
        "ENDING = (signal.SIGTERM,)",
        "tests/hostile/test_signals.py",
    ),
    Mutation(
        "random order keeps near-duplicates",
        "corpus/walks.py",
        "return permutation[keep[permutation]]",
        "return permutation",
        "tests/corpus/test_walks.py tests/corpus/test_order.py",
    ),
)
