"""The trainings of a comparison as processes of this machine, each a resumable run folder."""

import math
import os
import shlex
import signal
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from importlib import import_module
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import torch

from loriini.common.errors import InputError, WorkerDied
from loriini.common.extension import extension_arguments
from loriini.common.hardware import JOBS_HERE, visible_gpus
from loriini.common.progress import Advance, inform, progress, warn
from loriini.common.signals import Interrupted, deferred_interrupts
from loriini.compare.trainings import Training
from loriini.data.jobs.processes import starting_processes
from loriini.reporting.curves import training_seconds
from loriini.train.corpora import read_corpora
from loriini.train.folder import claim_run, make_folder
from loriini.train.loop import loss_and_speed
from loriini.train.records.metrics import METRICS, last_record, read_records

LOG = "train.log"
POLL_SECONDS = 0.1
PRELOADED = [__name__, "loriini.cli.train", "loriini.train.launch"]
"""Modules that the fork server imports once, for all trainings that are forked from it."""


def train_all(trainings: Sequence[Training], jobs: int = 1) -> dict[Path, str]:
    """Train what is not done, `jobs` at once with the cores divided among them.

    Returns run folder → why it failed; the others continue. A run that diverges is not a failure. InputError
    for more `jobs` than cores; Interrupted after SIGINT or SIGTERM, once every running training is saved.
    """
    check_jobs(jobs)
    left = [training for training in trainings if not training.is_done]
    inform(f"{len(trainings)} trainings, {len(left)} of them not done, {jobs} at once")
    with progress("trainings", len(trainings)) as advance:
        advance(len(trainings) - len(left))
        return _run_processes(left, jobs, advance)


def refuse_failures(trainings: Sequence[Training], failures: Mapping[Path, str]) -> None:
    """WorkerDied that names the trainings that failed, if there are any."""
    if failures:
        names = {training.folder: training.name for training in trainings}
        failed = [f"{names.get(folder, folder.name)}: {reason}" for folder, reason in failures.items()]
        raise WorkerDied(
            f"{len(failed)} of {len(trainings)} trainings failed ({'; '.join(failed)}); the same command "
            "tries them again"
        )


def training_commands(trainings: Iterable[Training]) -> list[str]:
    """Make the folders of trainings that are not done; the commands, for machines that see these folders."""
    left = [training for training in trainings if not training.is_done]
    for training in left:
        claim_training(training)
    return [shlex.join(["loriini", *resuming(training.folder.resolve())]) for training in left]


def claim_training(training: Training) -> None:
    """Make a training's folder with its run's settings, if there is none."""
    run = training.run
    corpus = read_corpora(run.corpus, run.corpus_weights)
    make_folder(run, corpus, training.folder)
    claim_run(run, corpus, training.folder)


def resuming(folder: Path) -> list[str]:
    """The arguments that start or resume the run in a folder."""
    return ["train", "--resume", str(folder), *extension_arguments()]


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_jobs(jobs: int) -> None:
    """InputError for fewer trainings at once than one, and for more than there are cores."""
    if not 1 <= jobs <= available_cores():
        raise InputError(f"--jobs {jobs}: give 1 to {available_cores()}, the cores of this machine")


def threads_of(jobs: int) -> int:
    """Threads of each of `jobs` processes: an equal share of the cores, at most OMP_NUM_THREADS."""
    most = os.environ.get("OMP_NUM_THREADS", "")
    share = available_cores() // jobs
    return max(1, min(share, int(most)) if most.isdigit() else share)


class _Process(NamedTuple):
    """A training and the process that runs it."""

    training: Training
    process: BaseProcess
    shown: Generator[None]
    """Its progress, from `steps_shown`."""


