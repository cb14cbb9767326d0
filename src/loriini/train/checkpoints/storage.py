"""Checkpoints by torch.distributed.checkpoint: a safetensors file per process, written in the background.

A checkpoint is a folder `step-XXXXXXXX`: a safetensors file from every process, whose header says where its
shards lie in the whole tensors, and `state.json`. It is written to a temporary folder, hashed by the
processes that wrote its files, synced and renamed, and can be read by any number of processes in any mesh.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future as TorchFuture

from loriini.common.atomic import commit, unfinished, write_json
from loriini.common.checks import Count, CountOrZero, check_fields
from loriini.common.errors import InputError
from loriini.common.hardware import pick_device
from loriini.common.json_file import without_nan
from loriini.common.progress import warn
from loriini.common.settings import Needs, setting
from loriini.common.weights import check_weights
from loriini.data.jobs.artifact import file_hashes
from loriini.model import LoriiniForCausalLM
from loriini.parallel.mesh import SINGLE_PROCESS, Parallel
from loriini.train.checkpoints.state import NAME, STATE, checkpoints_in, superseded
from loriini.train.run_progress import RunProgress


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written, and how many are kept."""

    every: CountOrZero = 200
    """Steps between checkpoints; there is also one after the last. 0: only if stopped early or evaluated."""
    keep: Count = 2
    """How many of the newest checkpoints are kept; if the run is evaluated, the best is kept too."""
    keep_every: CountOrZero = setting(
        0,
        needs=Needs(
            "a multiple of --checkpoint.every or, with --heldout, of --evaluate.every",
            lambda run: any(
                every and run.checkpoint.keep_every % every == 0
                for every in (run.checkpoint.every, run.evaluate.heldout and run.evaluate.every)
            ),
        ),
    )
    """Steps between checkpoints that are kept besides the newest; 0: none."""

    def __post_init__(self) -> None:
        check_fields(self, "checkpoint.")

    def due(self, step: int, steps: int) -> bool:
        """Whether a checkpoint is due after `step` of `steps`, even if not stopped or evaluated there."""
        return self.every > 0 and (step % self.every == 0 or step == steps)


MOMENTS = ("exp_avg", "exp_avg_sq")
OPTIMIZER_PREFIX = "optimizer."
"""How the names of the optimizer's state begin in a checkpoint."""


class CheckpointWriter:
    """Writes checkpoints into `folder` in the background, one at a time; a context manager.

    Keeps as many as `kept` says, and the one of lowest score. Each records the `settings` of the run that
    wrote it. An OSError in writing is only warned of, since a full disk may soon have room, but raised for a
    second checkpoint in a row or the last one. Entering the context removes what killed writes left: only one
    job at a time may write there. Leaving it waits for the last checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        kept: CheckpointConfig,
        parallel: Parallel = SINGLE_PROCESS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.kept, self.parallel, self.settings = folder, kept, parallel, settings
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._failed = False
        """Whether the previous checkpoint failed; a second failure in a row is an error."""

    def __enter__(self) -> Self:
        for path in self.folder.glob(".step-*.unfinished") if self.parallel.first else ():
            if re.fullmatch(rf"\.{NAME}\.unfinished", path.name):
                shutil.rmtree(path, ignore_errors=True)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def wait(self) -> None:
        """Wait for the checkpoint being written; raises its error, if any."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def save(
        self,
        model: LoriiniForCausalLM,
        optimizer: torch.optim.Optimizer,
        progress: RunProgress,
        score: float | None = None,
    ) -> None:
        """Begin a checkpoint once the one before is complete; returns when the state has been copied.

        `score` is the model's score in an evaluation, the lower the better; None: not evaluated.
        """
        try:
            self.wait()
            self._failed = False
        except OSError:
            if self._failed:
                raise
            self._failed = True
        final = self.folder / f"step-{progress.step:08d}"
        state = {
            "progress": asdict(progress),
            "score": without_nan(score),
            "run": self.settings,
            "model": json.loads(model.config.to_json_string(use_diff=False)),
        }
        tensors = tensors_of(model, optimizer, self.parallel)
        written = write_files(unfinished(final), tensors, state, self.parallel)
        self._pending = self._thread.submit(self._finish, written, final)

    def _finish(self, written: Future[Any], final: Path) -> None:
        """Wait for all processes' files; then the first one renames their folder, and drops old ones."""
        temporary = unfinished(final)
        try:
            try:
                written.result()
            except CheckpointException as error:  # a BaseException; its causes are those of the processes
                cause, _ = next(iter(error.failures.values()))
                raise cause from error
            if not self.parallel.first:
                return
            shutil.rmtree(final, ignore_errors=True)
            commit(temporary, final)
        except Exception as error:
            if self.parallel.first:
                shutil.rmtree(temporary, ignore_errors=True)  # the disk may be full
                if isinstance(error, OSError):
                    warn(f"{final}: not written ({error}); the next checkpoint is tried when it is due")
            raise
        for old in superseded(checkpoints_in(self.folder), self.kept.keep, self.kept.keep_every):
            try:
                shutil.rmtree(old)
            except OSError as error:
                warn(f"{old}: not removed ({error}); the next checkpoint tries again")


@dataclass(frozen=True)
class HashedResult(WriteResult):
    """A tensor's result, with the SHA-256 of the files that its process wrote, by name."""

    sha256: Mapping[str, str]


