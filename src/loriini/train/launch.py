"""From a recipe or a file, and overrides, to a finished run; resuming a run; estimating one."""

import math
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from loriini.common.checks import as_argument
from loriini.common.errors import InputError
from loriini.common.hardware import machine_memory, resolve_precision
from loriini.common.hub import CHECKPOINTS, RUN, is_hub_id, kind_of
from loriini.common.progress import inform, warn
from loriini.data.read import OnError, absolute_input
from loriini.estimate.choice import choose, memory_here
from loriini.estimate.estimate import Estimate, estimate
from loriini.estimate.memory import GIB, GpuCluster, check_memory
from loriini.parallel.mesh import on_first_rank, process_group, world_size
from loriini.recipes import default_vocabulary, find_recipe, is_tiny
from loriini.train.checkpoints.state import checkpoints_in
from loriini.train.config import TrainConfig, read_run
from loriini.train.corpora import (
    TrainingCorpus,
    model_config,
    read_corpora,
    sampled_positions,
    small_corpus,
    small_corpus_folder,
)
from loriini.train.extend import begun_in, extend, replanned
from loriini.train.folder import changed_settings, check_length, differing, has_model, report_finished
from loriini.train.initial import start_from
from loriini.train.loop import train
from loriini.train.overrides.apply import override, override_flags, overrides_of
from loriini.train.overrides.unused import refuse_unused
from loriini.train.records.trackers import check_trackers
from loriini.train.run_measures import measures

LOGS = (".log", ".out", ".err")
"""Ends of names of files that a scheduler writes into a folder before the run is there."""


def recipe(
    name: str, overrides: Sequence[str], init: str | None = None, out: Path | None = None
) -> TrainConfig:
    """The run of a recipe or a file with overrides on top, which starts from the model `init` if given.

    If the run in `out` began with the same `init`, its architecture is taken: the model may have changed
    since, or be gone. InputError for an unknown recipe, a wrong override, and a model that does not fit.
    """
    base = find_recipe(name)
    base_init = absolute_or_id(base.init) if base.init else None
    init = absolute_or_id(init) if init else base_init
    if not init:
        return override(base, overrides)
    if (recorded := recorded_run(out)) and recorded.init == init:
        names = ("model", "routing", "warmup", "init", "init_digest")
        return override(replace(base, **{field: getattr(recorded, field) for field in names}), overrides)
    # the other overrides apply to the model's design
    length = override(base, overrides_of("--length", overrides)).length
    return start_from(replace(base, length=length), init, overrides, keep_design=init != base_init)


def recorded_run(out: Path | None) -> TrainConfig | None:
    """The run in a folder, if it has trained any further than its initial weights."""
    if out is None or not (out / RUN).exists() or not checkpoints_in(out / CHECKPOINTS):
        return None
    return read_run(out / RUN)[0]


def absolute_or_id(name: str) -> str:
    """A folder's absolute path; a Hub id as it is."""
    return name if is_hub_id(name) else str(Path(name).expanduser().resolve())


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
    with process_group():
        on_first_rank(lambda: refuse_others(out))
        run = on_first_rank(lambda: recipe(name, overrides, init, out))
        if not (corpora or run.corpus or (not run.init and on_first_rank(lambda: is_tiny(name)))):
            raise InputError(f"{name} needs a corpus: make one with `loriini prepare`, give --corpus DIR")
        run.check(processes=world_size())
        run = with_heldout(run, heldout, on_error)
        refuse_unused(run, override_flags(overrides), world_size())
        check_trackers(run.watch.trackers)
        small = small_corpus_folder(out.parent, run.length)
        corpora = corpora or run.corpus or [on_first_rank(lambda: small_corpus(small, run.length))]
        run = with_corpora(run, corpora)
        return train_run(run, out, deadline)


def refuse_others(out: Path, known: Container[str] = ()) -> None:
    """InputError for a folder that holds something other than a run, a job's logs and the `known` names."""
    if not out.is_dir() or (out / RUN).exists():
        return
    names = [path.name for path in out.iterdir() if path.suffix not in LOGS]
    others = [name for name in names if not name.startswith(".") and name not in known]
    if others:
        raise InputError(f"{out}: exists and holds {min(others)}, but no run; choose another --out")


def with_corpora(run: TrainConfig, corpora: Sequence[Path]) -> TrainConfig:
    """The run on these corpora, as absolute paths; where none are given, as it is."""
    return replace(run, corpus=tuple(path.resolve() for path in corpora)) if corpora else run


def with_heldout(run: TrainConfig, inputs: Sequence[str], on_error: OnError | None = None) -> TrainConfig:
    """The run with held-out documents, its own where none are given; paths on this machine are absolute.

    InputError for `on_error` without any.
    """
    heldout = tuple(map(absolute_input, inputs or run.evaluate.heldout))
    if on_error and not heldout:
        raise InputError("--on-error: there is no --heldout to read; give it too, or leave this out")
    evaluation = replace(run.evaluate, heldout=heldout, on_error=on_error or run.evaluate.on_error)
    return replace(run, evaluate=evaluation)


