"""The tokenizer, and documents → tokens with their offsets: the `tokenizer` and `tokens` artefacts."""

import json
import os
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from loriini.corpus.documents import document_batches
from loriini.corpus.stored import Slice, chosen_documents, slice_documents, slices
from loriini.errors import InputError
from loriini.jobs import artifact
from loriini.jobs.artifact import Artifact, parts_folder
from loriini.jobs.processes import environment_variables
from loriini.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks
from loriini.progress import Advance
from loriini.sources import input_identity

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS = "<|endoftext|>"
EOS_NAMES = (EOS, "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")
ROLES = ("eos_token", "bos_token", "pad_token", "unk_token")
SMALLEST_BPE = 257  # the 256 bytes and EOS
TRAINING_CHARACTERS = 20_000_000
BATCH_CHARACTERS = 1 << 20
CONTROL, USER_DEFINED = 3, 4  # SentencePiece's types of pieces that are not text
UNIGRAM = 1  # SentencePiece's model type; the other that tokenizers can express is BPE

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}
"""Threads of the tokenizers library do not survive a fork: it warns and may then hang. Where the environment
says how many there are, so be it: a worker's has a pool of one, which is faster than none."""
MOST_DOMAINS = 1 << 16
"""A domain's index has 16 bits."""

TOKENS, OFFSETS, DOMAINS, BYTES = "tokens.bin", "offsets.npy", "domains.npy", "bytes.npy"
LENGTHS = "lengths.npy"  # of a slice: the offsets are their sums


