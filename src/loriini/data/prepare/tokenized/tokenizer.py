"""The `tokenizer` stage: a byte-level BPE trained on the documents, or a copy of another tokenizer.

`tokenizer.json` encodes texts as it is, without transformers, some of whose classes rebuild it by rules of
their own. A converted SentencePiece model gives the model's own ids. The token that ends a document is the
one that all files of the folder allow; if none names one, transformers' AutoTokenizer does.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from loriini.common.errors import InputError
from loriini.common.hub import local_folder
from loriini.common.json_file import read_object
from loriini.common.progress import warn
from loriini.common.tokenizers import TOKENIZER_FILES, without_chance
from loriini.data.jobs.artifact import Artifact, build_artifact, file_hash
from loriini.data.jobs.processes import environment_variables
from loriini.data.prepare.text.stored import chosen_documents, stored_documents
from loriini.data.read.document import Document
from loriini.data.read.sampling import is_held_out

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FILE = "tokenizer.json"
FORMATS = ((FILE,), ("tokenizer.model",), ("encoder.json", "vocab.bpe"))
"""The files of a tokenizer's folder: those of tokenizers, SentencePiece or GPT-2."""
ADDED = "added_tokens.json"
"""Tokens and ids beside a SentencePiece model, in addition to its own."""
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "config.json", "generation_config.json")
"""Files beside a tokenizer that may say which token ends a document."""
UNIGRAM = 1
"""SentencePiece's number for a model that is a Unigram, not a BPE."""
EOS = "<|endoftext|>"
EOS_NAMES = (EOS, "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")
"""Tokens that end a document where neither a file nor transformers names one."""
ROLES = ("eos_token", "pad_token", "unk_token")
SMALLEST_BPE = 257  # the 256 bytes and EOS
LARGEST_BPE = 1 << 20  # the library reserves memory for it
TRAINING_CHARACTERS = 20_000_000
LONGEST_WORD = 256
"""Bytes. Training is quadratic in the length of a word: longer words are cut for it."""
SAMPLE_TEXT = "Hello, world!  12 x\n\té中😀 y "
"""Text that a SentencePiece model and its conversion must encode equally."""
PROBE = "é中😀"
"""Characters that a tokenizer for any text spells, or has an unknown token for."""

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}
"""Threads of the tokenizers library do not survive a fork: it warns and may then hang."""


def write_tokenizer(
    folder: Path, spec: str, documents: Artifact | None, heldout_share: float = 0.0, eos: str | None = None
) -> Artifact:
    """Build the `tokenizer` artifact, a folder that transformers' AutoTokenizer loads.

    `spec` is `bpe:SIZE` to train a byte-level BPE of SIZE tokens on `documents`, without the `heldout_share`
    of texts (`is_held_out`); or a tokenizer's folder (see FORMATS), its `tokenizer.json` or `.model` file, or
    an id on the Hugging Face Hub. `eos` is its token that ends a document; None: the one its files name.

    Raises:
        InputError: any other `spec`, or a tokenizer whose files name no EOS token, or several.
    """
    if documents and spec.startswith("bpe:"):
        train = partial(train_bpe, documents, _bpe_size(spec), heldout_share)
        settings = {"tokenizer": spec, **({"heldout_share": heldout_share} if heldout_share else {})}
        return build_artifact(folder, settings, {"documents": documents.digest}, partial(_write, train))
    path = local_tokenizer(spec)
    tokenizer = read_tokenizer(path, eos)
    inputs = {file.name: file_hash(file) for file in _files(path)} | {"eos_token": tokenizer.eos_token}
    return build_artifact(folder, {"tokenizer": "path"}, inputs, partial(_write, lambda: tokenizer))


def check_tokenizer(spec: str, eos: str | None = None) -> None:
    """Raise InputError for a `spec` that `write_tokenizer` refuses, and if it cannot encode some text.

    Warns of a tokenizer that drops characters. Trains nothing.
    """
    if spec.startswith("bpe:"):
        _bpe_size(spec)
        return
    tokenizer = read_tokenizer(local_tokenizer(spec), eos).backend_tokenizer
    try:
        spelled = [tokenizer.encode(character, add_special_tokens=False).ids for character in PROBE]
    except Exception as error:  # tokenizers raises bare Exception
        raise InputError(
            f"{spec}: cannot encode text that its vocabulary does not spell ({_reason(error)}); add its "
            "unknown token to the vocabulary, or use another tokenizer, for example bpe:8192"
        ) from error
    if not all(spelled):
        warn(
            f"{spec}: drops characters that its vocabulary does not spell; use another tokenizer, for "
            "example bpe:8192"
        )


