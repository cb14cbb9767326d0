"""Training of a comparison's cells as processes of this machine, each a resumable run folder."""

import math
import os
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import SIGKILL
from typing import Literal

from loriini.common.errors import InputError, WorkerDied
from loriini.common.extension import extension_arguments
from loriini.common.hardware import JOBS_HERE, visible_gpus
from loriini.common.hub import RUN
from loriini.common.progress import Advance, inform, progress, warn
from loriini.common.signals import Interrupted, deferred_interrupts
from loriini.compare.cells import Cell
from loriini.data.jobs.lock import AT_WORK, FolderLocked, folder_lock
from loriini.train.corpora import read_corpora
from loriini.train.folder import check_length, claim_run, has_model, make_folder
from loriini.train.loop import train
from loriini.train.records.metrics import METRICS, read_records

State = Literal["new", "started", "finished", "diverged"]
LOG = "train.log"
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Trial:
    """A cell and the folder of its run."""

    cell: Cell
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.cell.variant}, seed {self.cell.seed}"

    @property
    def state(self) -> State:
        """The state of its run; `diverged`: stopped after too many skipped steps in a row."""
        if has_model(self.folder):
            return "finished"
        if not (self.folder / RUN).exists():
            return "new"
        most = self.cell.run.guard.max_skips  # may be more than before: then the run goes on
        last = read_records(self.folder / METRICS)[-most:]
        return "diverged" if len(last) == most and all(step["skipped"] for step in last) else "started"

    @property
    def is_done(self) -> bool:
        """Whether its training ended, with a model or by diverging, so that there is something to measure."""
        return self.state in ("finished", "diverged")


def place_cells(cells: Iterable[Cell], folder: Path) -> list[Trial]:
    """The cells with their run folders in `folder`: one made for the same settings, or a new one.

    InputError for a cell that its corpus does not fit.
    """
    trials, opened = [], cache(read_corpora)
    for cell in cells:
        corpus = opened(cell.run.corpus, cell.run.corpus_weights)
        try:
            cell.run.check(cell.run.label_names(corpus.instances))
            check_length(cell.run, corpus)
        except InputError as error:
            raise InputError(f"{cell.variant}: {error}") from error
        name = cell.folder_name(corpus)
        made = sorted(folder.glob(f"*-seed{cell.seed}-{name.rpartition('-')[2]}"))
        trials.append(Trial(cell, made[0] if made else folder / name))
    return trials


def train_trials(
    trials: Sequence[Trial], jobs: int = 1, on_end: Callable[[Trial], None] | None = None
) -> dict[Path, str]:
    """Train what is not done, `jobs` at once with the cores divided among them; returns why cells failed.

    `on_end` is called with each of these when it ends. The others continue when one fails. A run that
    diverges is not a failure. InputError if there are more `jobs` than cores; Interrupted after SIGINT or
    SIGTERM, once every running cell is saved.
    """
    check_jobs(jobs)
    left = [trial for trial in trials if not trial.is_done]
    inform(f"{len(trials)} trainings, {len(left)} of them not done, {jobs} at once")
    with progress("trainings", len(trials)) as advance:
        advance(len(trials) - len(left))
        return _Processes(left, jobs, advance, on_end).run() if left else {}


def train_here(trial: Trial) -> None:
    """Train in this process, unless it is done."""
    if not trial.is_done:
        run = trial.cell.run
        train(run, read_corpora(run.corpus, run.corpus_weights), trial.folder)


def refuse_failures(trials: Sequence[Trial], failures: Mapping[Path, str]) -> None:
    """WorkerDied that names the trainings that failed, if there are any."""
    if failures:
        names = {trial.folder: trial.name for trial in trials}
        failed = [f"{names.get(folder, folder.name)}: {reason}" for folder, reason in failures.items()]
        raise WorkerDied(
            f"{len(failed)} of {len(trials)} trainings failed ({'; '.join(failed)}); the same command tries "
            "them again"
        )


def training_commands(trials: Iterable[Trial]) -> list[str]:
    """A command for each trial that is not done, for other machines that see its folder and its corpus."""
    left = [trial for trial in trials if not trial.is_done]
    for trial in left:
        claim_trial(trial)
    return [shlex.join(["loriini", *resuming(trial.folder.resolve())]) for trial in left]


def claim_trial(trial: Trial) -> None:
    """Make a trial's folder with its run's settings, if there is none."""
    run = trial.cell.run
    corpus = read_corpora(run.corpus, run.corpus_weights)
    make_folder(run, corpus, trial.folder)
    claim_run(run, corpus, trial.folder)


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


