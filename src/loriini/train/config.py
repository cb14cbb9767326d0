"""A run's settings: everything that determines a training, as one value that is saved with its results."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from loriini.common.checks import (
    Bounds,
    Count,
    CountOrZero,
    Positive,
    Seed,
    check_fields,
    is_finite,
    refuse_first,
)
from loriini.common.errors import InputError
from loriini.common.hardware import Precision
from loriini.common.json_file import read_object
from loriini.common.settings import Needs, setting
from loriini.data.batches.joined import InstanceSource
from loriini.model import LoriiniConfig
from loriini.model.architecture import ROTARY, Architecture
from loriini.parallel.mesh import ParallelConfig, check_mesh
from loriini.routing import RoutingConfig
from loriini.routing.design import without_effect
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.guard import GuardConfig
from loriini.train.measures import EvaluateConfig
from loriini.train.optimizer import A_MIXTURE, OptimizerConfig
from loriini.train.records.trackers import WatchConfig
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig

T = TypeVar("T")
Auto = Literal["auto"]
AUTO: Auto = "auto"
"""Chosen for the device when the run starts; `run.json` then has what was chosen."""


@dataclass(frozen=True)
class ModelShape(Architecture):
    """The transformer's architecture: `LoriiniConfig`'s fields, some of them chosen when the run starts."""

    recompute_merge: bool | Auto = setting(
        AUTO,
        "aside",
        Needs(
            "a design that merges experts", lambda run: run.model.recompute_merge is not True or run.merges
        ),
    )
    """Merge experts again in the backward pass instead of keeping the merged weights: less memory, a little
    more time. auto: only if the micro-batch then fits in memory, or a larger one does."""
    rope_theta: Positive = setting(10_000.0, "training", ROTARY)
    """Base of the rotary positions' wavelengths."""
    rope_scaling: dict | None = setting(None, "training", ROTARY, hash=False)
    """Scaling of rotary positions, as transformers' rope_parameters without rope_theta: linear, dynamic,
    yarn, longrope or llama3, for example {"rope_type": "linear", "factor": 4.0}; with block=phimoe
    longrope, with short_mscale and long_mscale; or default with partial_rotary_factor; none: not scaled."""
    max_position_embeddings: Count | None = setting(None, "training")
    """Longest context that the model is configured for; none: the run's length."""
    vocab_size: Count | None = None
    """Rows of the embedding, for example padded to a multiple of 128; none: the corpus's vocabulary."""

    @classmethod
    def from_config(cls, config: LoriiniConfig) -> "ModelShape":
        """The architecture of a model."""
        names = [f.name for f in fields(cls) if hasattr(config, f.name)]
        values = {name: getattr(config, name) for name in names}
        scaling = dict(config.rope_parameters or {})
        theta = scaling.pop("rope_theta", cls.rope_theta)
        scaling = {} if scaling == {"rope_type": "default"} else scaling
        return cls(**{**values, "rope_theta": theta, "rope_scaling": scaling or None})

    def config_values(self) -> dict[str, Any]:
        """The architecture as arguments of `LoriiniConfig`, without those left to the run and its corpus."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        scaling = values.pop("rope_scaling", {"rope_type": "default"})
        values["recompute_merge"] = self.recompute_merge is True
        return {**values, "rope_parameters": {"rope_theta": values.pop("rope_theta"), **scaling}}

    def __post_init__(self) -> None:
        check_fields(self, "model.")


@dataclass(frozen=True)
class TrainConfig:
    """A training run; `loriini train RECIPE --help` explains its fields. `check` checks how sections fit."""

    name: str = setting(kind="name")
    """Name in reports and trackers."""
    routing: RoutingConfig = setting(kind="design")
    """The routing design, by name; `--routing.FIELD` changes one field of it."""
    model: ModelShape = setting(kind="weights", default_factory=ModelShape)
    optimizer: OptimizerConfig = setting(kind="training", default_factory=OptimizerConfig)
    warmup: WarmupConfig = setting(kind="training", default_factory=WarmupConfig)
    checkpoint: CheckpointConfig = setting(kind="aside", default_factory=CheckpointConfig)
    parallel: ParallelConfig = setting(kind="aside", default_factory=ParallelConfig)
    speed: SpeedConfig = setting(kind="aside", default_factory=SpeedConfig)
    evaluate: EvaluateConfig = setting(kind="measure", default_factory=EvaluateConfig)
    watch: WatchConfig = setting(kind="aside", default_factory=WatchConfig)
    guard: GuardConfig = setting(kind="training", default_factory=GuardConfig)
    steps: Count = setting(1000, "training")
    """Optimizer steps."""
    batch_size: Count = setting(16, "training")
    """Instances of a step, over all processes."""
    micro_batch_size: CountOrZero | Auto = setting(
        0,
        "training",
        Needs(
            "at most --batch_size",
            lambda run: run.micro_batch_size == AUTO or run.micro_batch_size <= run.batch_size,
        ),
    )
    """Instances that go through the model at once in each process, the rest being gradient accumulation;
    0: all; auto: as many as fit in the device's memory."""
    length: Annotated[int, Bounds(least=1, most=1 << 24)] = setting(1024, "training")
    """Context length in tokens."""
    precision: Precision = setting(AUTO, "training")
    """bf16 computes in bfloat16 over float32 weights; auto: bf16 where the hardware has it."""
    seed: Seed = setting(0, "seed")
    """Seed of initialisation, dropout and the order of instances."""
    per_expert_every: Count = setting(10, "aside", A_MIXTURE)
    """Steps between records of per-expert statistics in `metrics.jsonl`; per-layer ones are in every step."""
    document_mask: bool = setting(False, "training")
    """Keep the documents of an instance apart: attention, segments and routing begin again at each one."""
    corpus: tuple[Path, ...] = setting((), "path")
    """Folders of the prepared corpora, as `--corpus` gives them."""
    corpus_weights: tuple[Positive, ...] = setting((), "training")
    """How often an epoch reads each corpus; none: once."""
    init: str | None = setting(None, "start")
    """Folder or Hub id of the model whose weights the run starts from, as `--init` gives it."""
    init_digest: str | None = setting(None, "start")
    """Hash of the weights of `init`."""
    init_optimizer: bool = setting(False, "start", Needs("--init", lambda run: run.init))
    """Go on from `init`, a checkpoint: with its optimizer, step and place in the corpus too."""
    order: Literal["similar", "random"] | None = setting(None, "aside")
    """Order of documents that the recipe is meant for; a corpus in another order gets a warning."""

    def __post_init__(self) -> None:
        check_fields(self)

    def to_dict(self) -> dict[str, Any]:
        """The run as a JSON object."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values

    @property
    def has_auto_size(self) -> bool:
        """Whether `micro_batch_size` or `recompute_merge` is still `auto`."""
        return AUTO in (self.micro_batch_size, self.model.recompute_merge)

    def fill_auto(self, micro_batch_size: int | Auto, recompute_merge: bool | Auto) -> "TrainConfig":
        """This run with these values where it has `auto`; its precision stays as it is."""
        size = micro_batch_size if self.micro_batch_size == AUTO else self.micro_batch_size
        recompute = recompute_merge if self.model.recompute_merge == AUTO else self.model.recompute_merge
        return replace(self, micro_batch_size=size, model=replace(self.model, recompute_merge=recompute))

    def instances_at_once(self, share: int | None = None) -> int:
        """Instances of a micro-batch in a process that takes `share` instances of a batch, by default all."""
        share = self.batch_size if share is None else share
        return min(self.micro_batch_size, share) if self.micro_batch_size not in (0, AUTO) else share

    def fill_auto_from(self, other: "TrainConfig") -> "TrainConfig":
        """This run with another's values where it has `auto`, precision included."""
        run = self.fill_auto(other.micro_batch_size, other.model.recompute_merge)
        return replace(run, precision=other.precision) if run.precision == AUTO else run

    def check(self, label_names: Sequence[str] = (), processes: int = 1) -> None:
        """Raise InputError for sections that do not fit each other, the corpus's labels or the processes."""
        refuse_first(self._conflicts())
        try:
            config = self.config(label_names=label_names)
        except ValueError as error:
            raise InputError(f"model: {error}") from error
        check_mesh(self.parallel, processes, self.batch_size, config, self.document_mask)

    def _conflicts(self) -> Iterator[str]:
        """Why settings that are valid one by one are not valid together."""
        segmented = self.is_mixture and "segment_length" not in without_effect(self.routing)
        rate = self.optimizer
        if self.is_mixture and self.warmup.dense_share > 0 and not self.routing.preserves_dense:
            yield (
                "a dense warm-up cannot be copied into this design, whose equal experts compute something "
                "else than one of them; set --warmup.dense_share 0"
            )
        if self.model.block == "gpt2" and self.length > (self.model.max_position_embeddings or self.length):
            yield (
                f"the context of {self.length} tokens is longer than the model's "
                f"{self.model.max_position_embeddings} learned positions; lower --length"
            )
        if segmented and self.length <= self.routing.segment_length:
            yield (
                f"the context of {self.length} tokens is no longer than a segment of "
                f"{self.routing.segment_length}; raise --length or lower --routing.segment_length"
            )
        if rate.schedule == "warmup_stable_decay" and rate.warmup + rate.decay > 1:
            yield (
                f"with schedule=warmup_stable_decay --optimizer.warmup {rate.warmup} and --optimizer.decay "
                f"{rate.decay} overlap; lower one, so that they add up to at most 1"
            )

    def label_names(self, instances: InstanceSource) -> tuple[str, ...]:
        """The names of the instances' labels; empty where the run does not route by label."""
        by_label = self.routing.scorer == "label" and self.is_mixture
        return instances.label_names if by_label else ()

    def config(
        self,
        vocab_size: int = 1,
        eos_token_id: int | None = 0,
        num_experts: int | None = None,
        label_names: Sequence[str] = (),
    ) -> LoriiniConfig:
        """The model's configuration on a corpus; `model.vocab_size`, if set, replaces `vocab_size`."""
        values = {
            "vocab_size": vocab_size,
            "max_position_embeddings": self.length,
            **self.model.config_values(),
            "routing": self.routing,
            "label_names": list(label_names) or None,
            "eos_token_id": eos_token_id,
            "bos_token_id": eos_token_id,
        }
        return LoriiniConfig(**(values if num_experts is None else {**values, "num_experts": num_experts}))

    @property
    def merges(self) -> bool:
        """Whether the model merges experts' parameters."""
        return self.is_mixture and self.routing.combination == "parameters"

    @property
    def is_mixture(self) -> bool:
        """Whether the model has more than one expert, after any dense warm-up."""
        return self.model.num_experts > 1

    def is_dense_at(self, step: int) -> bool:
        """Whether the model after this step is still the dense one of the warm-up."""
        return self.copy_step > 0 and step <= self.copy_step

    @property
    def copy_step(self) -> int:
        """The number of dense steps before the model is copied into experts; 0: no dense warm-up.

        A warm-up leaves at least one step to the mixture, and has at least one if the run has two.
        """
        if not self.is_mixture or self.warmup.dense_share == 0:
            return 0
        return min(max(1, round(self.warmup.dense_share * self.steps)), self.steps - 1)


