"""The command line: results on standard output, one line for wrong input, the exit codes of the contract."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import TRAIN, Ended, Made, assert_refused, call
from loriini import __version__
from loriini.cli.machine import LESS_MEMORY
from loriini.common.errors import WorkerDied
from runs import after_step, metrics, signal_self


def loriini(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The real entry point."""
    command = [sys.executable, "-m", "loriini", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_real_entry_point() -> None:
    done = loriini("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"loriini {__version__}\n", "")
    done = loriini("prepare", "c", "--documents", "d", "--out", os.fsdecode(b"o\xe9"))
    assert_refused(Ended(done.returncode, done.stdout, done.stderr), r"--out o\udce9: the name is not UTF-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "COMMAND"),
        ("nothing", "invalid choice: 'nothing'"),
        ("genarate RUN", "; the nearest is generate; see `loriini --help`"),
        ("inspect RUN", "no finished corpus here (it is a run); give DIR/NAME of"),
        ("inspect absent", "no finished corpus here (there is no such folder); give"),
        (
            "generate CORPUS --prompt owl",
            "no trained model here (it is a corpus, or a stage of one); give a run",
        ),
        ("train --resume CORPUS", "no run to resume here (it is a corpus, or a stage of one); start one"),
        (
            "compare dense lory --corpus CORPUS --heldout DOCUMENTS --out RUN",
            "it is a run; choose another folder",
        ),
        ("designs --colour", "unknown argument '--colour'; see `loriini designs --help`"),
        ("quickstart --desing lory", "unknown argument '--desing', the nearest is --design; see"),
        ("quickstart --steps many", "--steps: invalid int value: 'many'"),
        ("quickstart --size huge", "--size huge: unknown; choose one of: small, "),
        ("quickstart --design none", "--design none: unknown; choose one of: lory, "),
        ("quickstart --design dense", "the dense model is always trained"),
        ("quickstart --steps -1", "--steps is -1; it must be at least 1"),
        ("quickstart --documents absent", "absent: no such file or folder; check the path"),
        ("train", "give a recipe and --out RUN, or --resume RUN"),
        ("train tiny-lory", "give a recipe and --out RUN"),
        ("train tiny-lory --out", "--out: expected one argument"),
        ("train tiny-lory --out /proc/run", "--out /proc/run: nothing can be written in /proc (No such file"),
        ("evaluate RUN --documents DOCUMENTS --out /proc/e.json", "--out /proc/e.json: nothing can be writ"),
        ("train nothing --out run", "no recipe is named 'nothing'; `loriini recipes` lists them all"),
        ("train tiny-lory --out run --model.sise 8", "--model.sise: no such setting"),
        ("train tiny-lory --out run --optimizer.lr 1", "the nearest is --optimizer.learning_rate"),
        ("train tiny-lory --out run --steps", "--steps has no value"),
        ("train tiny-lory --out run --steps 0 --corpus CORPUS", "steps is 0; it must be at least 1"),
        ("train tiny-lory --out run --corpus absent", "absent: no finished corpus here"),
        ("train 0.3b-dense --out run", "needs a corpus"),
        ("train tiny-lory --dry-run --gpus 3", "batch_size is 8, not a multiple of the 3 processes"),
        ("train tiny-lory --dry-run --memory 9Q", "--memory 9Q: give it as 80GiB or 80GB"),
        ("train tiny-lory --dry-run --vocab-size 0", "--vocab-size 0: give at least 1"),
        ("train tiny-lory --dry-run --gpus 0", "--gpus 0: give at least 1"),
        ("train tiny-lory --out run --gpus 0", "--gpus: is only for estimates; add --dry-run"),
        ("train tiny-lory --out run --memory 80", "--memory: is only for estimates"),
        ("train tiny-lory --out run --vocab-size 9", "--vocab-size: is only for estimates"),
        ("train tiny-lory --out run --json", "--json: is only for estimates"),
        (
            "train tiny-lory --out run --init absent",
            "absent: no such folder; give a run, a checkpoint,",
        ),
        ("train tiny-lory --out run --init empty", "empty: no trained model here"),
        ("train tiny-lory --dry-run --init empty", "empty: no trained model here"),
        ("train tiny-lory --out run --init RUN --model.hidden_size 8", "--model.hidden_size 8: "),
        ("train tiny-dense --out run --init RUN --corpus CORPUS --warmup.dense_share 0.5", "is a mixture"),
        ("train --resume RUN --init RUN", "--init: --resume keeps"),
        ("train RUN --out run", "a run's folder; give"),
        ("train tiny-lory --out run --init RUN", "tiny-lory needs a corpus"),
        ("train absent.toml --out run", "absent.toml: cannot be read (No such file or directory)"),
        ("train bad.jsonl --out run", "bad.jsonl: not a file of settings; give FILE.toml"),
        ("train tiny-lory --resume RUN", "tiny-lory: --resume keeps the run as it is; leave this out"),
        (
            "train --resume RUN --out run",
            "--resume with --out is for another number of steps than 24; give --steps",
        ),
        ("train --resume RUN --steps 30", "a resumed run keeps its steps; leave the override out, or start"),
        (
            "train --resume RUN --parallel.experts 2",
            "--parallel.experts has no effect here: it needs several",
        ),
        ("train --resume RUN --init_digest abc", "--init_digest: no such setting"),
        ("train tiny-lory --dry-run --on-error skip", "--on-error: --dry-run trains nothing; leave this out"),
        ("train tiny-lory --dry-run --max-minutes 3", "--max-minutes: --dry-run trains nothing; leave"),
        ("train nothing --dry-run", "no recipe is named 'nothing'"),
        ("train tiny-lory --out run --max-minutes 0", "--max-minutes 0: give more than 0"),
        (
            "train tiny-dense --out run --corpus CORPUS --length 64 --heldout absent",
            "absent: no such file or folder",
        ),
        ("train tiny-lory --out run --watch.trackers print", "one of: tensorboard, wandb, trackio"),
        (
            "train tiny-lory --out run --watch.every 0 --corpus CORPUS",
            "watch.every is 0; it must be at least 1",
        ),
        ("train tiny-lory --out run --guard.max_skips 0 --corpus CORPUS", "guard.max_skips is 0"),
        ("train --resume absent", "absent: no run to resume here"),
        ("prepare c --documents absent --out .", "absent: no such file or folder"),
        ("prepare ../c --documents DOCUMENTS --out o", "'../c': a corpus's name is one folder in --out"),
        ("prepare .. --documents DOCUMENTS --out o", "'..': a corpus's name is one folder"),
        ("prepare c --documents empty --out .", "empty: no document found; give .jsonl"),
        ("prepare c --documents bad.jsonl --out .", "bad.jsonl:2: "),
        ("prepare c --documents DOCUMENTS --out . --length 99999 --tokenizer bpe:300", "shorter --length"),
        (
            "prepare c --documents DOCUMENTS --out . --order best",
            "--order is best; it must be one of: similar, plain, random",
        ),
        ("prepare c --documents DOCUMENTS --out . --tokenizer bpe:few", "bpe:few: "),
        (
            "prepare c --documents DOCUMENTS --out . --min-characters -1",
            "--min-characters is -1; it must be at least 0",
        ),
        ("prepare c --documents DOCUMENTS --out . --min-characters 999", "(240 left out: fewer than 999"),
        ("prepare c --documents DOCUMENTS:2 --out .", "the weight 2 is not in (0, 1]"),
        ("prepare c --documents DOCUMENTS --out . --on-error cry", "--on-error: invalid choice: 'cry'"),
        (
            "prepare c --documents DOCUMENTS --out . --executor cloud",
            "--executor is cloud; it must be one of: local",
        ),
        ("prepare c --documents DOCUMENTS --out . --executor slurm", "--executor-options partition="),
        ("inspect empty", "empty: no finished corpus here"),
        ("inspect PARENT", "give the folder of a corpus in it: corpus"),
        ("evaluate empty --documents DOCUMENTS", "empty: no trained model here; give a run's folder"),
        ("evaluate RUN", "give --documents PATH"),
        ("evaluate RUN --documents DOCUMENTS --skip 70", "lower --skip below 64, or raise --length"),
        ("evaluate RUN --documents DOCUMENTS DOCUMENTS", "given twice, it would count twice; leave one out"),
        ("evaluate RUN --documents absent", "absent: no such file or folder"),
        ("evaluate RUN --documents DOCUMENTS --tasks piqa", "or --tasks NAME…, one of them"),
        ("evaluate RUN --documents DOCUMENTS --num-fewshot 2", "--num-fewshot: is for --tasks; leave it out"),
        ("evaluate RUN --tasks piqa --skip 2", "--skip: is for --documents; leave it out"),
        ("evaluate RUN --tasks piqa --mask-documents", "--mask-documents: is for --documents; leave it out"),
        ("compare RUN --corpus CORPUS --out o", "--corpus: "),
        ("evaluate RUN --tasks piqa --text-field t", "--text-field: is for --documents; leave it out"),
        ("evaluate RUN --tasks piqa --limit 0", "--limit is 0; it must be at least 1"),
        (
            "evaluate RUN --tasks piqaa --tasks-data .",
            "task or group is named 'piqaa'; the nearest is piqa",
        ),
        ("evaluate RUN --tasks aoe --tasks-data .", ".: no file for task 'arc_easy'; put arc_easy.jsonl"),
        ("evaluate empty --tasks piqa --tasks-data .", "empty: no trained model here; give a run's folder"),
        ("analyze empty --documents DOCUMENTS", "empty: no trained model here"),
        ("analyze RUN --documents absent", "absent: no such file or folder"),
        ("generate absent --prompt owl", "absent: no trained model here"),
        ("generate RUN", "give --prompt TEXT or --interactive"),
        ("generate RUN --prompt owl --max-new-tokens 0", "--max-new-tokens is 0; it must be at least 1"),
        ("export absent --to hf --out o", "absent: no trained model here"),
        ("export RUN --to onnx --out o", "--to: invalid choice: 'onnx'"),
        ("export RUN --to llama --prompt-file absent --out o", "absent: not a readable text file"),
        ("export RUN --to hf --out RUN", "exists and is not empty; choose another --out"),
    ],
)
def test_wrong_input_is_one_line_and_makes_nothing(
    arguments: str,
    message: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    paths = {
        "PARENT": made.corpus.parent,
        "RUN": made.run,
        "CORPUS": made.corpus,
        "DOCUMENTS": made.documents,
    }
    for name, path in paths.items():
        arguments = arguments.replace(name, str(path))
    ended = call(capsys, *arguments.split())
    assert_refused(ended, message)
    assert not any(Path(name).exists() for name in ("run", "o", "loriini-quickstart"))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            OSError("9 requested and 3 written"),
            2,
            "the disk: 9 requested and 3 written; free some space, then",
        ),
        (OSError(errno.EIO, "Input/output error", "a"), 2, "a: Input/output error; the disk or its network"),
        (OSError(errno.EFBIG, "File too large"), 2, "the disk: File too large; free some space, then"),
        (
            PermissionError(errno.EACCES, "Permission denied", "o/c"),
            2,
            "o/c: Permission denied; grant access or",
        ),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory"),
            2,
            "the disk: Not a directory; a file is where",
        ),
        (WorkerDied("the process of read-00000 died"), 1, "the process of read-00000 died\n"),
        (MemoryError(), 2, "out of memory; lower --workers or --neighbors, or give it more memory\n"),
        (RuntimeError("std::bad_alloc"), 2, "out of memory; lower --workers or --neighbors"),
    ],
    ids=[
        *("short write", "failing disk", "large file", "permission", "no folder", "worker", "memory"),
        "a library's memory",
    ],
)
def test_an_error_of_the_machine_is_one_line(
    error: Exception,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("loriini.data.prepare.prepare.prepare", fail)
    ended = call(capsys, "prepare", "c", "--documents", "d", "--out", "o")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"loriini: {message}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("command", LESS_MEMORY)
def test_what_lowers_memory_is_an_option_of_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = call(capsys, command, "--help").out
    if command in ("train", "compare"):
        shown += call(capsys, "train", "tiny-lory", "--help").out
    options = set(re.findall(r"--\w+", LESS_MEMORY[command]))
    assert options
    assert not {option for option in options if option not in shown}


def test_after_a_full_disk_finished_stages_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("a few words of text " * 50)
    prepare = ("prepare", "c", "--documents", tmp_path / "text.txt", "--out", tmp_path)
    settings = ("--length", 16, "--tokenizer", "bpe:270", "--order", "random")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr("loriini.data.prepare.prepare.write_manifest", fail)
        assert_refused(call(capsys, *prepare, *settings), "the disk: No space left; free some space, then")
    finished = (tmp_path / "c" / "documents" / "manifest.json").stat()
    assert call(capsys, *prepare, *settings).code == 0
    assert (tmp_path / "c" / "documents" / "manifest.json").stat() == finished


@pytest.mark.parametrize(("command", "said"), [("prepare", " to resume"), ("generate", ""), ("lens", "")])
def test_only_commands_that_resume_say_so(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loriini.cli._run", interrupt)
    assert call(capsys, command).err == f"\ninterrupted; run the same command again{said}\n"


def test_an_interrupted_run_exits_with_130_and_resumes(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
