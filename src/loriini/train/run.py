"""A run: everything that determines a training, as one value that is saved beside its results."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from loriini.batches.loader import InstanceSource
from loriini.errors import InputError
from loriini.model import LoriiniConfig
from loriini.model.loss import has_fused_loss
from loriini.parallel.mesh import ParallelConfig, check_mesh
from loriini.routing import RoutingConfig
from loriini.train.checkpoint import CheckpointConfig
from loriini.train.guard import GuardConfig
from loriini.train.measures import EvaluateConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig
from loriini.train.watch import WatchConfig


@dataclass(frozen=True)
class ModelShape:
    """The transformer's sizes; `intermediate_size` is each expert's, which is the dense model's too.

    The fields are `LoriiniConfig`'s: its docstring tells what `block` and what follows it mean.
    """

    hidden_size: int = 1024
    intermediate_size: int = 2816
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_experts: int = 1
    tie_word_embeddings: bool = False
    block: Literal["llama", "olmoe", "phimoe", "gpt2"] = "llama"
    dropout: float = 0.0
    low_rank: int | None = None
    recompute_merge: bool = False


@dataclass(frozen=True)
class Run:
    """One training run. `length` is the context in tokens, `batch_size` counts instances a step.

    `micro_batch_size` instances go through the model at once, the rest is gradient accumulation; 0: all.
    `corpus_weights` are how often an epoch comes round each corpus (`Joined`); none: once.
    `metrics.jsonl` tells of every expert by itself in each `per_expert_every`-th step, of layers in all.
    `precision` bf16 computes in bfloat16 over float32 weights; `auto` does so where the hardware has it.
    """

    name: str
    routing: RoutingConfig
    model: ModelShape = field(default_factory=ModelShape)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    steps: int = 1000
    batch_size: int = 16
    micro_batch_size: int = 0
    length: int = 1024
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    seed: int = 0
    per_expert_every: int = 10
    corpus: tuple[Path, ...] = ()
    corpus_weights: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The run as a JSON object."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Run":
        """The way back from `to_dict`; what else `run.json` tells is left out."""
        run: Run = _from_json(cls, values)
        return run

    def check(self, label_names: Sequence[str] = (), processes: int = 1) -> None:
        """InputError for settings that cannot be, or that do not fit each other, labels or processes."""
        numbers = {"steps": 1, "batch_size": 1, "length": 1, "micro_batch_size": 0, "seed": 0}
        numbers |= {"checkpoint.every": 0, "checkpoint.keep": 1, "per_expert_every": 1}
        numbers |= {"guard.max_skips": 1, "watch.every": 1}
        numbers |= {f"evaluate.{name}": 1 for name in ("every", "instances", "sample_tokens")}
        numbers |= {"evaluate.sample_every": 0}
        sizes = {f"model.{f.name}": 1 for f in fields(self.model) if f.type is int}
        for name, least in {**numbers, **sizes}.items():
            value = attrgetter(name)(self)
            if value < least:
                raise InputError(f"{name} is {value}; it must be at least {least}")
        for refused, reason in self._refusals():
            if refused:
                raise InputError(reason)
        try:
            config = self.config(vocab_size=1, eos_token_id=0, label_names=label_names)
        except ValueError as error:
            raise InputError(f"model: {error}") from error
        check_mesh(self.parallel, processes, self.batch_size, config)

    def _refusals(self) -> list[tuple[bool, str]]:
        """(refused, reason) for settings that are wrong together, though each may be right."""
        width, heads = self.model.hidden_size, self.model.num_attention_heads
        share, mixture = self.warmup.dense_share, self.model.num_experts > 1
        decay, warmup, clip = self.optimizer.decay, self.optimizer.warmup, self.optimizer.clip
        return [
            (
                width % heads != 0,
                f"model.hidden_size {width} is no multiple of model.num_attention_heads {heads}; change one",
            ),
            (
                self.speed.fused_loss == "on" and not has_fused_loss(),
                "speed.fused_loss is on, but this torch has none; install torch 2.13, or set it to auto",
            ),
            (not 0 < decay <= 1, f"optimizer.decay is {decay}; it must be in (0, 1]"),
            (not 0 <= warmup <= 1, f"optimizer.warmup is {warmup}; it must be in [0, 1]"),
            (not clip > 0, f"optimizer.clip is {clip}; it must be above 0"),
            (not 0 <= share < 1, f"warmup.dense_share is {share}; it must be in [0, 1)"),
            (
                self.copy_step > 0 and not self.routing.preserves_dense,
                "a dense warm-up needs no shared experts and gates that sum to 1, unlike this routing; "
                "set warmup.dense_share to 0",
            ),
            (
                mixture and self.routing.segmented and self.length <= self.routing.segment_length,
                f"the context of {self.length} tokens is no longer than a segment of "
                f"{self.routing.segment_length}; set length higher or routing.segment_length lower",
            ),
        ]

    def label_names(self, instances: InstanceSource) -> tuple[str, ...]:
        """What the labels of some instances stand for; none where the run does not route by label."""
        by_label = self.routing.scorer == "label" and self.model.num_experts > 1
        return instances.label_names if by_label else ()

    def config(
        self,
        vocab_size: int,
        eos_token_id: int,
        num_experts: int | None = None,
        label_names: Sequence[str] = (),
    ) -> LoriiniConfig:
        """The model's configuration for a corpus of this vocabulary and these labels."""
        shape = asdict(self.model)
        if num_experts is not None:
            shape["num_experts"] = num_experts
        return LoriiniConfig(
            **shape,
            vocab_size=vocab_size,
            max_position_embeddings=self.length,
            routing=self.routing,
            label_names=list(label_names) or None,
            eos_token_id=eos_token_id,
            bos_token_id=eos_token_id,
        )

    @property
    def copy_step(self) -> int:
        """The step before which the dense model is copied into experts; 0: a mixture from the start."""
        copied = min(round(self.warmup.dense_share * self.steps), self.steps - 1)
        return copied if self.model.num_experts > 1 else 0


def _from_json(kind: Any, value: Any) -> Any:
    """A value of a field's type from its JSON; fields that it does not name take their defaults."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _from_json(hints[name], part) for name, part in value.items() if name in hints})
    if get_origin(kind) is tuple:
        return tuple(_from_json(get_args(kind)[0], part) for part in value)
    return Path(value) if kind is Path else value
