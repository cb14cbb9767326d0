"""`prepare` on hostile documents, tokenizers and folders."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa

from hostile.files import MANY, MIB, TEXTS, parquet, response, texts_table, unpacks_to, write
from hostile.runner import Harm, Row

MADE = r"60 documents, [\d,]+ tokens"
STOP = "prepare c --documents {} --out . --length 16 --tokenizer bpe:300 --order random"
SKIP = STOP + " --on-error skip"


def refused(name: str, content: bytes, line: str) -> Row:
    """A file that stops the reading, with `name` as its name."""
    return Row(
        f"prepare {name} of {content[:24]!r} ({len(content)} bytes)",
        STOP.format(name),
        rf"loriini: .*{line}",
        write(name, content),
    )


def left_out(name: str, harm: Harm, reason: str, **more: object) -> Row:
    """A file that is left out, beside good documents."""

    def both(folder: Path) -> None:
        harm(folder)
        (folder / "many.jsonl").write_bytes(MANY)

    command = SKIP.format(f"many.jsonl {name}")
    line = rf"(?s){MADE}.*left out:.*{reason}"
    return Row(f"skip {reason} {name}"[:90], command, line, both, 0, **more)  # type: ignore[arg-type]


def named(name: str) -> Harm:
    return write(name, b'{"text": 1}\n')


def foreign_names(folder: Path) -> None:
    """Ids and domains with ANSI sequences, line ends, bidirectional marks and markup."""
    marks = ["\x1b[31mred\x1b[0m", "a\nb\rc", "\u202eleft", "[/]", "[bold]x", "\x07\x08", "\u2028", ""]
    records = [
        {"text": text, "id": f"{marks[i % 8]}{i}", "topic": marks[i % 8]} for i, text in enumerate(TEXTS)
    ]
    records += [{**records[0], "text": "again"}, {**records[3], "id": "\x1b]0;title\x07"}]
    (folder / "names.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def link_to_itself(folder: Path) -> None:
    (folder / "loop.jsonl").symlink_to("loop.jsonl")


def nested_links(folder: Path) -> None:
    (folder / "texts").mkdir()
    (folder / "texts" / "self").symlink_to(".", target_is_directory=True)
    (folder / "texts" / "documents.jsonl").symlink_to("../documents.jsonl")


def others(folder: Path) -> None:
    """Somebody's files in a folder that has the name of a stage."""
    (folder / "c" / "order").mkdir(parents=True)
    (folder / "c" / "order" / "mine.txt").write_text("my own words")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")


def tokenizer(content: bytes, name: str = "tokenizer.json") -> Harm:
    def harm(folder: Path) -> None:
        (folder / "tok").mkdir()
        (folder / "tok" / name).write_bytes(content)

    return harm


def given_tokenizer(name: str, harm: Harm, line: str, path: str = "tok") -> Row:
    command = f"prepare c --documents documents.jsonl --out . --length 16 --tokenizer {path}"
    return Row(f"tokenizer {name}", command, line, harm)