@dataclass(frozen=True)
class Tokens:
    """A `tokens` artefact, memory-mapped. N documents, each ending with EOS.

    `tokens`: uint16 or uint32 (offsets[N],); `offsets`: int64 (N + 1,), where each document begins and the
    last ends; `domains`: uint16 (N,), indices into `domain_names`; `bytes`: int64 (N,), UTF-8 bytes of each.
    """

    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    domains: NDArray[np.uint16]
    bytes: NDArray[np.int64]
    domain_names: tuple[str, ...]
    eos_token_id: int

    def __len__(self) -> int:
        return len(self.domains)

    def document(self, i: int) -> NDArray[Any]:
        """Document `i`'s tokens, EOS included: a view into the mapped file."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


def write_tokenizer(folder: Path, spec: str, documents: Artifact | None) -> Artifact:
    """Build the `tokenizer` artefact, a folder that transformers' AutoTokenizer loads.

    `spec` is `bpe:SIZE`, which trains a byte-level BPE of SIZE tokens on `documents`, or the path of a
    Hugging Face tokenizer (its folder or `tokenizer.json`), of a SentencePiece `.model` file, or of a folder
    with GPT-2's `encoder.json` and `vocab.bpe`. Raises InputError for any other, and for one without EOS.
    """
    texts = documents if spec.startswith("bpe:") else None
    inputs = {"documents": texts.digest} if texts else input_identity([spec])

    def write(temporary: Path) -> dict[str, Any]:
        tokenizer = train_bpe(texts, _bpe_size(spec)) if texts else read_tokenizer(Path(spec))
        tokenizer.save_pretrained(temporary)
        return {"vocab_size": _id_limit(tokenizer), "eos_token_id": tokenizer.eos_token_id}

    return artifact.build_artifact(folder, {"tokenizer": spec if texts else "path"}, inputs, write)


def check_tokenizer(spec: str) -> None:
    """Refuse, with an InputError, what `write_tokenizer` would refuse."""
    if spec.startswith("bpe:"):
        _bpe_size(spec)
    else:
        read_tokenizer(Path(spec))


def open_tokenizer(stored: Artifact) -> "PreTrainedTokenizerFast":
    """Load the tokenizer of a `tokenizer` artefact."""
    return read_tokenizer(stored.folder)


def train_bpe(documents: Artifact, vocab_size: int) -> "PreTrainedTokenizerFast":
    """Train a byte-level BPE on every n-th document, n such that at most about 20 M characters are read."""
    stride = -(-documents.counts["characters"] // TRAINING_CHARACTERS)
    chosen_N = np.arange(documents.counts["documents"]) % stride == 0
    texts = (document.text for document in chosen_documents(documents, chosen_N))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with environment_variables(ONE_THREAD):
        tokenizer.train_from_iterator(texts, trainer)
    return _wrap(tokenizer, {"eos_token": EOS, "bos_token": EOS, "pad_token": EOS})


def read_tokenizer(path: Path) -> "PreTrainedTokenizerFast":
    """Read a tokenizer from a path as `write_tokenizer` describes; InputError when it is none."""
    if not path.exists():
        raise InputError(f"{path}: no such tokenizer; give bpe:SIZE or the path of a tokenizer")
    try:
        if path.suffix == ".model":
            return _from_sentencepiece(path)
        if path.is_file():
            return _from_hugging_face(path)
        if (path / "tokenizer.json").exists():
            return _from_hugging_face(path / "tokenizer.json")
        if (path / "tokenizer.model").exists():
            return _from_sentencepiece(path / "tokenizer.model")
        return _from_gpt2(path)
    except InputError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for a file that it cannot read
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{path}: not a readable tokenizer ({reason}); give a folder with tokenizer.json, "
            "tokenizer.model, or encoder.json and vocab.bpe, or one such file"
        ) from error


def write_tokens(
    folder: Path, documents: Artifact, tokenizer: Artifact, execute: Executor = SERIAL
) -> Artifact:
    """Build the `tokens` artefact: every document encoded without special tokens, then EOS.

    A task a slice of documents. Text that spells a special token is encoded as text. Raises InputError for
    too many domains, and RuntimeError when not every document and character of `documents` arrives.
    """
    inputs = {"documents": documents.digest, "tokenizer": tokenizer.digest}

    def write(temporary: Path) -> dict[str, Any]:
        names, dtype = sorted(documents.counts["domains"]), id_dtype(tokenizer).name
        check_domains(len(names), documents.folder)
        tasks = [
            Task(f"tokens-{i:05d}", partial(_encode_slice, documents, part, tokenizer, names), len(part))
            for i, part in enumerate(slices(documents))
        ]
        done = run_tasks("tokens", tasks, temporary, execute)
        tally = sum(map(Counter, done), Counter[str]())
        if any(tally[name] != documents.counts[name] for name in ("documents", "characters")):
            raise RuntimeError(f"of {documents.counts} arrived {dict(tally)}")
        parts = [parts_folder(temporary) / task.name for task in tasks]
        concatenate_files((part / TOKENS for part in parts), temporary / TOKENS)
        lengths, domains, sizes = (
            np.concatenate([np.load(part / name) for part in parts]) for name in (LENGTHS, DOMAINS, BYTES)
        )
        np.save(temporary / OFFSETS, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
        np.save(temporary / DOMAINS, domains)
        np.save(temporary / BYTES, sizes)
        return {
            "documents_in": documents.counts["documents"],
            "documents": len(lengths),
            "characters_in": tally["characters"],
            "tokens": tally["tokens"],
            "dtype": dtype,
            "domains": names,
            **tokenizer.counts,
        }

    return artifact.build_artifact(folder, {}, inputs, write)


def open_tokens(stored: Artifact) -> Tokens:
    """Map a `tokens` artefact into memory, read-only."""
    return Tokens(
        tokens=np.memmap(stored.path(TOKENS), stored.counts["dtype"], mode="r"),
        offsets=np.load(stored.path(OFFSETS), mmap_mode="r"),
        domains=np.load(stored.path(DOMAINS), mmap_mode="r"),
        bytes=np.load(stored.path(BYTES), mmap_mode="r"),
        domain_names=tuple(stored.counts["domains"]),
        eos_token_id=stored.counts["eos_token_id"],
    )


def id_dtype(tokenizer: Artifact) -> np.dtype[Any]:
    """The smallest type that holds a tokenizer's ids."""
    return np.dtype("<u2" if tokenizer.counts["vocab_size"] < 1 << 16 else "<u4")


def check_domains(count: int, where: Path) -> None:
    """InputError for more domains than their indices can tell apart."""
    if count > MOST_DOMAINS:
        raise InputError(
            f"{where}: {count:,} domains, and there can be {MOST_DOMAINS:,}; give a coarser domain field"
        )


def _encode_slice(
    documents: Artifact, part: Slice, tokenizer: Artifact, names: list[str], folder: Path, advance: Advance
) -> dict[str, int]:
    """Write a slice's tokens, and of every document length in tokens, domain's index, and size in bytes."""
    index = {name: i for i, name in enumerate(names)}
    backend = _open_backend(tokenizer.folder, tokenizer.digest)
    eos, dtype = tokenizer.counts["eos_token_id"], id_dtype(tokenizer)
    threads = {} if "RAYON_NUM_THREADS" in os.environ else ONE_THREAD
    lengths, domains, sizes, characters = array("q"), array("H"), array("q"), 0
    with open(folder / TOKENS, "wb") as file, environment_variables(threads):
        for batch in document_batches(slice_documents(documents, part), BATCH_CHARACTERS):
            texts = [document.text for document in batch]
            for encoded in backend.encode_batch_fast(texts, add_special_tokens=False):
                ids = encoded.ids
                ids.append(eos)
                file.write(np.array(ids, dtype).data)
                lengths.append(len(ids))
            domains.extend(index[document.domain] for document in batch)
            sizes.extend(len(text.encode()) for text in texts)
            characters += sum(map(len, texts))
            advance(len(batch))
    np.save(folder / LENGTHS, np.asarray(lengths, np.int64))
    np.save(folder / DOMAINS, np.asarray(domains, np.uint16))
    np.save(folder / BYTES, np.asarray(sizes, np.int64))
    return {"documents": len(lengths), "characters": characters, "tokens": sum(lengths)}


