"""The model card: `README.md` next to the weights, from the configuration and what the run recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loriini import __version__
from loriini.model.configuration import LoriiniConfig
from loriini.routing.design import design_name, without_effect
from loriini.routing.registry import REGISTERED, registered_values

CAUSALITY = {
    "strict": "strict: no token's prediction depends on later tokens.",
    "after_first_segment": "after segment 1: in the first {0.segment_length} tokens experts are chosen by "
    "all of these tokens, so perplexities count the tokens after them.",
    "none": "none: experts are chosen by the whole sequence, later tokens included. Perplexities do not "
    "compare with a causal model's; text generation routes by the prompt.",
}


DESCRIBING = (
    *("unit", "segment_length", "scope", "scorer", "selection", "top_k", "top_p", "capacity_factor"),
    *("gates", "combination", "num_shared_experts"),
)
"""Fields of a design that its card states, where they have an effect."""


@dataclass(frozen=True)
class TrainingRecord:
    """What a card says of the training; None or empty: not known."""

    name: str
    step: int
    steps: int
    tokens: int | None = None
    loss: float | None = None
    perplexity: Mapping[str, float] = field(default_factory=dict)
    """Held-out perplexity by domain at `step`, without the tokens of segment 1."""
    started_from: str | None = None
    """The model from whose weights the run started; None: it trained from scratch."""


@dataclass(frozen=True)
class Exported:
    """How a model was exported to another architecture, whose weights the card describes."""

    how: str
    gguf: str | None = None
    """The file's name of an export for llama.cpp; None for a folder for transformers."""


def model_card(
    config: LoriiniConfig, record: TrainingRecord | None = None, exported: Exported | None = None
) -> str:
    """The card as Markdown, of the model itself or of its export."""
    name = record.name if record else "A Loriini model"
    total, active = config.parameters()
    routing = config.design
    facts = {
        "design": describe_design(config),
        "causality": None if exported else CAUSALITY[routing.causality].format(routing),
        "exported": exported.how if exported else None,
        "made by": f"Loriini {__version__}",
        "parameters": f"{total:,} in all, {active:,} active for a token"
        + (" (before the export)" if exported else ""),
        "context": f"{config.max_position_embeddings:,} tokens",
        "vocabulary": f"{config.vocab_size:,} tokens",
        **(_training(record) if record else {}),
    }
    lines = [
        "---",
        *([] if exported and exported.gguf else ["library_name: transformers"]),
        "pipeline_tag: text-generation",
        "tags: [loriini, mixture-of-experts]",
        "# license: add yours; that of the training text may bind you",
        "---",
        f"# {name}",
        "",
        *(f"- **{title}**: {fact}" for title, fact in facts.items() if fact),
        "",
        "## How to load",
        "",
        _how_to_load(config, exported),
    ]
    return "\n".join(lines) + "\n"


def _how_to_load(config: LoriiniConfig, exported: Exported | None) -> str:
    if exported and exported.gguf:
        return f'```sh\nllama-completion -m {exported.gguf} -p "Once upon" -no-cnv\n```'
    needs, option = ("", "") if exported else ("# needs the package loriini\n", ", trust_remote_code=True")
    losses = (name for name in config.design.options if name in REGISTERED["loss"])
    added = [*registered_values(config.design).values(), *losses]
    if added and not exported:
        needs += f"# first import the extension that adds {', '.join(added)}\n"
    return f"""```python
{needs}from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # the one that holds this card
model = AutoModelForCausalLM.from_pretrained(folder{option})
tokenizer = AutoTokenizer.from_pretrained(folder)
```"""


def describe_design(config: LoriiniConfig) -> str:
    """The routing design in one line."""
    if not config.is_mixture:
        return f"dense, one FFN a layer, block {config.block}"
    r = config.routing
    names = [name for name in DESCRIBING if name not in without_effect(r)]
    fields = ", ".join(f"{name} {getattr(r, name)}" for name in names)
    return f"{design_name(r)} ({fields}), {config.num_experts} experts a layer, block {config.block}"


def _training(record: TrainingRecord) -> dict[str, str]:
    finished = record.step == record.steps
    facts = {"steps": f"{record.step:,}" if finished else f"{record.step:,} of {record.steps:,}"}
    if record.started_from:
        facts["started from"] = record.started_from
    if record.tokens is not None:
        facts["training tokens"] = f"{record.tokens:,}"
    if record.loss is not None:
        facts["training loss at the last step"] = f"{record.loss:.3f}"
    if record.perplexity:
        listed = ", ".join(f"{domain} {value:.2f}" for domain, value in record.perplexity.items())
        facts["held-out perplexity"] = listed
    return facts
