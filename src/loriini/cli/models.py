"""Commands that use a trained model."""

import argparse
import json
from pathlib import Path
from typing import Any

from loriini.cli.parser import Add, output_path
from loriini.errors import InputError

ROUTER_FREE = "rank experts by the norm (1, 2, inf) of their activations at NODE, with uniform or other gates"


def evaluate_arguments(add: Add) -> None:
    """What `evaluate` takes."""
    add("model", type=Path, metavar="RUN")
    add("--documents", nargs="+")
    add("--domain-field", default="domain")
    add("--tasks", nargs="+")
    add("--length", type=int, help="tokens in an instance (the model's context)")
    add("--router-free", metavar="NODE[:NORM[:GATES]]", help=ROUTER_FREE)
    add("--out", type=output_path)


def evaluate(arguments: argparse.Namespace) -> None:
    """Perplexity of a model per domain."""
    from loriini.atomic import write_json
    from loriini.evaluate.perplexity import evaluate as measure
    from loriini.evaluate.perplexity import tokenize_by_domain
    from loriini.model.loading import load_model
    from loriini.progress import warn
    from loriini.routing import not_causal
    from loriini.sources import Fields, ReadOptions, read_documents

    if arguments.tasks:
        raise InputError("--tasks is not there yet; use --documents")
    if not arguments.documents:
        raise InputError("give --documents PATH…")
    model, tokenizer = load_model(arguments.model)
    if arguments.router_free:
        _drop_routers(model, arguments.router_free)
    documents = read_documents(arguments.documents, ReadOptions(Fields(domain=arguments.domain_field)))
    length = arguments.length or model.config.max_position_embeddings
    heldout = tokenize_by_domain(documents, tokenizer, length, label_names=model.config.label_names)
    if model.config.num_experts > 1 and (remark := not_causal(model.config.routing)):
        warn(remark)
    results = measure(model, heldout)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.out, results)
    print(json.dumps(results, indent=1))


def analyze_arguments(add: Add) -> None:
    """What `analyze` takes."""
    add("model", type=Path, metavar="RUN")
    add("--documents", nargs="+", required=True)
    add("--domain-field", default="domain")
    add("--out", type=output_path)


def analyze(arguments: argparse.Namespace) -> None:
    """Who routes where: routes.npz and a report."""
    from loriini.analyze.command import analyze_run

    print(analyze_run(arguments.model, arguments.documents, arguments.domain_field, arguments.out))


def generate_arguments(add: Add) -> None:
    """What `generate` takes."""
    add("model", type=Path, metavar="RUN")
    add("--prompt", required=True)
    add("--max-new-tokens", type=int, default=64)
    add("--greedy", action="store_true")
    add("--routing", choices=("prompt", "segment"), default="prompt")
    add("--label", metavar="NAME", help="the domain whose expert writes, for a model that routes by label")
    add("--seed", type=int, default=0)


def generate(arguments: argparse.Namespace) -> None:
    """Continue a prompt."""
    from loriini.evaluate.samples import continue_text
    from loriini.model.loading import load_model

    model, tokenizer = load_model(arguments.model)
    text = continue_text(
        model,
        tokenizer,
        arguments.prompt,
        arguments.max_new_tokens,
        arguments.greedy,
        arguments.routing,
        arguments.seed,
        arguments.label,
    )
    print(arguments.prompt + text)


def export_arguments(add: Add) -> None:
    """What `export` takes."""
    add("model", type=Path, metavar="RUN")
    add("--to", choices=("hf", "llama"), required=True)
    add("--prompt", default="")
    add("--prompt-file", type=Path)
    add("--label", metavar="NAME", help="the prompt's domain, for a model that routes by label")
    add("--out", type=output_path, required=True)


def export(arguments: argparse.Namespace) -> None:
    """A Hugging Face folder, or a plain Llama specialised to a prompt."""
    from loriini.model.export import export_hf, export_llama
    from loriini.model.loading import load_model

    model, tokenizer = load_model(arguments.model)
    if arguments.to == "hf":
        print(export_hf(model, tokenizer, arguments.out))
        return
    prompt = _read(arguments.prompt_file) if arguments.prompt_file else arguments.prompt
    print(export_llama(model, tokenizer, prompt, arguments.out, arguments.label))


def _drop_routers(model: Any, choice: str) -> None:
    """Rank a mixture's experts by their activations, as NODE[:NORM[:GATES]] says; InputError if it cannot."""
    from loriini.model.pretrained import router_free

    node, _, rest = choice.partition(":")
    norm, _, gates = rest.partition(":")
    try:
        router_free(model, node, int(norm) if norm.isdigit() else norm or 2, gates or "softmax_selected")
    except ValueError as error:
        raise InputError(f"--router-free {choice}: {error}") from error


def _read(path: Path) -> str:
    """A file's text; InputError when it has none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable text file ({error}); check the path") from error
