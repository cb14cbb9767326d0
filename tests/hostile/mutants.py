"""Mutated artefacts, and hashes that agree with them where an editor would have changed these as well."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.fuzz import mutated
from loriini.data.jobs.artifact import digest, file_hash

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 0.5, -1e-9, 1e308, 10**30, -(2**63)),
    *(float("nan"), float("inf"), "", "x", "float64", "../../x", "/", "\x1b[31mred\u202e\n", "a" * 5000),
    *([], {}, [[]], [1, 2], {"x": 1}, ["a", None]),
)
NEST = 200
"""Levels of a list that is too deep for most readers."""


def mutate(path: Path, rng: random.Random) -> None:
    """Replace a file's content; one time in three as bytes, else in its own format where that is known."""
    by_format = {
        ".json": _json,
        ".jsonl": _json_lines,
        ".safetensors": _safetensors,
        ".npy": _array,
        ".toml": _words,
        ".py": _words,
    }
    change = by_format.get(path.suffix, _bytes) if rng.random() < 0.67 else _bytes
    try:
        content = change(path.read_bytes(), rng)
    except (ValueError, LookupError):  # another mutation left nothing of this format
        content = _bytes(path.read_bytes(), rng)
    path.write_bytes(content)
    if rng.random() < 0.5:
        _agree(path)


def _agree(path: Path) -> None:
    """Write the hashes that the file's own folder keeps of it."""
    try:
        if path.name == "manifest.json":
            values = json.loads(path.read_bytes())
            values.pop("manifest")
            path.write_text(json.dumps({**values, "manifest": digest(values)}))
        state = path.with_name("state.json")
        if state != path and state.exists():
            values = json.loads(state.read_bytes())
            values["sha256"][path.name] = file_hash(path)
            state.write_text(json.dumps(values))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass  # the mutation left no such place


def _bytes(content: bytes, rng: random.Random) -> bytes:
    return mutated(content, rng.getrandbits(32))


def _json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        value = _changed(value, rng)
    return json.dumps(value).encode()


def _changed(value: Any, rng: random.Random) -> Any:
    """A JSON value with one of the values in it replaced, removed, renamed, scaled or nested."""
    places = list(_places(value))
    if not places or rng.random() < 0.02:
        return _copy(rng.choice(VALUES))
    inside, key = rng.choice(places)
    kind = rng.choice(("replace", "replace", "replace", "remove", "rename", "scale", "swap", "nest"))
    old = inside[key]
    if kind == "remove":
        del inside[key]
    elif kind == "rename" and isinstance(inside, dict):
        inside[rng.choice((f"{key}_", "", "\x1b[2J", "auto_map"))] = inside.pop(key)
    elif kind == "scale" and isinstance(old, int | float):
        inside[key] = rng.choice((-old, old * 2, old + 1, old - 1, old * 1000, old / 3, float(old)))
    elif kind == "swap":
        other, name = rng.choice(places)
        inside[key] = _copy(other.get(name) if isinstance(other, dict) else old)
    elif kind == "nest":
        inside[key] = json.loads("[" * NEST + "]" * NEST)
    else:
        inside[key] = _copy(rng.choice(VALUES))
    return value


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) in a JSON value; of long lists only the first and last."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for i in sorted({*range(min(8, len(value))), *range(max(0, len(value) - 2), len(value))}):
            yield value, i
            yield from _places(value[i])


def _json_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    i = rng.randrange(len(lines))
    lines[i] = _json(lines[i], rng) + b"\n"
    return b"".join(lines)


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    """The header as JSON, the numbers, or both."""
    size = int.from_bytes(content[:8], "little")
    head, data = content[8 : 8 + size], bytearray(content[8 + size :])
    if rng.random() < 0.6:
        head = _json(head, rng)
    else:
        for _ in range(rng.choice((1, 3, 30))):
            start = rng.randrange(len(data) // 4) * 4
            data[start : start + 4] = rng.choice(
                (b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff", b"\xff" * 4, rng.randbytes(4))
            )
    return len(head).to_bytes(8, "little") + head + bytes(data)


def _array(content: bytes, rng: random.Random) -> bytes:
    """The header of a `.npy` file as text, or its numbers."""
    changes: tuple[Callable[[bytes], bytes], ...] = (
        lambda head: head.replace(b"<", b">"),
        lambda head: head.replace(b"4", b"8"),
        lambda head: head.replace(b"False", b"True "),
        lambda head: head.replace(b"(", b"(-", 1),
        lambda head: head.replace(b"(", b"(9", 1),
        lambda head: _bytes(head, rng),
    )
    if rng.random() < 0.5:
        return rng.choice(changes)(content[:128]) + content[128:]
    data = bytearray(content)
    for _ in range(rng.choice((1, 5, 50))):
        data[rng.randrange(min(128, len(data) - 1), len(data))] = rng.choice(
            (0, 0xFF, 0x7F, rng.randrange(256))
        )
    return bytes(data)


def _words(content: bytes, rng: random.Random) -> bytes:
    """A text with one of its words replaced, removed or doubled."""
    lines = content.decode().split("\n")
    i = rng.choice([i for i, line in enumerate(lines) if line.strip()])
    words = lines[i].split(" ")
    j = rng.randrange(len(words))
    values = (
        "nan",
        "inf",
        "-1",
        "1e400",
        "9" * 40,
        "''",
        "[]",
        "{}",
        "true",
        "None",
        "\x1b[31m",
        "=",
        '"lory"',
    )
    words[j] = rng.choice((*values, "", f"{words[j]} {words[j]}"))
    lines[i] = " ".join(words)
    return "\n".join(lines).encode()
