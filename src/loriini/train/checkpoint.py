"""Checkpoints by torch.distributed.checkpoint: safetensors of every process, written in the background.

A checkpoint is a folder `step-XXXXXXXX`: a safetensors file from every process, whose header says where in
the whole tensors its shards lie, and `state.json`. It is written under another name, hashed, synced and
renamed, and read by any number of processes in any mesh.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from loriini.atomic import commit, write_json
from loriini.fields import Count, CountOrZero, check_fields
from loriini.jobs.artifact import file_hash
from loriini.parallel.mesh import ALONE, Parallel
from loriini.parallel.sharding import whole_view
from loriini.progress import warn


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written, and how many are kept."""

    every: CountOrZero = 200
    """Steps between checkpoints; 0: only when interrupted."""
    keep: Count = 2
    """Checkpoints kept: the newest, and besides them the best where the run is evaluated."""

    def __post_init__(self) -> None:
        check_fields(self, "checkpoint.")


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `step` steps done, `consumed` instances and `tokens` read.

    Steps left out are included; `skips` of the last steps in a row were left out.
    """

    step: int = 0
    consumed: int = 0
    tokens: int = 0
    skips: int = 0


STATE = "state.json"


class Save(Protocol):
    """Begin to write a checkpoint, after the one before is whole; `loss` is the last evaluation's."""

    def __call__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress, loss: float | None = None
    ) -> None:
        """Copy everything that a bitwise-equal continuation needs; what follows may change the originals."""


@contextmanager
def saving(folder: Path, keep: int, parallel: Parallel = ALONE) -> Iterator[Save]:
    """`with saving(folder, keep) as save:` writes checkpoints in the background, and waits for the last."""
    pending: list[Future[None]] = []

    def wait() -> None:
        while pending:
            pending.pop().result()

    def save(
        model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress, loss: float | None = None
    ) -> None:
        wait()
        state = {"progress": asdict(at), "loss": loss}
        written = begin(unfinished(folder, at), tensors_of(model, optimizer, parallel), parallel)
        pending.append(background.submit(finish, written, folder, at, state, keep, parallel))

    with ThreadPoolExecutor(1) as background:
        try:
            yield save
        finally:
            wait()


def unfinished(folder: Path, at: Progress) -> Path:
    """Where a checkpoint lies until it is whole."""
    return folder / f".step-{at.step:08d}.unfinished"


def begin(folder: Path, tensors: Mapping[str, Tensor], parallel: Parallel) -> Future[Any]:
    """Copy the tensors and begin to write them; the future is done when every process has."""
    if parallel.first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)  # another process may have been faster
    _let_one_be_alone()
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    written = async_save(
        dict(tensors),
        storage_writer=writer,
        process_group=parallel.files,
        no_dist=parallel.mesh is None,
    )
    assert isinstance(written, Future)
    return written


def finish(
    written: Future[Any], folder: Path, at: Progress, state: dict[str, Any], keep: int, parallel: Parallel
) -> None:
    """Wait for the files; then the first process hashes them, gives them their name and drops old ones."""
    written.result()
    if not parallel.first:
        return
    temporary, final = unfinished(folder, at), folder / f"step-{at.step:08d}"
    files = sorted(temporary.iterdir())
    write_json(temporary / STATE, {**state, "sha256": {path.name: file_hash(path) for path in files}})
    shutil.rmtree(final, ignore_errors=True)
    commit(temporary, final)
    for old in superseded(final, keep):
        shutil.rmtree(old)


def superseded(written: Path, keep: int) -> list[Path]:
    """All but the last `keep` checkpoints up to the one just written, and the one of lowest evaluation loss.

    Later ones do not count: the run went on from before them, so they are damaged.
    """
    found = sorted(path for path in written.parent.glob("step-*") if path <= written)
    losses = {path: read_state(path).get("loss") for path in found}
    measured = [(loss, path) for path, loss in losses.items() if loss is not None]
    best = min(measured)[1] if measured else None
    return [path for path in found[:-keep] if path != best]


def read_state(path: Path) -> dict[str, Any]:
    """A checkpoint's JSON; nothing where it cannot be read."""
    try:
        state = json.loads((path / STATE).read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def newest(folder: Path) -> tuple[Path, Progress] | None:
    """The newest whole checkpoint and its progress. A damaged one is named and passed over."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        state = read_state(path)
        damage = damage_of(path, state.get("sha256"))
        if damage is None:
            return path, Progress(**state["progress"])
        warn(f"{path}: damaged checkpoint passed over ({damage})")
    return None


def damage_of(path: Path, hashes: Any) -> str | None:
    """What is wrong with the files of a checkpoint; None: nothing."""
    if not hashes or not isinstance(hashes, dict):
        return f"{STATE} cannot be read"
    for name, expected in hashes.items():
        try:
            if file_hash(path / name) != expected:
                return f"{name} does not match its hash"
        except OSError as error:
            return str(error)
    return None


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel) -> dict[str, Tensor]:
    """Everything that changes in training, by name, as parts of whole tensors that share its memory."""
    view = whole_view(model, parallel)
    tensors = {f"model.{name}": view(name, tensor) for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for part, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{part}.{name}"] = view(name, tensor)
    tensors[f"random.{parallel.rank}"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[f"random_of_device.{parallel.rank}"] = torch.cuda.get_rng_state()
    return tensors


def restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel = ALONE
) -> None:
    """Read a checkpoint into a model, its optimizer and the random state, whatever mesh it was written in.

    The random state comes back where the checkpoint has one of this rank.
    """
    reader = HuggingFaceStorageReader(str(path))
    there = reader.read_metadata().state_dict_metadata
    for name, parameter in model.named_parameters():
        parts = [part for part in ("step", "exp_avg", "exp_avg_sq") if f"optimizer.{part}.{name}" in there]
        optimizer.state[parameter] = {
            part: torch.zeros((), device=parameter.device) if part == "step" else torch.zeros_like(parameter)
            for part in parts
        }
    _let_one_be_alone()
    wanted = tensors_of(model, optimizer, parallel)
    tensors = {n: t for n, t in wanted.items() if n in there or not n.startswith("random")}
    load(tensors, storage_reader=reader, process_group=parallel.files, no_dist=parallel.mesh is None)
    if f"random.{parallel.rank}" in tensors:
        torch.set_rng_state(tensors[f"random.{parallel.rank}"])
    if f"random_of_device.{parallel.rank}" in tensors:
        torch.cuda.set_rng_state(tensors[f"random_of_device.{parallel.rank}"])


def _let_one_be_alone() -> None:
    """torch warns of a checkpoint without other processes; here that is meant."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
