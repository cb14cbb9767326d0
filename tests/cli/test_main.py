"""The command line: results on standard output, one line for wrong input, the exit codes of the contract."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import TRAIN, Ended, Made, assert_refused, call
from loriini.errors import WorkerDied
from loriini.routing import DESIGNS
from runs import after_step, metrics, signal_self


def loriini(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The real entry point."""
    command = [sys.executable, "-m", "loriini", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_real_entry_point_prints_results_and_exits_with_zero() -> None:
    done = loriini("designs", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["name"] for row in json.loads(done.stdout)] == list(DESIGNS)


def test_the_real_entry_point_exits_with_two_for_wrong_input(tmp_path: Path) -> None:
    done = loriini("generate", str(tmp_path / "absent"), "--prompt", "the owl")
    assert_refused(Ended(done.returncode, done.stdout, done.stderr), "absent: no trained model here")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "COMMAND"),
        ("nothing", "invalid choice: 'nothing'"),
        ("designs --colour", "unknown argument '--colour'"),
        ("quickstart --steps many", "--steps: invalid int value: 'many'"),
        ("quickstart --size huge", "--size huge: there is none of this name; choose small, "),
        ("quickstart --design none", "--design none: there is none of this name; choose dense, "),
        ("quickstart --design dense", "the dense model is trained anyway"),
        ("quickstart --steps -1", "--steps -1: give a positive number"),
        ("quickstart --documents absent", "absent: no such file or folder; check the path"),
        ("train", "give a recipe and --out RUN, or --resume RUN"),
        ("train tiny-lory", "give a recipe and --out RUN"),
        ("train tiny-lory --out", "--out: expected one argument"),
        ("train nothing --out run", "no recipe is named 'nothing'; `loriini recipes` lists them all"),
        ("train tiny-lory --out run --model.sise 8", "--model.sise 8: there is no 'sise' here"),
        ("train tiny-lory --out run --steps", "--steps has no value"),
        ("train tiny-lory --out run --steps 0 --corpus CORPUS", "steps is 0; it must be at least 1"),
        ("train tiny-lory --out run --corpus absent", "absent: no finished corpus here"),
        ("train 0.3b-dense --out run", "needs a corpus"),
        ("train tiny-lory --dry-run --gpus 3", "batch_size is 8, no multiple of the 3 processes"),
        ("train tiny-lory --dry-run --memory 9Q", "--memory 9Q: give it as 80GiB or 80GB"),
        ("train tiny-lory --dry-run --memory 0.001", "tiny-lory does not fit: each of 1 GPUs would hold"),
        ("train tiny-lory --dry-run --vocab-size 0", "--vocab-size 0: give at least 1"),
        ("train tiny-lory --dry-run --gpus 0", "--gpus 0: give at least 1"),
        ("train tiny-lory --out run --gpus 0", "--gpus: is of an estimate; add --dry-run or leave it out"),
        ("train tiny-lory --out run --memory 80", "--memory: is of an estimate"),
        ("train tiny-lory --out run --vocab-size 9", "--vocab-size: is of an estimate"),
        ("train tiny-lory --out run --json", "--json: is of an estimate"),
        ("train tiny-lory --resume RUN", "tiny-lory: --resume goes on with the run as it is; leave it out"),
        ("train --resume RUN --out run", "--out: --resume goes on"),
        ("train --resume RUN --corpus CORPUS", "--corpus: --resume goes on"),
        ("train --resume RUN --heldout DOCUMENTS", "--heldout: --resume goes on"),
        ("train nothing --dry-run", "no recipe is named 'nothing'"),
        ("train tiny-lory --out run --max-minutes 0", "--max-minutes 0: give more than 0"),
        ("train tiny-lory --out run --corpus CORPUS --heldout absent", "absent: no such file or folder"),
        ("train tiny-lory --out run --watch.sinks print", "one of: tensorboard, wandb, trackio"),
        (
            "train tiny-lory --out run --watch.every 0 --corpus CORPUS",
            "watch.every is 0; it must be at least 1",
        ),
        ("train tiny-lory --out run --guard.max_skips 0 --corpus CORPUS", "guard.max_skips is 0"),
        ("train --resume absent", "absent: no run to resume here"),
        ("prepare c --documents absent --out .", "absent: no such file or folder"),
        ("prepare ../c --documents DOCUMENTS --out o", "'../c': a corpus's name is one folder in --out"),
        ("prepare .. --documents DOCUMENTS --out o", "'..': a corpus's name is one folder"),
        ("prepare c --documents DOCUMENTS --out o\udce9", r"--out o\udce9: the name is not UTF-8"),
        ("prepare c --documents empty --out .", "empty: no document found; give .jsonl"),
        ("prepare c --documents bad.jsonl --out .", "bad.jsonl:2: "),
        ("prepare c --documents DOCUMENTS --out . --length 99999 --tokenizer bpe:300", "shorter --length"),
        ("prepare c --documents DOCUMENTS --out . --order best", "order 'best' is unknown"),
        ("prepare c --documents DOCUMENTS --out . --tokenizer bpe:few", "bpe:few: "),
        ("prepare c --documents DOCUMENTS --out . --max-document-characters 0", "it must be at least 1"),
        ("prepare c --documents DOCUMENTS --out . --min-characters 999", "(240 left out: fewer than 999"),
        ("prepare c --documents DOCUMENTS:2 --out .", "the weight 2 is not in (0, 1]"),
        ("prepare c --documents DOCUMENTS --out . --on-error cry", "--on-error: invalid choice: 'cry'"),
        ("prepare c --documents DOCUMENTS --out . --executor cloud", "executor 'cloud' is unknown"),
        ("prepare c --documents DOCUMENTS --out . --executor slurm", "--executor-options partition="),
        ("inspect empty", "empty: no finished corpus here"),
        ("evaluate empty --documents DOCUMENTS", "empty: no trained model here; give a run's folder"),
        ("evaluate RUN", "give --documents PATH"),
        ("evaluate RUN --documents absent", "absent: no such file or folder"),
        ("evaluate RUN --tasks piqa", "use --documents"),
        ("analyze empty --documents DOCUMENTS", "empty: no trained model here"),
        ("analyze RUN --documents absent", "absent: no such file or folder"),
        ("generate absent --prompt owl", "absent: no trained model here"),
        ("generate RUN", "required: --prompt"),
        ("generate RUN --prompt owl --max-new-tokens 0", "--max-new-tokens 0: give at least 1"),
        ("export absent --to hf --out o", "absent: no trained model here"),
        ("export RUN --to onnx --out o", "--to: invalid choice: 'onnx'"),
        ("export RUN --to llama --prompt-file absent --out o", "absent: not a readable text file"),
        ("export RUN --to hf --out RUN", "exists and is not empty; choose another --out"),
    ],
)
def test_wrong_input_is_told_in_one_line_and_makes_nothing(
    arguments: str,
    told: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    paths = {"RUN": made.run, "CORPUS": made.corpus, "DOCUMENTS": made.documents}
    for name, path in paths.items():
        arguments = arguments.replace(name, str(path))
    ended = call(capsys, *arguments.split())
    assert_refused(ended, told)
    assert not any(Path(name).exists() for name in ("run", "o", "loriini-quickstart"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left"),
            "the disk: No space left; free some space; the",
        ),
        (OSError("9 requested and 3 written"), "the disk: 9 requested and 3 written; free some space; the"),
        (OSError(errno.EFBIG, "File too large"), "the disk: File too large; free some space; the"),
        (PermissionError(errno.EACCES, "Permission denied"), "the disk: Permission denied; allow it, or"),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory"),
            "the disk: Not a directory; a file is where a",
        ),
    ],
)
def test_an_error_of_the_disk_is_told_and_the_finished_stages_stay(
    error: OSError,
    told: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare = ("prepare", "c", "--documents", made.documents, "--out", tmp_path)
    settings = ("--length", 64, "--tokenizer", "bpe:300", "--order", "random")

    def refuse(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("loriini.corpus.prepare.write_json", refuse)
        ended = call(capsys, *prepare, *settings)
    assert_refused(ended, told)
    finished = (tmp_path / "c" / "documents" / "manifest.json").stat()
    assert call(capsys, *prepare, *settings).code == 0
    assert (tmp_path / "c" / "documents" / "manifest.json").stat() == finished


def test_a_process_that_died_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(*arguments: object) -> None:
        raise WorkerDied("the process that did read-00000 died; rerun to go on")

    monkeypatch.setattr("loriini.corpus.prepare.prepare", die)
    ended = call(capsys, "prepare", "c", "--documents", tmp_path, "--out", tmp_path)
    assert ended == Ended(1, "", "loriini: the process that did read-00000 died; rerun to go on\n")


def test_a_path_that_is_no_text_is_printed_with_escapes(tmp_path: Path) -> None:
    done = loriini("inspect", os.fsdecode(bytes(tmp_path) + b"/\xe9"))
    assert_refused(Ended(done.returncode, done.stdout, done.stderr), r"/\udce9: no finished corpus here")


def test_an_interrupted_run_exits_with_130_and_resumes(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, *TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 5, signal_self)
        ended = call(capsys, *train)
    assert (ended.code, ended.out) == (130, "")
    assert "saved after step 5 of 24; the same command goes on" in ended.err
    assert_refused(call(capsys, "evaluate", tmp_path, "--documents", made.documents), "train --resume")
    assert call(capsys, "train", "--resume", tmp_path) == Ended(0, f"{tmp_path / 'model'}\n", "")
    assert metrics(tmp_path)[-1]["loss"] == metrics(made.run)[-1]["loss"]


def test_a_reader_that_goes_away_is_no_fault_worth_a_traceback() -> None:
    command = [sys.executable, "-m", "loriini", "recipes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
