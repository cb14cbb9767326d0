"""A known mistake: a line of the code and what to put in its place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """A mistake: `old` occurs once in `file` and becomes `new`.

    `tests` (pytest's arguments) should fail: by default the file's own.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str = ""

    def __post_init__(self) -> None:
        folder, _, name = self.file.rpartition("/")
        object.__setattr__(self, "tests", self.tests or f"tests/{folder}/test_{name}")

    def apply(self, source: Path) -> None:
        path = source / "loriini" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} holds {self.old!r} {text.count(self.old)} times")
        path.write_text(text.replace(self.old, self.new))
