"""The weights that a run starts from: another run's, one of its checkpoints', or a pretrained model's."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError
from loriini.common.folders import CHECKPOINTS, RUN, model_folder
from loriini.common.hub import is_hub_id, local_folder
from loriini.common.progress import inform, warn, without_progress_bars
from loriini.common.settings import settings_of_kind
from loriini.common.tokenizers import holds_tokenizer
from loriini.data.jobs import artifact
from loriini.data.prepare.tokenized.tokenizer import same_vocabulary
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.weights.conversion import check_conversion, converted, keeps_routers
from loriini.model.weights.loading import read_config, read_model, readable
from loriini.routing.design import design_name
from loriini.train.checkpoints.model import checkpoint_config, checkpoint_model, checkpoint_tokenizer
from loriini.train.checkpoints.state import STATE, newest_checkpoint, problem_of, read_progress, read_state
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.folder import has_model, run_of
from loriini.train.overrides.apply import override

WEIGHT_SETTINGS = settings_of_kind(TrainConfig, "weights")
"""Settings that the initial weights fix."""
EXPERT_SETTINGS = tuple(name for name in settings_of_kind(TrainConfig, "design") if name.startswith("model."))
"""Settings of the experts, which only a mixture's weights fix: from a dense model, the recipe's are taken."""


class InitialModel:
    """A model to start from, named by a run's folder, a checkpoint, a Hugging Face folder or a Hub id.

    With its optimizer it is a checkpoint: of a finished run the last one, not its final model. Each part is
    read when first used, with an InputError if there is no such model.
    """

    def __init__(self, name: str, with_optimizer: bool = False) -> None:
        self.name, self.with_optimizer = name, with_optimizer
        self._model: LoriiniForCausalLM | None = None

    @cached_property
    def folder(self) -> Path:
        """Where the weights are: a Hugging Face folder, or a checkpoint."""
        path = local_folder(self.name)
        if not path.is_dir():
            raise InputError(
                f"--init {self.name}: no such folder; give a run, a checkpoint, a model's folder or a Hub id"
            )
        if (path / STATE).exists():
            if problem := problem_of(path):
                raise InputError(f"--init {path}: a damaged checkpoint ({problem}); give another")
            return path
        if (path / RUN).exists() and (self.with_optimizer or not has_model(path)):
            newest = newest_checkpoint(path / CHECKPOINTS)
            if newest is None:
                raise InputError(
                    f"--init {path}: a run without a checkpoint yet; train it first, or give another"
                )
            return newest
        if self.with_optimizer:
            raise InputError(
                f"--init_optimizer true: {path} has no optimizer; give --init a run or a checkpoint"
            )
        return model_folder(path)

    @cached_property
    def config(self) -> LoriiniConfig:
        """The model's configuration."""
        with readable(self.folder):
            return checkpoint_config(self.folder) if self.is_checkpoint else read_config(self.folder)

    @property
    def is_checkpoint(self) -> bool:
        return (self.folder / STATE).exists()

    @property
    def dense(self) -> bool:
        return not self.config.is_mixture

    def digest(self) -> str:
        """A hash of the weights and their configuration."""
        if self.is_checkpoint:
            return artifact.digest(read_state(self.folder)["sha256"])
        names = ["config.json", *(path.name for path in self.folder.glob("*.safetensors"))]
        with readable(self.folder):
            return artifact.digest(artifact.file_hashes(self.folder, names))

    def check_digest(self, expected: str | None) -> None:
        """InputError if the weights are other than `expected`, by their digest."""
        if expected is not None and self.digest() != expected:
            raise InputError(f"{self.folder}: not the weights that the run began with; start another run")

    def load(self, expected: str | None = None) -> None:
        """Read the weights, unless they were read already.

        InputError if a tensor is missing or of the wrong shape, or if the digest is not `expected`.
        """
        if self._model is not None:
            return
        self.check_digest(expected)
        with readable(self.folder), without_progress_bars():
            self._model = checkpoint_model(self.folder) if self.is_checkpoint else read_model(self.folder)

    def in_design(self, config: LoriiniConfig) -> LoriiniForCausalLM:
        """The weights as a model of `config`, in float32; this object no longer holds them."""
        self.load()
        assert self._model is not None
        model, self._model = self._model.float().train(), None
        if not self.dense:
            theirs = self.config.routing
            unchanged = (
                f"its design ({design_name(theirs)}) and routers kept; give --routing NAME for another design"
            )
            kept = "routers kept" if keeps_routers(theirs, config.routing) else "routers newly initialised"
            inform(f"{self.name}: {unchanged if theirs == config.routing else kept}")
        return converted(model, config)

    def check_labels(self, names: Sequence[str]) -> None:
        """InputError if the model's experts have other labels than `names`, by which the run routes."""
        theirs = self.config.label_names or []
        if self.config.routed_by_label and theirs and names and list(names) != list(theirs):
            raise InputError(
                f"{self.name} has experts for {', '.join(theirs)}, but the corpus has {', '.join(names)}; "
                "prepare it with these domains"
            )

    def check_vocabulary(self, corpus: TrainingCorpus) -> None:
        """InputError for a corpus whose token ids do not mean the same tokens as the model's."""
        rows, tokenizer = self.config.vocab_size, self.tokenizer_folder
        source = self.name if is_hub_id(self.name) else tokenizer or "FOLDER"
        remedy = f"prepare the corpus with `loriini prepare … --tokenizer {source}`"
        if corpus.vocab_size > rows:
            raise InputError(
                f"the corpus has {corpus.vocab_size} tokens, but {self.name} embeds {rows}; {remedy}"
            )
        if tokenizer is None:
            if corpus.vocab_size != rows:
                raise InputError(
                    f"the corpus has {corpus.vocab_size} tokens and {self.name}, which has no tokenizer to "
                    f"compare, embeds {rows}; {remedy}"
                )
        elif not same_vocabulary(tokenizer, corpus.tokenizer):
            raise InputError(f"the corpus's tokenizer is not that of {self.name}; {remedy}")
        ends, theirs = corpus.eos_token_id, self.config.eos_token_id
        if theirs is not None and ends not in (theirs if isinstance(theirs, list) else [theirs]):
            warn(f"the corpus's documents end with the token {ends}, those of {self.name} with {theirs}")

    @property
    def tokenizer_folder(self) -> Path | None:
        """The folder of the model's tokenizer; None without one."""
        folder = checkpoint_tokenizer(self.folder) if self.is_checkpoint else self.folder
        return folder if holds_tokenizer(folder) else None


