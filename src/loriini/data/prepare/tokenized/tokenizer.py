"""The `tokenizer` stage: a byte-level BPE trained on the documents, or a copy of another tokenizer."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from loriini.common.errors import InputError
from loriini.common.hub import TOKENIZER_FILES, local_folder
from loriini.common.progress import warn
from loriini.data.jobs.artifact import Artifact, build_artifact, file_hash
from loriini.data.jobs.processes import environment_variables
from loriini.data.prepare.text.stored import chosen_documents, stored_documents
from loriini.data.prepare.tokenized.spelling import check_spelling, keep_spellings_as_text
from loriini.data.read.document import Document
from loriini.data.read.sampling import is_held_out

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS = "<|endoftext|>"
EOS_NAMES = (EOS, "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")
ROLES = ("eos_token", "pad_token", "unk_token")
SMALLEST_BPE = 257  # the 256 bytes and EOS
LARGEST_BPE = 1 << 20  # the library reserves memory for it
CONFIG = "tokenizer_config.json"
TRAINING_CHARACTERS = 20_000_000
LONGEST_WORD = 256
"""Bytes. Training is quadratic in the length of a word: longer ones are learned from in pieces."""
CONTROL, USER_DEFINED = 3, 4  # SentencePiece's types of pieces that are not text
UNIGRAM = 1  # SentencePiece's model type; the other that the tokenizers library can express is BPE

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}
"""Threads of the tokenizers library do not survive a fork: it warns and may then hang."""


def write_tokenizer(
    folder: Path, spec: str, documents: Artifact | None, heldout_share: float = 0.0
) -> Artifact:
    """Build the `tokenizer` artifact, a folder that transformers' AutoTokenizer loads.

    Args:
        folder: the artifact's folder.
        spec: `bpe:SIZE` to train a byte-level BPE of SIZE tokens on `documents`, or a path: of a Hugging Face
            tokenizer (its folder or `tokenizer.json`), of a SentencePiece `.model` file, or of a folder with
            GPT-2's `encoder.json` and `vocab.bpe`; or an id on the Hugging Face Hub.
        documents: the `documents` artifact; not needed with a path.
        heldout_share: the share of texts, by `is_held_out`, that are not trained on.

    Raises:
        InputError: any other `spec`, or a tokenizer without an EOS token.
    """
    texts = documents if spec.startswith("bpe:") else None
    inputs = {"documents": texts.digest} if texts else _identity(local_tokenizer(spec))
    settings: dict[str, Any] = {"tokenizer": spec if texts else "path"}
    if texts and heldout_share:
        settings["heldout_share"] = heldout_share
    return build_artifact(folder, settings, inputs, partial(_write, spec, texts, heldout_share))


def check_tokenizer(spec: str) -> None:
    """InputError for what `write_tokenizer` would refuse, and for a tokenizer that fails at some text.

    Warns of one that drops some. Trains nothing.
    """
    if spec.startswith("bpe:"):
        _bpe_size(spec)
    else:
        check_spelling(spec, read_tokenizer(local_tokenizer(spec)).backend_tokenizer)


def local_tokenizer(spec: str) -> Path:
    """The file or folder of a tokenizer that is given by its path or its id on the Hub."""
    return local_folder(spec, TOKENIZER_FILES)


def train_bpe(documents: Artifact, vocab_size: int, heldout_share: float = 0.0) -> "PreTrainedTokenizerFast":
    """Train a byte-level BPE on the documents, or on a sample of about 20 M characters of them.

    Texts of the `heldout_share` are left out. Warns where the texts have too few words for `vocab_size`.
    """
    texts = _training_texts(documents, heldout_share)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces = pre_tokenizers.Split(Regex(f".{{1,{LONGEST_WORD}}}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([byte_level, pieces])
    with environment_variables(ONE_THREAD):
        tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = byte_level
    if (size := tokenizer.get_vocab_size()) < vocab_size:
        warn(f"bpe:{vocab_size} has only {size:,} tokens: there are no more pairs in its training texts")
    return _wrap(tokenizer, {"eos_token": EOS, "pad_token": EOS})


def _training_texts(documents: Artifact, heldout_share: float) -> Iterator[str]:
    """The texts that a BPE learns from, about TRAINING_CHARACTERS without those held out.

    They are drawn at random, since documents of several kinds may alternate. If none is drawn, as from a few
    very long ones, the first texts are taken, the last of them cut.
    """
    share = TRAINING_CHARACTERS / documents.counts["characters"]
    chosen_N = np.random.default_rng(0).random(documents.counts["documents"]) < share
    drawn = _not_held_out(chosen_documents(documents, chosen_N), heldout_share)
    first = next(drawn, None)
    if first is not None:
        return chain([first], drawn)
    return _cut(_not_held_out(stored_documents(documents), heldout_share), TRAINING_CHARACTERS)


def _not_held_out(documents: Iterable[Document], heldout_share: float) -> Iterator[str]:
    return (document.text for document in documents if not is_held_out(document.text, heldout_share))


def _cut(texts: Iterable[str], characters: int) -> Iterator[str]:
    """The first `characters` of the texts together."""
    for text in texts:
        yield text[:characters]
        characters -= len(text)
        if characters <= 0:
            return


def read_tokenizer(path: Path) -> "PreTrainedTokenizerFast":
    """Read a tokenizer from a path as `write_tokenizer` describes; InputError when it is not one."""
    main, other = _files(path)
    try:
        if other is None:
            return _from_sentencepiece(main)
        return _from_hugging_face(main, other) if other.name == CONFIG else _from_gpt2(main, other)
    except InputError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for a file that it cannot read
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{path}: not a readable tokenizer ({reason}); give a folder with tokenizer.json, "
            "tokenizer.model, or encoder.json and vocab.bpe, or one such file"
        ) from error


def same_vocabulary(one: Path, other: Path) -> bool:
    """Whether two tokenizers have the same tokens with the same ids, even if their files differ.

    Identical files are not parsed.
    """
    files = [[file.read_bytes() for file in _files(path) if file and file.exists()] for path in (one, other)]
    if files[0] == files[1]:
        return True
    ids: dict[str, int] = read_tokenizer(one).get_vocab()
    return ids == read_tokenizer(other).get_vocab()


def _files(path: Path) -> tuple[Path, Path | None]:
    """A tokenizer's file, and the file read with it: merges, or CONFIG, which may be absent."""
    if not path.exists():
        raise InputError(f"{path}: no such tokenizer; give bpe:SIZE, a path, or a Hub id as ORG/NAME")
    if not path.is_file():
        vocabulary, merges = path / "encoder.json", path / "vocab.bpe"
        known = [path / name for name in ("tokenizer.json", "tokenizer.model") if (path / name).exists()]
        if not known and vocabulary.exists() and merges.exists():
            return vocabulary, merges
        if not known:
            raise InputError(f"{path}: no tokenizer.json in this folder; give a tokenizer's folder or file")
        path = known[0]
    return path, None if path.suffix == ".model" else path.with_name(CONFIG)