def local_tokenizer(spec: str) -> Path:
    """The file or folder of a tokenizer that is given by its path or its id on the Hub."""
    return local_folder(spec, TOKENIZER_FILES)


def train_bpe(documents: Artifact, vocab_size: int, heldout_share: float = 0.0) -> "PreTrainedTokenizerFast":
    """Train a byte-level BPE on the documents, or on a sample of about 20 M characters of them.

    Texts of the `heldout_share` are left out. Warns if the texts give fewer than `vocab_size` tokens.
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
    return _wrapped(tokenizer, {"eos_token": EOS, "pad_token": EOS})


def _training_texts(documents: Artifact, heldout_share: float) -> Iterator[str]:
    """The texts that a BPE learns from: about TRAINING_CHARACTERS, less those held out.

    They are drawn at random, since documents of several kinds may alternate. If none is drawn, as can happen
    with a few very long ones, all are taken.
    """
    share = TRAINING_CHARACTERS / documents.counts["characters"]
    chosen_N = np.random.default_rng(0).random(documents.counts["documents"]) < share
    drawn = _not_held_out(chosen_documents(documents, chosen_N), heldout_share)
    first = next(drawn, None)
    if first is None:
        return _not_held_out(stored_documents(documents), heldout_share)
    return chain([first], drawn)


def _not_held_out(documents: Iterable[Document], heldout_share: float) -> Iterator[str]:
    return (document.text for document in documents if not is_held_out(document.text, heldout_share))


def read_tokenizer(path: Path, eos: str | None = None) -> "PreTrainedTokenizerFast":
    """Read a tokenizer from a folder or file as in `write_tokenizer`; InputError when it is not one.

    Its BOS token is its EOS token and nothing is added to a text, as in training, where only EOS separates
    documents.
    """
    tokenizer, roles = _read(path)
    return _wrapped(tokenizer, {**roles, "eos_token": _end_of_documents(path, tokenizer, roles, eos)})


def _read(path: Path) -> tuple[Tokenizer, dict[str, str]]:
    """A tokenizer as the library reads it, and its special tokens by their roles, such as "eos_token"."""
    first, *others = _files(path)
    try:
        if first.suffix == ".model":
            return _from_sentencepiece(first, *others)
        if others:
            return _from_gpt2(first, *others), {"eos_token": EOS}
        tokenizer = Tokenizer.from_file(str(first))
        without_chance(tokenizer, path)
        return tokenizer, _roles(first.parent) if first.name == FILE else {}
    except InputError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for a file that it cannot read
        raise InputError(
            f"{path}: not a readable tokenizer ({_reason(error)}); give a folder with {_formats()}, or a "
            "file tokenizer.json or tokenizer.model"
        ) from error


def _end_of_documents(path: Path, tokenizer: Tokenizer, roles: Mapping[str, str], eos: str | None) -> str:
    """`eos`, else the token that all SETTINGS allow, else that of the role "eos_token", else of EOS_NAMES.

    InputError if the SETTINGS agree on no token or on several, and for a token that the tokenizer lacks.
    """
    ids = tokenizer.get_vocab(with_added_tokens=True)
    stated = {"--eos": [eos]} if eos else _stated_eos(_files(path)[0], {i: token for token, i in ids.items()})
    defaults = [token for token in (roles.get("eos_token"), *EOS_NAMES) if token in ids]
    candidates = list(stated.values()) or [defaults[:1]]
    agreed = set(ids).intersection(*candidates)  # every file that states an EOS must allow it
    if len(agreed) == 1:
        return agreed.pop()
    listed = [f"{file} {' or '.join(f'{t} (id {ids.get(t)})' for t in stated[file])}" for file in stated]
    raise InputError(
        f"{path}: which token is EOS, that ends a document? {', '.join(listed) or 'None'}; give --eos TOKEN"
    )


def _stated_eos(file: Path, tokens: Mapping[int, str]) -> dict[str, list[str]]:
    """The tokens that each of SETTINGS beside a tokenizer's file allows as EOS; it states names or ids."""
    if file.name not in chain(*FORMATS):
        return {}
    stated: dict[str, list[str]] = {}
    for path in map(file.with_name, SETTINGS):
        if not path.exists():
            continue
        settings = read_object(path, "repair or remove it")
        value = settings.get("eos_token")
        if value is None:
            value = settings.get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        named = [v.get("content") if isinstance(v, dict) else v for v in values if v is not None]
        if named:
            stated[path.name] = [tokens.get(n, f"id {n}") if isinstance(n, int) else str(n) for n in named]
    return stated