@lru_cache(maxsize=1)
def _open_backend(folder: Path, digest: str) -> Tokenizer:
    """The tokenizer in `folder`, whose contents `digest` tells apart, without padding
    and truncation; to it every text is only text."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    return backend


def _bpe_size(spec: str) -> int:
    size = spec.removeprefix("bpe:")
    if not size.isdecimal() or int(size) < SMALLEST_BPE:
        raise InputError(f"{spec}: not a size of at least {SMALLEST_BPE} tokens; write for example bpe:8192")
    return int(size)


def _id_limit(tokenizer: "PreTrainedTokenizerFast") -> int:
    """One more than the largest id: the vocabulary size a model needs."""
    return max(tokenizer.get_vocab().values()) + 1


def _wrap(tokenizer: Tokenizer, roles: Mapping[str, str]) -> "PreTrainedTokenizerFast":
    """Put a tokenizer into transformers' class; `roles` such as "eos_token" name its special tokens.

    Without an EOS among them a token that is one by its usual name serves; InputError when there is none.
    """
    from transformers import PreTrainedTokenizerFast

    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    special = {role: token for role, token in roles.items() if token in vocabulary}
    if "eos_token" not in special:
        known = [name for name in EOS_NAMES if name in vocabulary]
        if not known:
            raise InputError("the tokenizer has no EOS token; name one in its tokenizer_config.json")
        special["eos_token"] = known[0]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _from_hugging_face(file: Path) -> "PreTrainedTokenizerFast":
    """A `tokenizer.json`, with the special tokens that the configuration beside it names.

    Not by AutoTokenizer: some classes rebuild the tokenizer by rules of their own, not as the file has it.
    """
    config = file.with_name("tokenizer_config.json")
    values = json.loads(config.read_text("utf-8")) if config.exists() else {}
    named = {role: values.get(role) for role in ROLES}
    roles = {
        role: token["content"] if isinstance(token, dict) else token for role, token in named.items() if token
    }
    return _wrap(Tokenizer.from_file(str(file)), roles)


def _from_gpt2(folder: Path) -> "PreTrainedTokenizerFast":
    vocabulary, merges = folder / "encoder.json", folder / "vocab.bpe"
    if not (vocabulary.exists() and merges.exists()):
        raise InputError(f"{folder}: no tokenizer.json in this folder; give a tokenizer's folder or file")
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS])
    return _wrap(tokenizer, {"eos_token": EOS, "bos_token": EOS})


def _from_sentencepiece(path: Path) -> "PreTrainedTokenizerFast":
    """Convert a SentencePiece model.

    Not by AutoTokenizer: it ranks merges by id, but the model by score; runs of spaces then differ.
    """
    from transformers.convert_slow_tokenizer import SentencePieceExtractor, generate_merges

    try:
        proto = SentencePieceExtractor(str(path)).proto
    except ImportError:
        raise InputError(
            f"{path}: reading SentencePiece needs: pip install 'loriini[sentencepiece]'"
        ) from None
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    settings, fallback = proto.trainer_spec, proto.trainer_spec.byte_fallback
    if settings.model_type == UNIGRAM:
        model: models.Model = models.Unigram(pieces, unk_id=settings.unk_id, byte_fallback=fallback)
    else:
        vocabulary = {piece: i for i, (piece, _) in enumerate(pieces)}
        merges = generate_merges(vocabulary, pieces)
        model = models.BPE(
            vocabulary, merges, unk_token=settings.unk_piece, fuse_unk=True, byte_fallback=fallback
        )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _spm_normalizer(proto.normalizer_spec)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)])
    tokenizer.add_special_tokens([piece.piece for piece in proto.pieces if piece.type == CONTROL])
    tokenizer.add_tokens([piece.piece for piece in proto.pieces if piece.type == USER_DEFINED])
    roles = {"eos_token": settings.eos_id, "bos_token": settings.bos_id, "unk_token": settings.unk_id}
    return _wrap(tokenizer, {role: pieces[i][0] for role, i in roles.items() if i >= 0})


def _spm_normalizer(spec: Any) -> normalizers.Normalizer:
    """SentencePiece's own text normalisation, step by step."""
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend("▁"))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