def _identity(path: Path) -> dict[str, str]:
    """The hashes of the tokenizer's files by name."""
    return {file.name: file_hash(file) for file in _files(path) if file and file.exists()}


def _write(spec: str, texts: Artifact | None, heldout_share: float, folder: Path) -> dict[str, Any]:
    if texts:
        tokenizer = train_bpe(texts, _bpe_size(spec), heldout_share)
    else:
        tokenizer = read_tokenizer(local_tokenizer(spec))
    tokenizer.save_pretrained(folder)
    vocab_size = max(tokenizer.get_vocab().values()) + 1  # ids may have gaps
    return {"vocab_size": vocab_size, "eos_token_id": tokenizer.eos_token_id}


def _bpe_size(spec: str) -> int:
    size = spec.removeprefix("bpe:")
    if not re.fullmatch(r"\d{1,9}", size) or not SMALLEST_BPE <= int(size) <= LARGEST_BPE:
        raise InputError(
            f"{spec[:40]}: not a size of at least {SMALLEST_BPE} and at most {LARGEST_BPE} tokens; write for "
            "example bpe:8192"
        )
    return int(size)


def _wrap(tokenizer: Tokenizer, roles: Mapping[str, str]) -> "PreTrainedTokenizerFast":
    """Wrap a tokenizer in transformers' class; `roles` such as "eos_token" name its special tokens.

    If they name no EOS token, one with a usual name is taken; InputError if there is none. EOS is also the
    BOS token and nothing is added to a text, as in training, where only EOS separates documents.
    """
    from transformers import PreTrainedTokenizerFast

    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    special = {role: token for role, token in roles.items() if token in vocabulary}
    if "eos_token" not in special:
        known = [name for name in EOS_NAMES if name in vocabulary]
        if not known:
            raise InputError("the tokenizer has no EOS token; name one in its tokenizer_config.json")
        special["eos_token"] = known[0]
    special["bos_token"] = special["eos_token"]
    if tokenizer.num_special_tokens_to_add(is_pair=False):
        tokenizer.post_processor = None
    tokenizer.add_special_tokens(sorted(set(special.values())))
    keep_spellings_as_text(tokenizer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _from_hugging_face(file: Path, config: Path) -> "PreTrainedTokenizerFast":
    """Read a `tokenizer.json`, with the special tokens that its configuration names, if there is one.

    Not read by AutoTokenizer: some of its classes rebuild the tokenizer by rules of their own.
    """
    values = json.loads(config.read_text("utf-8")) if config.exists() else {}
    named = {role: values.get(role) for role in ROLES}
    roles = {
        role: token["content"] if isinstance(token, dict) else token for role, token in named.items() if token
    }
    return _wrap(Tokenizer.from_file(str(file)), roles)


def _from_gpt2(vocabulary: Path, merges: Path) -> "PreTrainedTokenizerFast":
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS])
    return _wrap(tokenizer, {"eos_token": EOS})