def resume(
    out: Path,
    *,
    overrides: Sequence[str] = (),
    deadline: float = math.inf,
    corpora: Sequence[Path] = (),
    heldout: Sequence[str] = (),
) -> Path:
    """Resume the run in `out`; `corpora` and `heldout` say where its text is now, if it was moved.

    InputError for overrides that would change what it trains, or nothing, and for other text.
    """
    before = run_to_resume(out)
    run = with_corpora(with_heldout(override(before, overrides), heldout), corpora)
    recorded, kept = before.to_dict(), run.chosen_as(before).to_dict()
    if changed := changed_settings(recorded, kept):
        longer = ", or from a checkpoint with --out DIR" if "steps" in changed else ""
        raise InputError(
            f"--resume {out}: a resumed run keeps its {changed}; leave the override out, or start a new run "
            f"from its weights with --init {out}{longer}"
        )
    overridden = list(differing(recorded, run.to_dict()))
    if chosen := sorted({*overridden} - {*differing(recorded, kept)}):
        raise InputError(
            f"--{chosen[0]} auto: is for new runs, and {out / RUN} has a value; give another, or leave it out"
        )
    refuse_unused(run, [f"--{name}" for name in overridden], world_size())
    if has_model(out) and not corpora:
        return report_finished(out)  # its corpus may be gone
    return train_run(run, out, deadline)


def run_to_resume(folder: Path) -> TrainConfig:
    """The run in a folder; InputError where there is none."""
    if not (folder / RUN).exists():
        why = kind_of(folder) or f"no {RUN}"
        raise InputError(f"{folder}: no run to resume here ({why}); start one with `loriini train RECIPE`")
    return read_run(folder / RUN)[0]


def train_longer(
    folder: Path,
    out: Path,
    overrides: Sequence[str],
    *,
    deadline: float = math.inf,
    corpora: Sequence[Path] = (),
    heldout: Sequence[str] = (),
) -> Path:
    """Train the run in `folder` for another number of steps, in `out`, from a checkpoint of both.

    InputError where there is none, and for overrides of anything but `--steps` and the schedule.
    """
    with process_group():
        on_first_rank(lambda: refuse_others(out, begun_in(out)))
        run = with_corpora(with_heldout(replanned(run_to_resume(folder), overrides), heldout), corpora)
        run.check(processes=world_size())
        refuse_unused(run, override_flags(overrides), world_size())
        return train_run(run, out, deadline, intact=extend(folder, run, out))


def train_run(run: TrainConfig, out: Path, deadline: float = math.inf, intact: Path | None = None) -> Path:
    """`train` a run on its corpora, with the measurements that it asks for."""
    with process_group():
        corpus = read_corpora(run.corpus, run.corpus_weights)
        run.check(run.label_names(corpus.instances), world_size())
        check_sizes(run, corpus)
        run = on_first_rank(partial(without_auto, run, corpus, out))
        finished = on_first_rank(lambda: has_model(out))  # `measures` is for all processes or for none
        measured = () if finished else measures(run, corpus)
        return train(run, corpus, out, measured, deadline, intact)


def without_auto(run: TrainConfig, corpus: TrainingCorpus, out: Path) -> TrainConfig:
    """The run with what it leaves to `auto`: as `out` has it, or else chosen for this machine."""
    if (out / RUN).exists():
        run = run.chosen_as(read_run(out / RUN)[0])
    run = replace(run, precision=resolve_precision(run.precision))
    if not run.has_auto:
        return run
    check_length(run, corpus)
    config = model_config(run, corpus)
    memory = memory_here()
    choice = choose(run, config, world_size(), memory, sampled_positions(run, corpus))
    if choice.total is not None:
        size, again = choice.run.micro_batch_size, as_argument(choice.run.model.recompute_merge)
        text = f"micro_batch_size {size}, recompute_merge {again}: {choice.total / GIB:,.1f} GiB estimated"
        (inform if choice.total <= memory else warn)(f"{text} of {memory / GIB:,.1f}")
    return run.chosen_as(choice.run)


def check_sizes(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """InputError for a run that this machine cannot hold, and for one without rows for all tokens."""
    rows = run.model.vocab_size
    if run.init is None and rows is not None and rows < corpus.vocab_size:  # else the tokenizers are compared
        raise InputError(
            f"--model.vocab_size {rows}: the corpus has {corpus.vocab_size} tokens; give at least as many"
        )
    config = model_config(run, corpus)
    memory = memory_here()
    here = "this machine" if memory == machine_memory() else "each process of this machine"
    check_memory(run, config, world_size(), memory, here)


def dry_run(
    name: str,
    overrides: Sequence[str],
    cluster: GpuCluster,
    *,
    vocab_size: int | None = None,
    init: str | None = None,
    heldout: Sequence[str] = (),
) -> Estimate:
    """The estimate of a recipe, by default with its own vocabulary or that of the model `init`."""
    run = with_heldout(recipe(name, overrides, init), heldout)
    refuse_unused(run, override_flags(overrides), cluster.gpus)
    if vocab_size is not None and run.model.vocab_size not in (None, vocab_size):
        raise InputError(f"--vocab-size {vocab_size}: this run has {run.model.vocab_size}; leave it out")
    if run.document_mask:
        warn(
            "the estimate is of instances of one document each; with --document_mask short documents need "
            "more memory, which training counts when it chooses what is auto for its corpus"
        )
    return estimate(run, default_vocabulary(run, name) if vocab_size is None else vocab_size, cluster)