class _Processes:
    """`loriini train --resume` for each of the trials, as many at once as there are jobs."""

    def __init__(
        self, trials: Sequence[Trial], jobs: int, advance: Advance, on_end: Callable[[Trial], None] | None
    ) -> None:
        self.waiting, self.jobs, self.advance, self.on_end = deque(trials), jobs, advance, on_end
        self.num_trials, self.num_ended = len(trials), 0
        self.running: list[tuple[Trial, subprocess.Popen[bytes], int]] = []
        self.failures: dict[Path, str] = {}

    def run(self) -> dict[Path, str]:
        with deferred_interrupts() as interrupted:
            try:
                while self.waiting or self.running:
                    self._start()
                    time.sleep(POLL_SECONDS)
                    if interrupted():
                        raise Interrupted(
                            f"{self.num_ended} of {self.num_trials} trainings ended, those at work are "
                            "saved; run the same command again to resume"
                        )
                    self._collect()
            finally:
                self._stop()
        return self.failures

    def _start(self) -> None:
        """Start waiting trials while there is room; those that another process trains wait on."""
        for _ in range(len(self.waiting)):
            if len(self.running) == self.jobs:
                return
            trial = self.waiting.popleft()
            if _is_locked(trial.folder):
                self.waiting.append(trial)
            elif trial.is_done:  # by another process
                self._end(trial)
            else:
                taken = {slot for _, _, slot in self.running}
                slot = next(slot for slot in range(self.jobs) if slot not in taken)
                self.running.append((trial, start_training(trial, place_of(slot, self.jobs)), slot))

    def _collect(self) -> None:
        for job in list(self.running):
            trial, process, _ = job
            code = process.poll()
            if code is None:
                continue
            self.running.remove(job)
            reason = failure(code, trial.folder / LOG) if code else ""
            if AT_WORK in reason:  # another process began it, or looked whether it is locked, in this moment
                self.waiting.append(trial)
                continue
            if reason and not trial.is_done:
                self.failures[trial.folder] = reason
            self._end(trial)

    def _end(self, trial: Trial) -> None:
        """Report a trial that ended, in a line."""
        self.num_ended += 1
        self.advance()
        left = f"{self.num_trials - self.num_ended} left"
        if reason := self.failures.get(trial.folder):
            warn(f"{trial.name} failed, {left}: {reason}")
        else:
            inform(f"{trial.name}: {training_state(trial)} ({left})")
        if self.on_end is not None:
            self.on_end(trial)

    def _stop(self) -> None:
        """End what still runs; every process saves first."""
        for _, process, _ in self.running:
            process.terminate()
        for _, process, _ in self.running:
            process.wait()


def place_of(slot: int, jobs: int) -> dict[str, str]:
    """The environment of one of `jobs` processes: its threads, its GPU, and how many share the memory."""
    gpus = visible_gpus()
    place = {"OMP_NUM_THREADS": str(threads_of(jobs)), JOBS_HERE: str(math.ceil(jobs / max(1, len(gpus))))}
    return place | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})


def start_training(trial: Trial, place: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start or resume a cell as `loriini train --resume FOLDER`; what it prints is added to LOG there."""
    claim_trial(trial)
    with open(trial.folder / LOG, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "loriini", *resuming(trial.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **place},
        )


def training_state(trial: Trial) -> str:
    """How a run ended: its last loss and its seconds of training."""
    metrics = read_records(trial.folder / METRICS)
    if trial.state == "diverged":
        return f"diverged after {len(metrics)} steps"
    seconds = sum(training_seconds(metrics))
    loss = metrics[-1]["loss"]
    return f"finished, loss {math.nan if loss is None else loss:.3f}, {seconds:.0f} s"


def training_seconds(metrics: Sequence[dict[str, float]]) -> list[float]:
    """Seconds of each step, evaluations and checkpoints not counted."""
    before, seconds = 0.0, []
    for step in metrics:
        seconds.append((step["tokens"] - before) / step["tokens_per_second"])
        before = step["tokens"]
    return seconds


def failure(code: int, log: Path) -> str:
    """Why a process failed: the signal that killed it, or the last line of its log."""
    if code < 0:  # then the log ends somewhere in its work
        return f"killed by signal {-code}" + ("; is there enough memory?" if code == -SIGKILL else "")
    return last_line(log) or f"exit code {code}"


def last_line(path: Path) -> str:
    """The last line of a log that is not empty."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _is_locked(folder: Path) -> bool:
    """Whether another process is training in a folder."""
    if not folder.exists():
        return False
    try:
        with folder_lock(folder):
            return False
    except FolderLocked:
        return True