def _from_sentencepiece(path: Path) -> "PreTrainedTokenizerFast":
    """Convert a SentencePiece model.

    Not read by AutoTokenizer: it ranks merges by id, the model by score, and runs of spaces then differ. Of
    overlapping user-defined symbols of a unigram model, the longest is taken from the left; the model may
    take another with the same score.
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
    whole = [piece.piece for piece in proto.pieces if piece.type == USER_DEFINED]
    if settings.treat_whitespace_as_suffix and proto.normalizer_spec.add_dummy_prefix:
        raise InputError(f"{path}: its words end with their space (treat_whitespace_as_suffix): unsupported")
    if settings.model_type == UNIGRAM:
        model: models.Model = models.Unigram(pieces, unk_id=settings.unk_id, byte_fallback=fallback)
    else:
        vocabulary = {piece: i for i, (piece, _) in enumerate(pieces)}
        merges = generate_merges(vocabulary, pieces)
        model = models.BPE(
            vocabulary,
            merges,
            unk_token=settings.unk_piece,
            fuse_unk=True,
            byte_fallback=fallback,
            ignore_merges=bool(whole),  # no merges make these pieces
        )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _spm_normalizer(proto.normalizer_spec)
    if whole:  # not as added tokens, which would be normalized, a "▁" before each
        longest_first = sorted(whole, key=len, reverse=True)
        pieces_in_text = Regex("|".join(map(re.escape, longest_first)))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(pieces_in_text, "isolated")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)])
    tokenizer.add_special_tokens([piece.piece for piece in proto.pieces if piece.type == CONTROL])
    roles = {"eos_token": settings.eos_id, "unk_token": settings.unk_id}
    return _wrap(tokenizer, {role: pieces[i][0] for role, i in roles.items() if i >= 0})


def _spm_normalizer(spec: Any) -> normalizers.Normalizer:
    """SentencePiece's own text normalization."""
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        outer_spaces = Regex(r"\A +| +\z")  # `Strip` would also take line breaks and tabs
        steps += [normalizers.Replace(outer_spaces, ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend("▁"))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
