"""`prepare` on hostile documents, tokenizers and folders."""

import gzip
import json
from pathlib import Path

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


ENDLESS = b"x" * MIB

READ = [
    refused("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}\n", "not valid JSON"),
    refused("a.csv", b"\x1b[31mred\n" * 3, "no text column"),
    refused("a.txt", b"a\0b", "not a text file"),
    refused("d.parquet", parquet(texts_table())[:-9], "damaged file"),
    refused("d.warc", b"WARC/1.0\r\n" + b"A: b\r\n" * 300_000, "damaged web archive"),
]

PLACES = [
    Row("prepare of a device", STOP.format("/dev/zero"), "neither a file nor a folder"),
    Row(
        "prepare into a file", "prepare c --documents documents.jsonl --out documents.jsonl", "give a folder"
    ),
    Row("prepare with a short corpus", STOP.format("documents.jsonl").replace("16", "99999999"), "too few"),
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

ROWS = [*READ, *PLACES, *NAMES, *BOMBS]
