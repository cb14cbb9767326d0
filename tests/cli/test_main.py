"""The command line: results on standard output, one line for wrong input, the exit codes of the contract."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import TRAIN, Captured, Ended, Made, assert_refused, call
from loriini import __version__
from loriini.cli import COMMANDS
from loriini.cli.command import find_commands, load_command
from loriini.common.errors import WorkerDied
from runs import after_step, interrupt, metrics, signal_self


def loriini(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The real entry point."""
    command = [sys.executable, "-m", "loriini", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_real_entry_point() -> None:
    done = loriini("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"loriini {__version__}\n", "")


WRONG = """
                                                      | COMMAND
nothing                                               | nothing
genarate RUN                                          | generate
inspect RUN                                           | it is a run
inspect PARENT                                        | corpus
quickstart --desing lory                              | --design
train                                                 | --out
train tiny-lory --out /proc/run                       | --out /proc/run
train tiny-lory --out run --optimizer.learning_rat 1  | --optimizer.learning_rate
train tiny-lory --out run --steps 0 --corpus CORPUS   | steps is 0
train 0.3b-dense --out run                            | corpus
train tiny-lory --dry-run --gpus 3                    | batch_size
train tiny-lory --dry-run --max-minutes 3             | --max-minutes
train tiny-lory --out run --init RUN                  | corpus
train tiny-dense --out run --corpus CORPUS --length 64 --heldout absent | absent
train RUN --out run                                   | --resume
train tiny-lory --resume RUN                          | tiny-lory
train --resume CORPUS                                 | it is a corpus
train --resume RUN --init RUN                         | --init
train --resume RUN --out run                          | --out
prepare c --out .                                     | --documents
prepare ../c --documents DOCUMENTS --out o            | ../c
evaluate RUN                                          | --documents
evaluate RUN --documents DOCUMENTS --skip 70          | --skip
evaluate RUN --documents DOCUMENTS --tasks piqa       | --tasks
evaluate RUN --documents DOCUMENTS --num-fewshot 2    | --num-fewshot
evaluate RUN --documents DOCUMENTS --out /proc/e.json | --out /proc/e.json
evaluate RUN --tasks piqa --contexts strung           | --contexts
compare RUN --corpus CORPUS --out o                   | --corpus
compare dense lory --corpus CORPUS --heldout DOCUMENTS --out RUN | it is a run
analyze RUN --out o                                   | --documents
generate CORPUS --prompt owl                          | it is a corpus
export RUN --to hf --out RUN                          | --out
export RUN --to llama --prompt a --prompt-file b --out o | --prompt-file
export RUN --to hf --step 7 --out o                   | --step 7
generate RUN                                          | --prompt
generate RUN --prompt a --greedy --top-p 0.5          | --top-p
generate RUN --prompt a --label z                     | --label z
lens RUN --prompt a --label z                         | --label z
lens RUN                                              | --text FILE
"""
"""A command, and what its error names."""


@pytest.mark.parametrize("row", WRONG.strip("\n").splitlines(), ids=lambda row: " ".join(row.split()))
def test_wrong_input_is_one_line_and_makes_nothing(
    row: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, _, named = map(str.strip, row.partition("|"))
    paths = {
        "PARENT": made.corpus.parent,
        "RUN": made.run,
        "CORPUS": made.corpus,
        "DOCUMENTS": made.documents,
    }
    for name, path in paths.items():
        arguments = arguments.replace(name, str(path))
    ended = call(capsys, *arguments.split())
    assert_refused(ended, named)
    assert not any(Path(name).exists() for name in ("run", "o", "loriini-quickstart"))


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError("9 requested and 3 written"), 2, "free some space"),
        (OSError(errno.EIO, "Input/output error", "a"), 2, "a: Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied", "o/c"), 2, "o/c: Permission denied"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), 2, "choose another path"),
        (WorkerDied("the process of read-00000 died"), 1, "read-00000"),
        (MemoryError(), 2, "out of memory; lower --workers"),
    ],
    ids=str,
)
def test_an_error_of_the_machine_is_one_line(
    error: Exception, code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("loriini.data.prepare.prepare.prepare", fail)
    ended = call(capsys, "prepare", "c", "--documents", "d", "--out", "o")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("loriini: ")
    assert (told in ended.err, ended.err.count("\n")) == (True, 1)


def test_what_lowers_memory_is_an_option_of_the_command(capsys: Captured) -> None:
    overrides = call(capsys, "train", "tiny-lory", "--help").out
    remedies = {
        name: getattr(load_command(e), "less_memory", "") for name, e in find_commands(COMMANDS).items()
    }
    assert sum(map(bool, remedies.values())) >= 6
    for name, remedy in remedies.items():
        shown = call(capsys, name, "--help").out + overrides * (name in ("train", "compare"))
        assert not {option for option in re.findall(r"--\w+", remedy) if option not in shown}


@pytest.mark.parametrize(("command", "said"), [("prepare", " to resume"), ("generate", ""), ("lens", "")])
def test_only_commands_that_resume_say_so(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("loriini.cli.make_command", interrupt)
    assert call(capsys, command).err == f"\ninterrupted; run the same command again{said}\n"


def test_an_interrupted_run_exits_with_130_and_resumes(made: Made, tmp_path: Path, capsys: Captured) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, *TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 5, signal_self)
        ended = call(capsys, *train)
    assert (ended.code, ended.out) == (130, "")
    assert "saved after step 5 of 24" in ended.err
    assert_refused(call(capsys, "evaluate", tmp_path, "--documents", made.documents), "train --resume")
    assert call(capsys, "train", "--resume", tmp_path) == Ended(
        0, f"{tmp_path / 'model'}\n", "tiny-lory: resumed after step 5 of 24\n"
    )
    assert metrics(tmp_path)[-1]["loss"] == metrics(made.run)[-1]["loss"]


def test_a_closed_pipe_gives_no_traceback() -> None:
    command = [sys.executable, "-m", "loriini", "--help"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": ""}, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141  # as of any program that a closed pipe ends


def test_threads_and_a_gpus_memory_are_set_up_unless_told(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = {"OMP_WAIT_POLICY": "passive", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    for name in defaults:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    call(capsys, "designs")
    assert {name: os.environ[name] for name in defaults} == defaults
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    call(capsys, "designs")
    assert os.environ["OMP_WAIT_POLICY"] == "active"