def start_from(
    run: TrainConfig, name: str, overrides: Sequence[str], keep_design: bool = True
) -> TrainConfig:
    """The run that starts from a model, with overrides on top.

    The run gets the model's architecture, but keeps its own experts if the model is dense. With `keep_design`
    it also gets a mixture's routing design, and no dense warm-up, unless overrides say otherwise. InputError
    for overrides that contradict the model, and for a design that does not fit its weights.
    """
    initial = InitialModel(name, run.init_optimizer)
    digest = initial.digest()
    resolved = run.init_digest == digest  # by a `run.json` that records it
    shape = run.model if resolved else initial_shape(run, initial)
    based = replace(run, model=shape, init=name, init_digest=digest)
    if keep_design:
        based = replace(based, warmup=replace(run.warmup, dense_share=0.0))
        if not initial.dense:
            based = replace(based, routing=initial.config.routing)
    changed = override(based, overrides)
    fixed = {*WEIGHT_SETTINGS, *(() if initial.dense else EXPERT_SETTINGS)}
    if initial.config.block == "gpt2":
        fixed.add("model.max_position_embeddings")  # learned
    for setting in sorted(fixed):
        field = setting.removeprefix("model.")
        asked, theirs = getattr(changed.model, field), getattr(shape, field)
        if asked != theirs:
            raise InputError(f"--{setting} {asked}: {name} has {theirs}; leave it out")
    check_start(changed, initial)
    return changed


def initial_shape(run: TrainConfig, initial: InitialModel) -> ModelShape:
    """The model's architecture, with the run's experts if it is dense, and room for the run's context."""
    shape = ModelShape.from_config(initial.config)
    longest = initial.config.max_position_embeddings
    if initial.config.block != "gpt2":
        longest = max(longest, run.length)
    own = ("recompute_merge", "output_z", *(("num_experts", "low_rank") if initial.dense else ()))
    changes: dict[str, Any] = {name: getattr(run.model, name) for name in own}
    changes["max_position_embeddings"] = longest
    return replace(shape, **changes)


def check_start(run: TrainConfig, initial: InitialModel) -> None:
    """InputError for a design that does not fit the weights."""
    if not initial.dense and run.copy_step:
        raise InputError(f"{initial.name} is a mixture, so nothing is copied; set --warmup.dense_share 0")
    try:
        check_conversion(initial.config, run.config(initial.config.vocab_size))
    except ValueError as error:
        raise InputError(f"{initial.name} in this design: {error}") from error
    if run.init_optimizer:
        check_continuation(run, initial)


def check_continuation(run: TrainConfig, initial: InitialModel) -> None:
    """InputError unless the run goes on with a checkpoint's model and kind of optimizer, for more steps."""
    step, optimizer = read_progress(initial.folder).step, run_of(initial.folder).optimizer.name
    ours, theirs = run.config(initial.config.vocab_size), initial.config
    if (ours.num_experts, ours.design) != (theirs.num_experts, theirs.design):
        raise InputError(
            f"--init_optimizer true: {initial.folder} holds another design; leave this out to start from its "
            "weights alone"
        )
    if run.optimizer.name != optimizer:
        raise InputError(
            f"--optimizer.name {run.optimizer.name}: with --init_optimizer true the run goes on with the "
            f"checkpoint's, {optimizer}"
        )
    if run.steps <= step:
        raise InputError(f"--steps {run.steps}: {initial.folder} is of step {step}; give more")