def _run_processes(trainings: Sequence[Training], jobs: int, advance: Advance) -> dict[Path, str]:
    """`loriini train --resume` for each of the trainings, `jobs` at once; see `train_all`."""
    waiting, failures = deque(trainings), dict[Path, str]()
    running: dict[int, _Process] = {}  # by slot, 0 to jobs - 1
    with deferred_interrupts() as interrupted:
        try:
            while waiting or running:
                for slot in [slot for slot in range(jobs) if slot not in running][: len(waiting)]:
                    training = waiting.popleft()
                    process = start_training(training, environment_of(slot, jobs))
                    running[slot] = _Process(training, process, steps_shown(training))
                time.sleep(POLL_SECONDS)
                if interrupted():
                    ended = len(trainings) - len(waiting) - len(running)
                    raise Interrupted(
                        f"{ended} of {len(trainings)} trainings ended, those at work are saved; run the same "
                        "command again to resume"
                    )
                for each in running.values():
                    next(each.shown)
                for slot in [slot for slot, each in running.items() if each.process.exitcode is not None]:
                    each = running.pop(slot)
                    each.shown.close()
                    advance()
                    if reason := _show_end(each, len(waiting) + len(running)):
                        failures[each.training.folder] = reason
        finally:  # every process saves before it ends
            for each in running.values():
                each.process.terminate()
            for each in running.values():
                each.process.join()
                each.shown.close()
    return failures


def _show_end(ended: _Process, left: int) -> str:
    """Print how a training ended; returns why it failed, or ""."""
    training, code = ended.training, ended.process.exitcode
    if code and not training.is_done:
        reason = failure(code, training.folder / LOG)
        warn(f"{training.name} failed, {left} left: {reason}")
        return reason
    inform(f"{training.name}: {training_state(training)} ({left} left)")
    return ""


def steps_shown(training: Training) -> Generator[None]:
    """A generator that shows a training's progress from its metrics at each `next`, until it is closed."""
    before = 0
    with progress(training.name, training.run.steps) as advance:
        while True:
            last = last_record(training.folder / METRICS)
            if last and last["step"] > before:
                advance(last["step"] - before, loss_and_speed(last))
                before = last["step"]
            yield


def environment_of(slot: int, jobs: int) -> dict[str, str]:
    """The environment of one of `jobs` processes: its threads, its GPU, and how many share the memory."""
    gpus = visible_gpus()
    place = {"OMP_NUM_THREADS": str(threads_of(jobs)), JOBS_HERE: str(math.ceil(jobs / max(1, len(gpus))))}
    return place | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})


def start_training(training: Training, place: Mapping[str, str]) -> BaseProcess:
    """Start or resume a training as `loriini train --resume FOLDER`; its output is appended to LOG there."""
    claim_training(training)
    forkserver.set_forkserver_preload(PRELOADED)
    with starting_processes(place):
        forkserver.ensure_running()
    arguments = (resuming(training.folder), training.folder / LOG, {**os.environ, **place})
    process = get_context("forkserver").Process(target=run_command, args=arguments)
    process.start()
    return process


def run_command(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run `loriini ARGUMENTS` in this forked process, which stops when its parent is gone."""
    with open(log, "ab") as file:
        os.dup2(os.dup2(file.fileno(), 1), 2)
    if os.environ.get("OMP_NUM_THREADS") != (threads := environment["OMP_NUM_THREADS"]):
        torch.set_num_threads(int(threads))  # torch was imported with another number of threads
    os.environ.update(environment)
    Thread(target=stop_with_parent, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    import_module("loriini.__main__").main(arguments)


def stop_with_parent() -> None:
    """Once this process's parent is gone, end as by SIGTERM, with everything saved."""
    if parent := parent_process():
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def training_state(training: Training) -> str:
    """How a run ended: its last loss and its seconds of training."""
    metrics = read_records(training.folder / METRICS)
    if training.state == "diverged":
        return f"diverged after {len(metrics)} steps"
    loss = metrics[-1]["loss"]
    return f"finished, loss {math.nan if loss is None else loss:.3f}, {training_seconds(metrics).sum():.0f} s"


def failure(code: int, log: Path) -> str:
    """Why a process failed: the signal that killed it, or the last line of its log."""
    if code < 0:  # the log's last line does not say why
        return f"killed by signal {-code}" + ("; is there enough memory?" if code == -signal.SIGKILL else "")
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    return text.splitlines()[-1].strip() if text else f"exit code {code}"
