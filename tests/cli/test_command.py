"""Commands as dataclasses: help, options, what is refused, and what stays light."""

import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Literal

import pytest

from cli.calls import Captured, assert_refused, call, parsed
from loriini import __version__
from loriini.cli import COMMANDS
from loriini.cli.command import CommandParser, find_commands, load_command, make_command, summary
from loriini.common.checks import Count, check_fields
from loriini.common.errors import InputError
from loriini.common.options import Option, refuse_given

LIGHT = """
import sys
from loriini.cli import main
for arguments in sys.argv[1:]:
    try:
        main(arguments.split())
    except SystemExit:
        pass
print(sorted({"torch", "transformers", "pyarrow", "fsspec"} & sys.modules.keys()))
"""

LIGHT_ERRORS = (
    "nothing",
    "train --out",
    "train tiny-lory",
    "evaluate nowhere --documents text.jsonl",
    "generate nowhere --prompt once",
    "lens nowhere",
)


@dataclass(frozen=True)
class Settings:
    """Settings of a room."""

    size: Count = 3
    """How large."""
    colour: Literal["red", "blue"] = "red"
    """Of what colour."""
    hidden: str = ""
    """Not an option here."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)


@dataclass(frozen=True, kw_only=True)
class Paint:
    """Paint some things.

    At length.
    """

    things: Annotated[tuple[Path, ...], Option("THING", positional=True)]
    """What to paint, 100 % of it."""
    settings: Annotated[Settings, Option(only=("size", "colour"))] = field(default_factory=Settings)
    names: tuple[str, ...] = ()
    """Names."""
    steps: Annotated[tuple[int, ...], Option(parse=lambda text: tuple(map(len, text.split(","))))] = ()
    """Steps."""
    loud: bool = False
    """Say `so`."""
    from_: str | None = None
    """A keyword of Python."""
    others: Annotated[tuple[str, ...], Option(rest=True)] = ()


def paint(*arguments: str) -> Paint:
    made = make_command("paint", Paint, list(arguments))
    assert isinstance(made, Paint)
    return made


def test_fields_are_options_with_their_types_and_defaults() -> None:
    assert paint("a", "b") == Paint(things=(Path("a"), Path("b")))
    given = ["--size", "5", "--colour", "blue", "--names", "x", "y", "--names", "z", "--steps", "a,bc"]
    assert paint("a", *given, "--loud", "--from", "there") == Paint(
        things=(Path("a"),),
        settings=Settings(5, "blue"),
        names=("x", "y", "z"),
        steps=(1, 2),
        loud=True,
        from_="there",
    )
    assert paint("a", "--model.width", "8", "--x=1").others == ("--model.width=8", "--x=1")
    assert paint("--", "--size").things == (Path("--size"),)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "THING"),
        (["a", "--size", "many"], "--size"),
        (["a", "--size", "0"], "--size is 0"),
        (["a", "--colour", "green"], "--colour"),
        (["a", "--names"], "--names"),
        (["a", "--x", "1", "b"], "'b'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        paint(*arguments)


def test_an_option_that_is_no_field_is_refused_where_nothing_takes_it() -> None:
    with pytest.raises(InputError, match=r"--colou.*--colour"):
        make_command("settings", Settings, ["--colou", "red"])
    with pytest.raises(InputError, match="--size"):
        refuse_given(Settings(4), ("size",), "has no effect")
    refuse_given(Settings(), ("size",), "has no effect")


def test_the_help_is_what_the_docstrings_say() -> None:
    shown = " ".join(CommandParser("paint", Paint).format_help().split())
    for part in ("Paint some things. At length.", "What to paint, 100 % of it.", "How large. (3)", "Say so."):
        assert part in shown
    assert "hidden" not in shown
    assert "--others" not in shown


CONTRACT = """
quickstart --out DIR --documents a b --design mixtral --size small --steps 3 --seed 1
designs --json
recipes --json
prepare web --documents a b --out DIR --tokenizer bpe:300 --length 64 --order random --encoder lsa
prepare web --documents a --out DIR --workers 2 --seed 3 --on-error skip
inspect DIR
train tiny-lory --out RUN --corpus a b --init RUN --routing.segment_length 8 --heldout PATH
train --resume RUN
evaluate a b --documents x y --domain-field topic --skip 3 --routing segment --device cpu --out FILE
evaluate a --tasks piqa mmlu --limit 3 --num-fewshot 2 --tasks-data DIR --out FILE
compare lory dense --corpus a --heldout b --recipe tiny --seeds 2 --grid steps=1,2 --out DIR
compare lory dense --heldout b --ladder 8,16 --jobs 1 --out DIR --steps 3
compare RUN RUN2 --out DIR
reproduce lory-fig3 lory-fig4 --scale tiny --text DIR --seeds 1 --jobs 1 --out DIR
reproduce --list
lens RUN --text FILE --out FILE
analyze RUN --documents a b --out DIR
generate RUN --prompt TEXT --max-new-tokens 3 --greedy --routing segment
export RUN --to llama --prompt TEXT --dtype bf16 --step 3 --out DIR
export RUN --to gguf --prompt-file F --out DIR
convert CORPUS --to parquet --out DIR
convert PATH --from megatron --out DIR
bench --out FILE --quick
"""


@pytest.mark.parametrize("line", CONTRACT.strip().splitlines())
def test_the_commands_have_the_options_that_scripts_rely_on(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parsed(line.split())


def test_an_option_sets_every_field_of_its_name() -> None:
    """Also one that its settings hide, as `--device` of a model is that of what is measured on it."""
    assert parsed(["analyze", "RUN", "--device", "cpu"]).text.device == "cpu"
    compared = parsed(["compare", "lory", "--out", "DIR", "--steps", "3"])
    assert compared.training.overrides == compared.overrides == ("--steps=3",)


def test_help_errors_and_the_version_import_nothing_heavy() -> None:
    light = find_commands(COMMANDS)
    calls = [*LIGHT_ERRORS, "--help", "--version", *(f"{name} --help" for name in light)]
    done = subprocess.run([sys.executable, "-c", LIGHT, *calls], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("usage: loriini") == 1 + len(light)
    assert f"\nloriini {__version__}\n" in done.stdout
    assert done.stderr.count("loriini: ") == len(done.stderr.splitlines()) == len(LIGHT_ERRORS)


@pytest.mark.parametrize("name", find_commands(COMMANDS))
def test_every_option_has_a_meaning(name: str) -> None:
    entry = find_commands(COMMANDS)[name]
    kind = load_command(entry)
    assert summary(entry)
    assert [a.dest for a in CommandParser(name, kind)._actions if not a.help] == []


def test_commands_of_other_packages_may_be_broken(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    values = {"gone": "no_such_module:Command", "designs": "no:Such", "other": "loriini.cli.command:Parser"}
    entries = [EntryPoint(name, value, "loriini.commands") for name, value in values.items()]
    monkeypatch.setattr("loriini.cli.command.entry_points", lambda group: entries)
    shown = call(capsys, "--help")
    assert (shown.code, "no_such_module" in shown.out) == (0, True)
    assert_refused(call(capsys, "gone"), "gone", "no_such_module")
    assert_refused(call(capsys, "other"), "other", "not a dataclass")
    assert call(capsys, "designs").code == 0  # ours


def test_help_of_a_recipe_lists_its_own_values(capsys: Captured) -> None:
    ended = call(capsys, "train", "tiny-lory", "--help")
    assert (ended.code, ended.err) == (0, "")
    for name, value in {"steps": 60, "model.num_experts": 4, "routing.segment_length": 64}.items():
        _, found, listed = ended.out.partition(f"--{name} ")
        assert found
        assert listed.partition("--")[0].rstrip().endswith(f"({value})")
    assert "RECIPE --help" in call(capsys, "train", "--help").out
    assert_refused(call(capsys, "train", "tiny-lori", "--help"), "'tiny-lori'", "tiny-lory")
