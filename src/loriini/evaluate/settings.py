"""What to evaluate on and how: settings, without heavy imports, which the command line reads as options."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from loriini.common.checks import Bounds, Count, CountOrZero, ShortCount, check_fields
from loriini.common.errors import InputError
from loriini.common.options import Option
from loriini.data.read.document import Contexts

EvaluationRouting = Literal["training", "prompt", "segment"]


@dataclass(frozen=True)
class RouterFree:
    """Evaluation without routers: experts chosen by the `norm` of their activations at `node` (AoE §3.1)."""

    node: str
    norm: str = "2"
    gates: str = "softmax_selected"

    @classmethod
    def parse(cls, text: str) -> "RouterFree":
        """From `NODE[:NORM[:GATES]]`."""
        return cls(*text.split(":", 2))

    def __str__(self) -> str:
        return f"{self.node}:{self.norm}:{self.gates}"


@dataclass(frozen=True)
class EvaluationSettings:
    """What to measure perplexity on, and how. InputError for a wrong setting."""

    documents: tuple[str, ...] = ()
    """Held-out text."""
    text_field: str = "text"
    """Field of a document's text."""
    domain_field: str = "domain"
    """Field of a document's domain."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with a flawed record."""
    length: ShortCount | None = None
    """Predicted tokens of an instance, at most (the smallest context of the models)."""
    contexts: Contexts = "documents"
    """documents: score each by itself, a long one in windows; strung: join them and cut into instances."""
    skip: Annotated[int, Bounds(least=0, most=1 << 20)] | None = None
    """Predictions left out at the start of each instance (the longest first segment of the models)."""
    routing: EvaluationRouting = "training"
    """How tokens are routed; tasks: by their prompt, unless this is given."""
    device: str | None = None
    """cpu, cuda or cuda:N (the GPU if there is one)."""
    router_free: Annotated[RouterFree | None, Option("NODE[:NORM[:GATES]]")] = None
    """Replace the routers: select experts by the norm (1, 2 or inf) of their activations at NODE: gate, up,
    activated_gate, hidden, output, or of factorised experts low_rank; NORM is 2 and GATES softmax_selected by
    default."""
    instances: ShortCount | None = None
    """Instances of each domain, at most (all)."""
    batch_size: Count | None = None
    """Instances, or questions of tasks, computed at once (16, fewer if they have over 8,192 tokens)."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
        if twice := next((path for path, n in Counter(self.documents).items() if n > 1), None):
            raise InputError(f"{twice}: given twice, it would count twice; leave one out")
        _check_device(self.device)


@dataclass(frozen=True)
class TaskSettings:
    """Which tasks of lm-evaluation-harness to run, and how. InputError for a wrong setting."""

    tasks: tuple[str, ...] = ()
    """Tasks of lm-evaluation-harness, or the groups lory, aoe and router-free."""
    tasks_data: Annotated[Path | None, Option("DIR")] = None
    """Local files of the tasks, in place of the Hub's data."""
    limit: Count | None = None
    """Questions of each task, at most (all)."""
    num_fewshot: Annotated[int, Bounds(least=0, most=1000)] | None = None
    """Examples before each question (as the task or group says)."""
    routing: EvaluationRouting = "prompt"
    """How answers are routed (see `LoriiniLM`)."""
    label: str | None = None
    """Domain whose expert answers, for a model that routes by label."""
    device: str | None = None
    """cpu, cuda or cuda:N; None: the GPU if there is one."""
    router_free: RouterFree | None = None
    """As in `EvaluationSettings`."""
    batch_size: Count = 16
    """Questions computed at once."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
        _check_device(self.device)


@dataclass(frozen=True)
class Generation:
    """How to continue a prompt. InputError for a value out of range."""

    max_new_tokens: ShortCount = 64
    """Longest continuation."""
    greedy: bool = False
    """Take the likeliest token instead of sampling."""
    temperature: Annotated[float, Bounds(least=1e-5, most=1e5)] = 0.8
    """Divides the logits; lower is greedier."""
    top_k: CountOrZero = 50
    """Sample from the K likeliest tokens; 0: from all."""
    top_p: Annotated[float, Bounds(above=0, most=1)] = 1.0
    """Of the K likeliest, keep the likeliest whose probabilities together reach P."""
    seed: Annotated[int, Bounds(least=0, below=2**63)] = 0
    """Seed of the sampling."""
    routing: Literal["prompt", "segment"] = "prompt"
    """prompt: one decision, from the prompt; segment: a new one after each full segment."""
    label: str | None = None
    """Domain whose expert writes, for a model that routes by label."""

    def __post_init__(self) -> None:
        if self.temperature == 0:
            raise InputError("--temperature 0: give more than 0, or --greedy for the likeliest token")
        check_fields(self, dashed=True)

    @property
    def sampling(self) -> dict[str, Any]:
        """The arguments of transformers' `generate` that choose the next token."""
        if self.greedy:
            return {"do_sample": False}
        return {"do_sample": True, "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


def _check_device(name: str | None) -> None:
    """InputError for a device that this machine does not have; torch is imported only if one is named."""
    if name is not None:
        from loriini.common.hardware import find_device

        find_device(name)