class CheckpointFiles(HuggingFaceStorageWriter):
    """The files of a checkpoint: each process writes and hashes its own, then the first one `state.json`.

    The first process gathers all results to know that all have written; the hashes come with them.
    """

    def __init__(self, folder: Path, state: Mapping[str, Any]) -> None:
        super().__init__(str(folder), save_distributed=True)
        self.folder, self.state, self.device = folder, state, pick_device()

    def stage(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Contiguous copies of the tensors on the CPU; torch's own method copies sharded tensors twice."""
        how = {"copy": True, "memory_format": torch.contiguous_format}
        return {name: tensor.detach().to("cpu", **how) for name, tensor in state_dict.items()}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """Write and hash this process's file; every tensor's result is a `HashedResult`.

        torch would write the same file, but would first build all of it in memory, and let training wait
        meanwhile.
        """
        name = f"shard-{plan.storage_data['shard_index']:05d}-model-00001-of-00001.safetensors"
        # A thread begins on GPU 0, where torch's streams would then take memory for every process.
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            tensors = {item.index.fqn: cast(Tensor, planner.resolve_data(item)) for item in plan.items}
            write_tensors(self.folder / name, tensors, shard_offsets(plan))
        hashes = file_hashes(self.folder, [name])
        sizes = [(item.index, tensors[item.index.fqn].nbytes) for item in plan.items]
        written: TorchFuture[list[WriteResult]] = TorchFuture()
        written.set_result([HashedResult(index, size, name, hashes) for index, size in sizes])
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write `state.json`; torch calls this in the first process once all have written."""
        hashes: dict[str, str] = {}
        for result in chain.from_iterable(results):
            assert isinstance(result, HashedResult)
            hashes |= result.sha256
        write_json(self.folder / STATE, {**self.state, "sha256": hashes})


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors on the CPU to a safetensors file, and sync it; OSError where it cannot be written."""
    path.touch()
    mode = path.stat().st_mode  # safetensors leaves a file that only its owner may read
    try:
        save_file(dict(tensors), path, dict(metadata))
    except SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(mode)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def shard_offsets(plan: SavePlan) -> dict[str, str]:
    """A file's metadata: where its shards begin in the whole tensors, for `HuggingFaceStorageReader`."""
    begins = {}
    for item in plan.items:
        assert item.tensor_data is not None
        begins[item.index.fqn] = {"saved_offsets": item.tensor_data.chunk.offsets}
    return {"DCP_SHARDING_INFO": json.dumps(begins), "DCP_VERSION": "1.0", "format": "pt"}


def write_files(
    folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], parallel: Parallel
) -> Future[Any]:
    """Copy the tensors and begin to write them; the future is done when all files are written and hashed."""
    if parallel.first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)  # another process may have been faster
    _allow_single_process()
    written = async_save(
        dict(tensors),
        storage_writer=CheckpointFiles(folder, state),
        process_group=parallel.checkpoint_group,
        no_dist=parallel.mesh is None,
    )
    assert isinstance(written, Future)
    return written


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel) -> dict[str, Tensor]:
    """Everything that training changes, by name: weights, optimizer state, and this rank's random state."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for part, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"{OPTIMIZER_PREFIX}{part}.{name}"] = tensor
    tensors[f"random.{parallel.rank}"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[f"random_of_device.{parallel.rank}"] = torch.cuda.get_rng_state()
    return tensors


def restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel = SINGLE_PROCESS
) -> None:
    """Read a checkpoint, written in any mesh, into a model, its optimizer and the random state.

    The random state is unchanged where the checkpoint has none for this rank. InputError where a tensor is
    missing or of another shape.
    """
    reader = HuggingFaceStorageReader(str(path))
    saved = reader.read_metadata().state_dict_metadata
    for name, parameter in model.named_parameters():
        moments = [part for part in MOMENTS if f"{OPTIMIZER_PREFIX}{part}.{name}" in saved]
        if moments:
            until_last = MOMENTS[: MOMENTS.index(moments[-1]) + 1]  # there is no second without a first
            optimizer.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                **{part: torch.zeros_like(parameter) for part in until_last},
            }
    _allow_single_process()
    wanted = tensors_of(model, optimizer, parallel)
    tensors = {n: t for n, t in wanted.items() if n in saved or not n.startswith("random")}
    try:
        check_saved(tensors, saved)
    except ValueError as error:
        raise InputError(f"{path}: {error}; remove it to resume from an earlier checkpoint") from error
    load(
        tensors, storage_reader=reader, process_group=parallel.checkpoint_group, no_dist=parallel.mesh is None
    )
    if f"random.{parallel.rank}" in tensors:
        torch.set_rng_state(tensors[f"random.{parallel.rank}"])
    if f"random_of_device.{parallel.rank}" in tensors:
        torch.cuda.set_rng_state(tensors[f"random_of_device.{parallel.rank}"])


@torch.no_grad()
def read_weights(path: Path, model: nn.Module) -> None:
    """Read a checkpoint's weights into a model that is not sharded, without its optimizer's state.

    ValueError where a tensor is missing, of another shape, or not finite.
    """
    reader = HuggingFaceStorageReader(str(path))
    saved = reader.read_metadata().state_dict_metadata
    wanted = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    check_saved(wanted, saved)
    _allow_single_process()
    load(wanted, storage_reader=reader, no_dist=True)
    check_weights(model)


def check_saved(wanted: Mapping[str, Tensor], saved: Mapping[str, Any]) -> None:
    """ValueError where a checkpoint, by its metadata, lacks a tensor or has it in another shape."""
    for name, tensor in wanted.items():
        if name not in saved:
            raise ValueError(f"it lacks {name.removeprefix('model.')}")
        shape = getattr(saved[name], "size", None)
        if shape != tensor.shape:
            shapes = f"{tuple(shape or ())} instead of {tuple(tensor.shape)}"
            raise ValueError(f"{name.removeprefix('model.')} has shape {shapes}")


def _allow_single_process() -> None:
    """Silence torch's warning about a checkpoint by a single process."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