def read_run(path: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """The run of a `run.json`, and the whole JSON object. InputError for a file that holds no run."""
    values = read_object(path, "start another run")
    return from_json(TrainConfig, values, path), values


@dataclass(frozen=True)
class RecordedCorpus:
    """What `run.json` records of the corpus besides the run's settings."""

    vocab_size: Count
    corpus_digest: str

    def __post_init__(self) -> None:
        check_fields(self)


def from_json(kind: type[T], values: Any, path: Path) -> T:
    """An instance of a dataclass from a file's `values`; InputError that names the file if they do not fit.

    Fields that the dataclass does not have are ignored, absent ones take their defaults.
    """
    try:
        return cast(T, value_from_json(kind, values))
    except (InputError, ValueError, TypeError, AttributeError, OverflowError) as error:
        message = " ".join(str(error).split())
        raise InputError(f"{path}: not the settings of a run ({message}); start another run") from error


def value_from_json(kind: Any, value: Any) -> Any:
    """A value of type `kind` from its JSON; fields that a dataclass does not have are ignored."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: value_from_json(hints[name], v) for name, v in value.items() if name in hints})
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(value_from_json(get_args(kind)[0], part) for part in value)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if float in kinds and int not in kinds and type(value) is int and is_finite(value):
        return float(value)  # transformers' configurations refuse integers
    return Path(value) if kind is Path else value
