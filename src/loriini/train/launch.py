"""From a command to a training or an estimate: of a recipe or file with overrides, or a run to resume."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.folders import CHECKPOINTS, RUN, kind_of
from loriini.common.hub import is_hub_id
from loriini.common.progress import warn
from loriini.data.read.inputs import absolute_input
from loriini.data.read.records import OnError
from loriini.estimate.estimate import Estimate, estimate
from loriini.parallel.mesh import on_first_rank, process_group
from loriini.recipes import default_vocabulary, find_recipe, is_tiny
from loriini.train.changes import changed_settings, differing
from loriini.train.checkpoints.state import checkpoints_in
from loriini.train.config import TrainConfig, read_run
from loriini.train.corpora import small_corpus, small_corpus_folder
from loriini.train.folder import has_model, report_finished
from loriini.train.initial import start_from
from loriini.train.loop import train
from loriini.train.overrides.apply import override, override_flags, overrides_of
from loriini.train.preflight import check_settings, preflight, refuse_unused

LOGS = (".log", ".out", ".err")
"""Suffixes of files that a scheduler may write into a folder before the run begins."""


@process_group()
def train_recipe(
    name: str,
    out: Path,
    corpora: Sequence[Path],
    overrides: Sequence[str],
    *,
    heldout: Sequence[str] = (),
    deadline: float = math.inf,
    init: str | None = None,
    on_error: OnError | None = None,
) -> Path:
    """Train a recipe, or the run of a file, into `out` and return its `model/` folder.

    Without `corpora`, a file's are taken, and a tiny recipe prepares a small one next to `out`. The run
    starts from the weights of `init`, a folder or Hub id, if given. `on_error` decides whether a flawed
    record of the held-out inputs stops the reading or is skipped. Raises InputError for an unknown recipe, a
    wrong override and a corpus or model that does not fit.
    """
    on_first_rank(lambda: refuse_others(out))
    run = on_first_rank(lambda: resolve_recipe(name, overrides, init, out))
    run = with_text(run, corpora, heldout, on_error)
    if not run.corpus and (run.init or not on_first_rank(lambda: is_tiny(name))):
        raise InputError(f"{name} needs a corpus: make one with `loriini prepare`, give --corpus DIR")
    check_settings(run, override_flags(overrides))
    if not run.corpus:
        small = small_corpus_folder(out.parent, run.length)
        run = with_text(run, [on_first_rank(lambda: small_corpus(small, run.length))])
    return train_run(run, out, deadline)


def resolve_recipe(
    name: str, overrides: Sequence[str], init: str | None = None, out: Path | None = None
) -> TrainConfig:
    """The run of a recipe or a file with overrides on top, which starts from the model `init` if given.

    If the run in `out` has a checkpoint and began with the same `init`, its architecture and design are used:
    that model may be gone. InputError for an unknown recipe, a wrong override, and a model that does not fit.
    """
    base = find_recipe(name)
    base_init = absolute_or_id(base.init) if base.init else None
    init = absolute_or_id(init) if init else base_init
    if not init:
        return override(base, overrides)
    if out is not None and (out / RUN).exists() and checkpoints_in(out / CHECKPOINTS):
        recorded, _ = read_run(out / RUN)
        if recorded.init == init:
            names = ("model", "routing", "warmup", "init", "init_digest")
            return override(replace(base, **{field: getattr(recorded, field) for field in names}), overrides)
    # the other overrides apply to the model's design
    based = override(base, overrides_of(("length", "init_optimizer"), overrides))
    return start_from(based, init, overrides, keep_design=init != base_init)


def absolute_or_id(name: str) -> str:
    """A folder's absolute path; a Hub id as it is."""
    return name if is_hub_id(name) else str(Path(name).expanduser().resolve())


def refuse_others(out: Path) -> None:
    """InputError for a folder without a run that holds anything but logs and hidden files."""
    if not out.is_dir() or (out / RUN).exists():
        return
    others = [p.name for p in out.iterdir() if p.suffix not in LOGS and not p.name.startswith(".")]
    if others:
        raise InputError(f"{out}: exists and holds {min(others)}, but no run; choose another --out")


def with_text(
    run: TrainConfig, corpora: Sequence[Path], heldout: Sequence[str] = (), on_error: OnError | None = None
) -> TrainConfig:
    """The run on these corpora and held-out documents, or on its own where none are given.

    All paths become absolute. InputError for `on_error` without held-out documents.
    """
    heldout = tuple(map(absolute_input, heldout or run.evaluate.heldout))
    if on_error and not heldout:
        raise InputError("--on-error: there is no --heldout to read; give it too, or leave this out")
    evaluation = replace(run.evaluate, heldout=heldout, on_error=on_error or run.evaluate.on_error)
    given, own = (path.resolve() for path in corpora), (path.absolute() for path in run.corpus)
    return replace(run, corpus=tuple(given) or tuple(own), evaluate=evaluation)


@process_group()
def resume(
    out: Path,
    *,
    overrides: Sequence[str] = (),
    deadline: float = math.inf,
    corpora: Sequence[Path] = (),
    heldout: Sequence[str] = (),
) -> Path:
    """Resume the run in `out`; `corpora` and `heldout` say where its text is now, if it was moved.

    InputError for overrides that would change what is trained, or have no effect, and for other text.
    """
    if not (out / RUN).exists():
        why = kind_of(out) or f"no {RUN}"
        raise InputError(f"{out}: no run to resume here ({why}); start one with `loriini train RECIPE`")
    before, _ = read_run(out / RUN)
    run = with_text(override(before, overrides), corpora, heldout)
    recorded, kept = before.to_dict(), run.fill_auto_from(before).to_dict()
    if changed := changed_settings(recorded, kept):
        raise InputError(
            f"--resume {out}: a resumed run keeps its {', '.join(changed)}; leave the override out, or start "
            f"a new run from it with --init {out}"
        )
    overridden = differing(recorded, run.to_dict())
    if chosen := sorted({*overridden} - {*differing(recorded, kept)}):
        raise InputError(
            f"--{chosen[0]} auto: is for new runs, and {out / RUN} has a value; give another, or leave it out"
        )
    check_settings(run, [f"--{name}" for name in overridden])
    if has_model(out) and not corpora:
        return report_finished(out)  # its corpus may be gone
    return train_run(run, out, deadline)


@process_group()
def train_run(run: TrainConfig, out: Path, deadline: float = math.inf) -> Path:
    """Check a run on its corpora, then train it and measure what it asks for; returns its `model/` folder."""
    run, corpus, measure = preflight(run, out)
    return train(run, corpus, out, measure, deadline)


def dry_run(
    name: str,
    overrides: Sequence[str],
    gpus: int = 1,
    gpu_memory: float | None = None,
    *,
    vocab_size: int | None = None,
    init: str | None = None,
    heldout: Sequence[str] = (),
) -> Estimate:
    """The `estimate` of a recipe, by default with its own vocabulary or that of the model `init`."""
    run = with_text(resolve_recipe(name, overrides, init), [], heldout)
    refuse_unused(run, override_flags(overrides), gpus)
    if vocab_size is not None and run.model.vocab_size not in (None, vocab_size):
        raise InputError(f"--vocab-size {vocab_size}: this run has {run.model.vocab_size}; leave it out")
    if run.document_mask:
        warn(
            "the estimate is of instances of one document each; with --document_mask short documents need "
            "more memory"
        )
    vocabulary = default_vocabulary(run, name) if vocab_size is None else vocab_size
    return estimate(run, vocabulary, gpus, gpu_memory)
