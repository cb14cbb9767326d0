"""The command line: one function a command. It knows every room, and no room knows it."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from loriini.errors import InputError, Unfinished
from loriini.table import table

WRONG_INPUT, INTERRUPTED, OUR_FAULT = 2, 130, 1


class Parser(argparse.ArgumentParser):
    """argparse, with its complaints as the one line that every wrong input gets, and no abbreviations."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise InputError."""
        raise InputError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; exits 0 done, 2 wrong input, 130 interrupted, 1 our fault."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        arguments, overrides = _parser().parse_known_args(argv)
        if overrides and arguments.run is not train:
            raise InputError(f"unknown argument {overrides[0]!r}; see `loriini --help`")
        arguments.overrides = overrides
        arguments.run(arguments)
        sys.stdout.flush()
    except InputError as error:
        print(f"loriini: {error}", file=sys.stderr)
        sys.exit(WRONG_INPUT)
    except Unfinished as note:
        print(f"loriini: {note}", file=sys.stderr)
    except KeyboardInterrupt as error:
        print(f"\ninterrupted; {str(error) or 'the same command goes on where it stopped'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OUR_FAULT)


def quickstart(arguments: argparse.Namespace) -> None:
    """Run the main job."""
    from loriini.quickstart import Quickstart, run_quickstart

    names = ("documents", "design", "size", "steps", "seed")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    run_quickstart(Quickstart(**given), arguments.out)


def designs(arguments: argparse.Namespace) -> None:
    """List the designs, or measure how far a trained model looks into the future."""
    from loriini.routing import DESIGNS

    if arguments.audit:
        _audit(arguments.audit, arguments.json)
        return
    rows = [
        {
            "name": name,
            **design.to_dict(),
            "causality": design.causality,
            "training_causality": design.training_causality,
        }
        for name, design in DESIGNS.items()
    ]
    columns = ("name", "unit", "scope", "scorer", "selection", "gates", "combination", "causality")
    _show(rows, columns, arguments.json)


def recipes(arguments: argparse.Namespace) -> None:
    """List the recipes."""
    from loriini.recipes import RECIPES, describe

    rows = [describe(name) for name in RECIPES]
    _show(rows, tuple(rows[0]), arguments.json)


def prepare(arguments: argparse.Namespace) -> None:
    """Make a corpus of documents."""
    from loriini.data.prepare import PrepareSettings
    from loriini.data.prepare import prepare as make

    names = ("tokenizer", "length", "order", "encoder", "workers", "seed", "on_error", "max_characters")
    fields = {f"{part}_field": getattr(arguments, f"{part}_field") for part in ("text", "id", "domain")}
    settings = {name: getattr(arguments, name) for name in names}
    corpus = make(
        arguments.out / arguments.name,
        PrepareSettings(documents=tuple(map(str, arguments.documents)), **settings, **fields),
    )
    stages = corpus.manifest["stages"]
    print(
        f"{corpus.folder}: {stages['documents']['counts']['documents']:,} documents, "
        f"{stages['tokens']['counts']['tokens']:,} tokens, {len(corpus.instances):,} instances of "
        f"{corpus.instances.length:,}"
    )


def inspect(arguments: argparse.Namespace) -> None:
    """Print what a corpus holds."""
    from loriini.data.prepare import open_corpus

    print(json.dumps(open_corpus(arguments.corpus).manifest, indent=1))


def train(arguments: argparse.Namespace) -> None:
    """Train a recipe, or go on with a run."""
    from loriini.launch import dry_run, resume, train_recipe

    if arguments.max_minutes <= 0:
        raise InputError(f"--max-minutes {arguments.max_minutes:g}: give more than 0")
    a = arguments
    if a.recipe and a.dry_run:
        print(dry_run(a.recipe, a.overrides, a.gpus, a.memory, a.vocab_size, a.json))
    elif arguments.resume and not arguments.dry_run:
        print(resume(arguments.resume, arguments.max_minutes))
    elif not arguments.recipe or not arguments.out:
        raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
    else:
        print(train_recipe(a.recipe, a.out, a.corpus, a.overrides, a.heldout, a.max_minutes))


def evaluate(arguments: argparse.Namespace) -> None:
    """Perplexity of a model per domain."""
    from loriini.data.artifact import write_json
    from loriini.data.readers import Fields, read_documents
    from loriini.evaluate.perplexity import evaluate as measure
    from loriini.evaluate.perplexity import tokenize_by_domain
    from loriini.model.loading import load_model

    if arguments.tasks:
        raise InputError("--tasks is not there yet; use --documents")
    if not arguments.documents:
        raise InputError("give --documents PATH…")
    model, tokenizer = load_model(arguments.model)
    if arguments.router_free:
        _drop_routers(model, arguments.router_free)
    documents = read_documents(arguments.documents, Fields(domain=arguments.domain_field))
    length = arguments.length or model.config.max_position_embeddings
    heldout = tokenize_by_domain(documents, tokenizer, length, label_names=model.config.label_names)
    results = measure(model, heldout)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.out, results)
    print(json.dumps(results, indent=1))


def analyze(arguments: argparse.Namespace) -> None:
    """Who routes where: routes.npz and a report."""
    from loriini.analyze.command import analyze_run

    print(analyze_run(arguments.model, arguments.documents, arguments.domain_field, arguments.out))


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