ENDLESS = b"x" * MIB
WORDS = b"word " * (MIB // 5)

READ = [
    refused("a.jsonl", b"{\n", "not valid JSON"),
    refused("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}\n", "not valid JSON"),
    refused("a.jsonl", b'{"text": "\\ud800"}\n', "not valid Unicode"),
    refused("a.jsonl", b'{"text": "\xff"}\n', "not valid UTF-8"),
    refused("a.jsonl", b"", "no document found"),
    refused("a.csv", b'text\n"a"b\n', "misplaced quote"),
    refused("a.csv", b"\x1b[31mred\n" * 3, "no text column"),
    refused("a.csv", b"text\n\xff\n", "not valid UTF-8"),
    refused("a.jsonl.gz", b"plain", "damaged file"),
    refused("b.jsonl.gz", gzip.compress(MANY, mtime=0)[:-20], "damaged file"),
    refused("a.txt", b"a\0b", "not a text file"),
    refused("d.parquet", parquet(texts_table())[:-9], "damaged file"),
    refused("f.parquet", parquet(pa.table({"\x1b[31m": ["a"]})), r"no text column .*\\x1b"),
    refused("a.arrow", b"ARROW1" + b"\xff" * 500, "damaged file"),
    refused("a.warc", b"WARC/1.0\r\nA: b\r\n\r\n", "damaged web archive"),
    refused("d.warc", b"WARC/1.0\r\n" + b"A: b\r\n" * 300_000, "damaged web archive"),
    refused("f.warc.gz", gzip.compress(response(b"<p>words"), mtime=0)[:-9], "damaged"),
    refused("\x1b[31mred.jsonl".replace("\x1b", "\u202e"), b"{\n", r"\\u202e\[31mred"),
]

PLACES = [
    Row("prepare of a link to itself", STOP.format("loop.jsonl"), "no such file", link_to_itself),
    Row("prepare of linked folders", SKIP.format("texts"), r"\b120 documents", nested_links, 0),
    Row("prepare of a pipe", STOP.format("pipe.jsonl"), "neither a file nor a folder", pipe),
    Row("prepare of a device", STOP.format("/dev/zero"), "neither a file nor a folder"),
    Row("prepare of an unknown protocol", STOP.format("nothing://x"), "protocol"),
    Row(
        "prepare into a file", "prepare c --documents documents.jsonl --out documents.jsonl", "give a folder"
    ),
    Row("prepare over a folder of others", STOP.format("documents.jsonl"), "c/order: holds files", others),
    Row("prepare of a pattern with its output", STOP.format("'*'"), "corpus: a prepared corpus"),
    Row("prepare of its own output", "prepare c --documents . --out .", "lies inside the input"),
    Row("prepare with a short corpus", STOP.format("documents.jsonl").replace("16", "99999999"), "too few"),
    *(
        Row(f"prepare {flag}", f"prepare c --documents documents.jsonl --out . {flag}", line)
        for flag, line in {
            "--seed 99999999999": "below 2,147,483,648",
            "--tokenizer bpe:99999999999999999999999": "at most 1048576",
            "--tokenizer absent": "no such tokenizer",
            "--encoder ./absent": "no such folder",
            "--encoder corpus": "holds neither config.json nor modules.json",
            "--pooling cls": "--pooling has no effect",
            "--neighbors 0": "at least 1",
        }.items()
    ),
]

TOKENIZERS = [
    given_tokenizer("empty", tokenizer(b""), "not a readable tokenizer"),
    given_tokenizer("of garbage", tokenizer(b"\xff\x00" * 99), "not a readable tokenizer"),
    given_tokenizer("without a file", tokenizer(b"{}", "other.json"), "tokenizer.json"),
    given_tokenizer(
        "of SentencePiece garbage", tokenizer(b"\xff" * 99, "a.model"), "tokenizer", "tok/a.model"
    ),
]

NAMES = [
    Row(
        "ids and domains with control characters",
        SKIP.format("names.jsonl") + " --domain-field topic",
        r"6[012] documents",
        foreign_names,
        0,
    ),
    Row(
        "a wrong text field's name", STOP.format("documents.jsonl") + " --text-field [/]", r"no text .*\[/\]"
    ),
    Row(
        "an input's name with control characters",
        STOP.format("'\u202ex\x1b[31m.jsonl'"),
        r"\\u202ex\\x1b\[31m",
        named("\u202ex\x1b[31m.jsonl"),
    ),
]

BOMBS = [
    left_out("a.jsonl", write("a.jsonl", lambda: b"x" * (70 * MIB)), "longer than 64 MiB"),
    left_out("a.csv", write("a.csv", lambda: b"text\n" + b"x" * (70 * MIB)), "misplaced quote", drill=True),
    left_out("words.txt", write("words.txt", lambda: WORDS * 12), "more than 10000000 characters"),
    left_out("zeros.jsonl.zst", unpacks_to("zeros.jsonl.zst", ENDLESS, 600), "damaged file"),
    left_out(
        "body.warc",
        write("body.warc", lambda: response(gzip.compress(ENDLESS * 200), more="Content-Encoding: gzip\r\n")),
        "longer than 64 MiB",
        drill=True,
    ),
    Row(
        "one word of half a million letters",
        STOP.format("many.jsonl word.txt"),
        r"61 documents",
        lambda folder: (write("word.txt", b"xyz" * 170_000)(folder), write("many.jsonl", MANY)(folder))[0],
        0,
    ),
]

ROWS = [*READ, *PLACES, *TOKENIZERS, *NAMES, *BOMBS]