def same_vocabulary(one: Path, other: Path) -> bool:
    """Whether two tokenizers have the same tokens with the same ids, even if their files differ.

    Identical files are not parsed.
    """
    if [file.read_bytes() for file in _files(one)] == [file.read_bytes() for file in _files(other)]:
        return True
    ids: dict[str, int] = _read(one)[0].get_vocab()
    return ids == _read(other)[0].get_vocab()


def _files(path: Path) -> list[Path]:
    """A tokenizer's files, as in FORMATS; after a SentencePiece model also ADDED, if it is there."""
    if not path.exists():
        raise InputError(f"{path}: no such tokenizer; give bpe:SIZE, a path, or a Hub id as ORG/NAME")
    for files in [[path]] if path.is_file() else [[path / name for name in names] for names in FORMATS]:
        if all(file.exists() for file in files):
            added = files[0].with_name(ADDED)
            return [*files, added] if files[0].name == "tokenizer.model" and added.exists() else files
    raise InputError(f"{path}: no tokenizer in this folder; give one with {_formats()}")


def _formats() -> str:
    return ", or ".join(" and ".join(names) for names in FORMATS)


def _roles(folder: Path) -> dict[str, str]:
    """The special tokens that transformers finds in a folder by their roles, such as "eos_token"."""
    from transformers import AutoTokenizer

    resolved = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return {role: token for role in ROLES if (token := getattr(resolved, role))}


def _from_sentencepiece(path: Path, *added: Path) -> tuple[Tokenizer, dict[str, str]]:
    """A SentencePiece model as transformers converts it, and its special tokens by their roles.

    InputError if the conversion encodes SAMPLE_TEXT as other ids (an earlier transformers does, or a model
    has unusual settings), and for `added` tokens whose ids do not follow the model's.
    """
    from transformers.convert_slow_tokenizer import SentencePieceExtractor, SpmConverter

    try:
        from sentencepiece import SentencePieceProcessor

        proto = SentencePieceExtractor(str(path)).proto
    except ImportError:
        raise InputError(
            f"{path}: reading SentencePiece needs: pip install 'loriini[sentencepiece]'"
        ) from None
    spec = proto.trainer_spec
    scores = [(piece.piece, piece.score) for piece in proto.pieces]
    ids = {piece: i for i, (piece, _) in enumerate(scores)}
    tokenizer = SpmConverter.build_tokenizer_from_spm_proto(
        proto, scores if spec.model_type == UNIGRAM else ids
    )
    converted = tokenizer.encode(SAMPLE_TEXT, add_special_tokens=False).ids
    if converted != SentencePieceProcessor(model_file=str(path)).encode(SAMPLE_TEXT):
        raise InputError(
            f"{path}: transformers changes its ids; update transformers, or use another tokenizer"
        )
    added_ids = read_object(added[0], "repair or remove it") if added else {}
    for token, i in sorted(added_ids.items(), key=itemgetter(1)):
        tokenizer.add_special_tokens([token])
        if tokenizer.token_to_id(token) != i:
            raise InputError(
                f"{added[0]}: {token} has the id {i}, and ids leave none out; repair or remove it"
            )
    roles = {"eos_token": spec.eos_id, "unk_token": spec.unk_id}
    return tokenizer, {role: scores[i][0] for role, i in roles.items() if i >= 0}


def _from_gpt2(vocabulary: Path, merges: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _write(make: Callable[[], "PreTrainedTokenizerFast"], folder: Path) -> dict[str, Any]:
    tokenizer = make()
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


def _wrapped(tokenizer: Tokenizer, roles: Mapping[str, str]) -> "PreTrainedTokenizerFast":
    """A tokenizer as transformers' class, with the special tokens in `roles` that its vocabulary has."""
    from transformers import PreTrainedTokenizerFast

    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    special = {role: token for role, token in roles.items() if token in vocabulary}
    special["bos_token"] = special["eos_token"]
    if tokenizer.num_special_tokens_to_add(is_pair=False):
        tokenizer.post_processor = None
    tokenizer.add_special_tokens(sorted(set(special.values())))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _reason(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