def bench(arguments: argparse.Namespace) -> None:
    """Speed and memory beside named baselines, on this machine."""
    from loriini.bench import measure
    from loriini.data.artifact import write_json

    out = arguments.out
    if out and out.is_dir():
        raise InputError(f"--out {out}: is a folder; give the name of a file")
    rows = measure(arguments.quick)
    digits = {"ratio": 3, "median_s": 4}
    texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row[k] is not None} for row in rows]
    _show([{**row, **text} for row, text in zip(rows, texts, strict=True)], tuple(rows[0]), as_json=False)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, rows)


def _audit(path: Path, as_json: bool) -> None:
    """Print a trained model's leak."""
    from loriini.evaluate.audit import audit, random_instances
    from loriini.model.loading import load_model

    model = load_model(path)[0].float()
    leak = audit(model, random_instances(model))
    print(json.dumps(asdict(leak), indent=1) if as_json else leak)


def _drop_routers(model: Any, node_and_norm: str) -> None:
    """Let a mixture's activations choose its experts, told as NODE[:NORM]; InputError for what cannot be."""
    from loriini.model.pretrained import router_free

    node, _, norm = node_and_norm.partition(":")
    try:
        router_free(model, node, int(norm) if norm.isdigit() else norm or 2)
    except ValueError as error:
        raise InputError(f"--router-free {node_and_norm}: {error}") from error


def _read(path: Path) -> str:
    """A file's text; InputError when it has none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable text file ({error}); check the path") from error


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Rows as JSON, or as a table of the columns."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print(table(columns, [[_cell(row[column]) for column in columns] for row in rows]))


def _cell(value: Any) -> str:
    """A value as a table shows it."""
    return "–" if value is None else f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _parser() -> Parser:
    parser = Parser(prog="loriini", description="Pre-train mixture-of-experts language models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(run: Callable[[argparse.Namespace], None]) -> Parser:
        assert run.__doc__
        added: Parser = commands.add_parser(run.__name__, help=run.__doc__, description=run.__doc__)
        added.set_defaults(run=run)
        return added

    add = command(quickstart).add_argument
    add("--out", type=Path, default=Path("loriini-quickstart"), help="folder of everything it makes")
    add("--documents", nargs="+", help="your own text instead of what is on this machine")
    add("--design", help="the mixture to train beside the dense model (lory)")
    add("--size", help="small, medium or large (small)")
    add("--steps", type=int, help="training steps of each model")
    add("--seed", type=int)

    add = command(designs).add_argument
    add("--json", action="store_true")
    add("--audit", type=Path, metavar="RUN", help="how far a trained model looks into the future")
    command(recipes).add_argument("--json", action="store_true")

    add = command(prepare).add_argument
    add("name")
    add("--documents", nargs="+", required=True)
    add("--out", type=Path, required=True)
    add("--tokenizer", default="bpe:8192", help="bpe:SIZE, or the path of a tokenizer")
    add("--length", type=int, default=1024, help="context in tokens")
    add("--order", default="similar", help="similar, papers or random")
    add("--encoder", default="lsa", help="lsa, or a sentence-transformers encoder")
    add("--workers", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--on-error", choices=("stop", "skip"), default="stop")
    add("--max-characters", type=int, help="cut longer documents")
    for part in ("text", "id", "domain"):
        add(f"--{part}-field", default=part)

    command(inspect).add_argument("corpus", type=Path)

    add = command(train).add_argument
    add("recipe", nargs="?")
    add("--out", type=Path)
    add("--corpus", type=Path, nargs="+", default=[])
    add("--resume", type=Path, metavar="RUN")
    add("--heldout", type=Path, nargs="+", default=[], help="documents to evaluate on while training")
    add("--max-minutes", type=float, default=float("inf"), help="save and stop after so long")
    add("--dry-run", action="store_true", help="only estimate what the run needs")
    add("--gpus", type=int, default=1, help="of the estimate")
    add("--memory", metavar="GiB", help="of each of these GPUs, as 80GiB")
    add("--vocab-size", type=int, help="of the estimate (that of the recipe's paper)")
    add("--json", action="store_true", help="the estimate as JSON")

    add = command(evaluate).add_argument
    add("model", type=Path, metavar="RUN")
    add("--documents", nargs="+")
    add("--domain-field", default="domain")
    add("--tasks", nargs="+")
    add("--length", type=int, help="tokens in an instance (the model's context)")
    add("--router-free", metavar="NODE[:NORM]", help="choose experts by their activations' norm: 1, 2 or inf")
    add("--out", type=Path)

    add = command(analyze).add_argument
    add("model", type=Path, metavar="RUN")
    add("--documents", nargs="+", required=True)
    add("--domain-field", default="domain")
    add("--out", type=Path)

    add = command(generate).add_argument
    add("model", type=Path, metavar="RUN")
    add("--prompt", required=True)
    add("--max-new-tokens", type=int, default=64)
    add("--greedy", action="store_true")
    add("--routing", choices=("prompt", "segment"), default="prompt")
    add("--label", metavar="NAME", help="the domain whose expert writes, for a model that routes by label")
    add("--seed", type=int, default=0)

    add = command(export).add_argument
    add("model", type=Path, metavar="RUN")
    add("--to", choices=("hf", "llama"), required=True)
    add("--prompt", default="")
    add("--prompt-file", type=Path)
    add("--label", metavar="NAME", help="the prompt's domain, for a model that routes by label")
    add("--out", type=Path, required=True)

    add = command(bench).add_argument
    add("--out", type=Path, help="the JSON to write")
    add("--quick", action="store_true", help="smaller models and fewer rounds")
    return parser
