"""What decides the loss of a small model: the trainings behind docs/findings.md.

python benchmarks/findings.py --out WORK [--results FILE] [QUESTION…]
python benchmarks/findings.py QUESTION --out WORK --results FILE --text PATH… [--longest N] [--unlike PATH…]

The learning rate of every variant is chosen by shorter trainings with a seed of their own. The variant is
then trained with SEEDS and scored on held-out text. What the results hold already is not trained again, on
whichever machine; the same command resumes. `findings_page.py` writes tables and pictures.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.analyze.routes import routes_by_domain
from loriini.common.atomic import write_json
from loriini.common.errors import InputError
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_object
from loriini.compare.measures import training_measures
from loriini.compare.running import refuse_failures, threads_of, train_all
from loriini.compare.trainings import Training, with_folders
from loriini.data.batches.loader import BatchLoader
from loriini.data.prepare.corpus import open_corpus
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import OrderMethod
from loriini.data.prepare.text.documents import write_lines
from loriini.data.read.document import Document
from loriini.data.read.inputs import input_identity
from loriini.data.read.local_text import collect_local_text
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.data.read.read import read_documents
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS, ReadOptions
from loriini.data.read.split import split_documents
from loriini.evaluate.heldout import HeldOut
from loriini.evaluate.intervals import Sample
from loriini.evaluate.runs import ScoredModel, evaluate_on, shared_heldout
from loriini.evaluate.settings import EvaluationRouting, EvaluationSettings
from loriini.model.weights.loading import load_model
from loriini.quickstart.settings import QuickstartSettings
from loriini.recipes.redesign import scaled_shape, with_design
from loriini.recipes.small import quickstart_run
from loriini.train.config import TrainConfig
from loriini.train.corpora import read_corpora
from loriini.train.overrides.apply import override

RESULTS = Path(__file__).parent / "results" / "findings.json"
RATES = ("8e-3", "1.6e-2")
"""The learning rates tried at first; while the best is the least or the greatest, another is."""
RATE_SEED, SEEDS = 0, tuple(range(100, 108))
"""The seed that chooses the rate, whose losses are too low, and those that are reported."""
SKIPPED_TOKENS = 128
"""Tokens at the start of a document that no perplexity counts: the longest segment of the designs."""
NEW_INSTANCES = 256
"""Instances of its corpus that a training has not read, on which its loss is measured."""


@dataclass(frozen=True)
class Variant:
    """A design, and how its training differs from that of the quickstart."""

    name: str
    """The design, and what differs after a comma."""
    overrides: tuple[str, ...] = ()
    width: int = 64
    """Width of the model, with heads of 32."""
    rate_of: str = ""
    """The variant whose rate it has; empty: one of its own is chosen."""
    rate: str = ""
    """A rate that is given, not chosen."""
    seeds: int = 5
    """How many of SEEDS it is trained with; 0: only its rate is chosen."""
    order: OrderMethod = "similar"
    """The order of the documents that it is trained on."""
    routing: EvaluationRouting = "training"
    """How it is scored."""

    @property
    def design(self) -> str:
        return self.name.partition(",")[0]

    def run(self, steps: int, seed: int) -> TrainConfig:
        """The quickstart's run of its design, at its width, before overrides."""
        dense = quickstart_run("dense", "small", steps, seed)
        shape = scaled_shape(dense.model, self.width, dense.model.num_hidden_layers, self.width // 32)
        return with_design(replace(dense, model=shape), self.design)


def designs(*names: str, **settings: Any) -> tuple[Variant, ...]:
    """The quickstart's models of these designs."""
    return tuple(Variant(name, **settings) for name in names)


NARROW = ", width 32"
ADAMW, INITIALIZER = "--optimizer.name=adamw", "--model.expert_scale=initializer"
MIXTURES = ("mixtral", "lory", "switch", "ec-token", "deepseek-v3", "aoe", "prefix", "relu")
"""The mixtures that are trained with each optimizer and each initial scale."""


def narrow(
    *names: str, ending: str = "", overrides: tuple[str, ...] = (), **settings: Any
) -> tuple[Variant, ...]:
    """These designs at width 32, trained with twenty tokens for each active parameter."""
    overrides = ("--steps=900", *overrides)
    return tuple(Variant(f"{name}{ending}{NARROW}", overrides, width=32, **settings) for name in names)


QUESTIONS = {
    "mixtures": (*designs("dense", "lory", seeds=8), *designs("mixtral")),
    "starts": (
        Variant("lory, copies", ("--model.expert_scale=copies",)),
        Variant("lory, dense warm-up", ("--warmup.dense_share=0.05",)),
    ),
    "prompt": (Variant("lory, routed by the prompt", rate_of="lory", routing="prompt"),),
    "expert-choice": designs("ec-token"),
    "units": designs("prefix"),
    "designs": designs("deepseek-v3", "aoe"),
    "width-128": (
        *(Variant(f"{name}, width 128", width=128, seeds=3) for name in ("dense", "lory")),
        Variant("mixtral, width 128", width=128, rate_of="dense, width 128", seeds=3),
    ),
    "expert-rate": (Variant("lory, expert rate 2.8", ("--optimizer.expert_rate=2.8",), seeds=0),),
    "width-256": (Variant("dense, width 256", width=256, seeds=0),),
    "optimizers": tuple(Variant(f"{name}, AdamW", (ADAMW,), seeds=0) for name in ("dense", "lory")),
    "longer": (*designs("dense", "lory", "mixtral"), *narrow("dense", "lory", "mixtral")),
    "repeated": (*narrow(*MIXTURES), *narrow("frozen", rate_of="mixtral, width 32")),
    "adamw": (
        *narrow("dense", *MIXTURES, ending=", AdamW", overrides=(ADAMW,)),
        *narrow("dense", ending=", AdamW, half the rate", overrides=(ADAMW,), rate="4e-3"),
    ),
    "initializer": (
        *narrow(*MIXTURES, ending=", initializer", overrides=(INITIALIZER,)),
        *narrow(*MIXTURES, ending=", AdamW, initializer", overrides=(ADAMW, INITIALIZER)),
    ),
    "more-designs": designs("relu", "switch"),
    "routers": designs("frozen", "random", rate_of="mixtral"),
    "segments": (
        Variant("lory, segments of 32", ("--routing.segment_length=32",), rate_of="lory"),
        Variant("lory, segments of 64", ("--routing.segment_length=64",), rate_of="lory"),
    ),
    "experts": (
        Variant("lory, 4 experts", ("--model.num_experts=4",), rate_of="lory"),
        Variant("lory, 16 experts", ("--model.num_experts=16",), rate_of="lory"),
    ),
    "scales": (
        *designs("dense", "lory", "ec-token"),
        Variant("lory, initializer", (INITIALIZER,)),
        Variant("ec-token, initializer", (INITIALIZER,)),
        Variant("lory, AdamW", (ADAMW,)),
        Variant("lory, AdamW, initializer", (ADAMW, INITIALIZER)),
    ),
    "order": (
        *designs("dense", "lory", seeds=8),
        Variant("dense, random order", rate_of="dense", seeds=8, order="random"),
        Variant("lory, random order", rate_of="lory", seeds=8, order="random"),
    ),
    "languages": (
        *designs("dense", "mixtral", "sequence-top2", "global-top2"),
        Variant("label", ("--model.num_experts=4",), rate_of="dense"),
    ),
}
"""The variants of each question, in the order of their trainings: what decides most comes first."""
OF_OTHER_TEXT = {
    **dict.fromkeys(("order", "scales"), "short"),
    **dict.fromkeys(("longer", "repeated", "adamw", "initializer"), "domains"),
    "languages": "languages",
}
"""Questions about a `--text`, and the NAME of the text, whose results are `findings_NAME.json`."""


@dataclass(frozen=True)
class Study:
    """Where text, trainings and results are, and how long trainings are."""

    text: tuple[str, ...]
    unlike: tuple[str, ...]
    longest: int
    characters: int
    out: Path
    results: Path
    steps: int
    rate_steps: int
    jobs: int
    instances: int

    @cached_property
    def sides(self) -> Mapping[str, Sequence[Document]]:
        """The documents for training and the held-out ones, which become a file."""
        if not self.text:
            sides = collect_local_text()
        else:
            short = ReadOptions(max_document_characters=self.longest)
            sides = split_documents(self.text, self.characters, self.characters // 10, short)
        self.out.mkdir(parents=True, exist_ok=True)
        write_lines(self.out / "heldout.jsonl", sides[HELDOUT])
        return sides

    def corpus(self, order: OrderMethod = "similar") -> Path:
        """The corpus in this order."""
        identity = input_identity(self.text)
        settings = replace(QuickstartSettings().prepare_settings(), order=order)
        folder = self.out / f"corpus-{order}"
        return prepare_documents(folder, lambda drop: self.sides[TRAIN], identity, settings).folder.resolve()

    def training(self, variant: Variant, rate: str, steps: int, seed: int) -> Training:
        """A training of a variant."""
        rated = (f"--optimizer.learning_rate={rate}", *variant.overrides)
        run = override(variant.run(steps, seed), rated)
        return Training(variant.name, replace(run, corpus=(self.corpus(variant.order),)))

    def train(self, trainings: Iterable[Training]) -> list[Training]:
        """Train those that are not done; WorkerDied where one fails."""
        placed = with_folders(trainings, self.out / "runs")
        refuse_failures(placed, train_all(placed, self.jobs))
        return placed

    def choose_rates(self, variants: Sequence[Variant]) -> dict[str, dict[str, float | None]]:
        """By variant, the training loss with each rate, None where it diverged."""
        tried: dict[str, dict[str, float | None]] = {variant.name: {} for variant in variants}
        while left := [(v, rate) for v in variants for rate in rates_to_try(tried[v.name])]:
            done = self.train(self.training(v, rate, self.rate_steps, RATE_SEED) for v, rate in left)
            for (variant, rate), training in zip(left, done, strict=True):
                tried[variant.name][rate] = loss_of(training)
        return tried

    def score(self, trainings: Sequence[Training], routing: EvaluationRouting) -> Iterator[dict[str, Any]]:
        """The scores of each training: all have the same documents, and `tokens` of them."""
        documents = (str(self.out / "heldout.jsonl"), *self.unlike)
        settings = EvaluationSettings(
            documents, skip=SKIPPED_TOKENS, instances=self.instances, routing=routing
        )
        models = [ScoredModel.from_run(training.folder) for training in trainings]
        settings, heldout = shared_heldout(models, settings)
        for training in trainings:
            scored = evaluate_on(training.folder, heldout, settings, training.name)
            losses, tokens = by_document(scored, heldout)
            yield {
                "training_loss": loss_of(training),
                "new_loss": new_loss(training, settings),
                "perplexity": scored["perplexity"],
                "losses": losses,
                "tokens": tokens,
                **agreement(training, heldout),
            }


def rates_to_try(tried: Mapping[str, float | None]) -> list[str]:
    """The rates that are still to be tried: RATES, then one beyond the best if that is at an edge."""
    if not tried:
        return [*RATES]
    best, rates = best_rate(tried), sorted(map(float, tried))
    beyond = {rates[0]: rates[0] / 2, rates[-1]: rates[-1] * 2}
    return [f"{beyond[float(best)]:g}"] if float(best) in beyond else []


def best_rate(tried: Mapping[str, float | None]) -> str:
    """The rate of the lowest training loss. InputError where all diverged."""
    finite = {rate: loss for rate, loss in tried.items() if loss is not None}
    if not finite:
        raise InputError(f"all trainings diverged, with rates {', '.join(tried)}; give RATES lower ones")
    return min(finite, key=finite.__getitem__)


def loss_of(training: Training) -> float | None:
    """The training loss, None if it diverged."""
    loss: float | None = training_measures(training)["training_loss"]
    return loss if training.state == "finished" else None


def new_loss(training: Training, settings: EvaluationSettings) -> float:
    """The loss, after the first segment, on instances of the corpus that the training has not read.

    All trainings of a seed and an order have the same.
    """
    run, instances = training.run, read_corpora(training.run.corpus).instances
    read = run.steps * run.batch_size
    ids = BatchLoader(instances, run.batch_size, run.seed).ids(np.arange(read, read + NEW_INSTANCES))
    rows, labels = torch.from_numpy(instances.read(ids)), instances.labels(ids)
    of_label = {instances.label_names[i]: HeldOut([*rows[labels == i]], 1.0) for i in np.unique(labels)}
    scored = evaluate_on(training.folder, of_label, settings, f"{training.name}, new instances")
    losses = (len(of.instances) * log(scored["perplexity"][label]) for label, of in of_label.items())
    return sum(losses) / len(ids)


Losses = dict[str, list[float]]


def by_document(scored: Mapping[str, Any], heldout: Mapping[str, HeldOut]) -> tuple[Losses, Losses]:
    """The mean loss of each document that counts, by domain, and how many predictions it is the mean of."""
    samples = {
        domain: Sample.from_values(
            [losses], domain, heldout[domain].documents, scored["instance_tokens"][domain]
        )
        for domain, losses in scored["instance_losses"].items()
    }
    losses = {domain: (of.sums_MG[0] / of.weight_G).round(5).tolist() for domain, of in samples.items()}
    return losses, {domain: of.weight_G.tolist() for domain, of in samples.items()}


def agreement(training: Training, heldout: Mapping[str, HeldOut]) -> dict[str, list[float]]:
    """How far experts and domains agree in each layer of a mixture (`Routes.domain_agreement`)."""
    model, _ = load_model(training.folder, "cpu")
    if model.config.num_experts == 1:
        return {}
    routes = routes_by_domain(model, heldout, "auto")
    return {"agreement": np.round(routes.domain_agreement, 4).tolist()}


@torch.no_grad()
def branch_rms(corpus: Path) -> dict[str, dict[str, float]]:
    """What untrained FFNs add on text, by design and `expert_scale`: the root mean square over dense's.

    Of eight instances, over three seeds.
    """
    instances = open_corpus(corpus).instances
    tokens_BL = torch.from_numpy(instances.read(np.arange(8)))

    def of(design: str, scale: str, seed: int) -> float:
        torch.manual_seed(seed)
        run = override(quickstart_run(design, "small"), [f"--model.expert_scale={scale}"])
        model = LoriiniForCausalLM(run.config(instances.vocab_size)).train()
        added: list[Tensor] = []
        for mixture in model.model.mixtures:
            mixture.register_forward_hook(lambda *call: added.append(call[-1][0]))
        labels = torch.arange(8) if model.config.routed_by_label else None
        model(tokens_BL, routing_labels=labels)
        return torch.stack(added).square().mean().sqrt().item()

    def mean(design: str, scale: str) -> float:
        return fmean(of(design, scale, seed) for seed in range(3))

    dense, scales = mean("dense", "dense"), ("initializer", "dense")
    return {
        name: {scale: mean(name, scale) / dense for scale in scales} for name in DESIGNS if name != "dense"
    }


def answer(study: Study, found: dict[str, Any], variants: Sequence[Variant]) -> None:
    """Train the variants and seeds that `found` lacks, add them to it, and write it after each variant.

    Seeds of a variant that were trained with another rate than is best now are trained anew.
    """
    tried = found["tried"]
    if unrated := [v for v in variants if not (v.rate or v.rate_of) and v.name not in tried]:
        tried |= study.choose_rates(unrated)
        write(study, found)
    rates = {v.name: v.rate or best_rate(tried[v.rate_of or v.name]) for v in variants}
    before = {v.name: found["variants"].get(v.name, {}) for v in variants}
    known = {name: of["seeds"] if of.get("rate") == rates[name] else {} for name, of in before.items()}
    lacking = [(v, seed) for v in variants for seed in SEEDS[: v.seeds] if str(seed) not in known[v.name]]
    done = study.train(study.training(v, rates[v.name], study.steps, seed) for v, seed in lacking)
    for variant in (v for v in variants if any(v is of for of, seed in lacking)):
        own = [training for training in done if training.variant == variant.name]
        scores = list(study.score(own, variant.routing))
        for score in scores:
            if (tokens := score.pop("tokens")) != found.setdefault("tokens", tokens):
                raise InputError(f"{variant.name}: scored on other tokens than {study.results}")
        result = result_of(own, scores)
        result["seeds"] = {**known[variant.name], **result["seeds"]}
        found["variants"][variant.name] = {"rate": rates[variant.name], **result}
        write(study, found)


def result_of(trainings: Sequence[Training], scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a variant is, and its scores by seed."""
    run = trainings[0].run
    config = run.config(read_corpora(run.corpus).vocab_size)
    return {
        "parameters": dict(zip(("total", "active"), config.parameters(), strict=True)),
        "causality": config.design.causality,
        "training_causality": config.design.training_causality,
        "seeds": {str(training.seed): score for training, score in zip(trainings, scores, strict=True)},
    }


def results_so_far(study: Study) -> dict[str, Any]:
    """The results file, or one without variants. InputError where it is of other text or other settings."""
    about = {
        "corpus": read_corpora((study.corpus(),)).digest,
        "steps": study.steps,
        "rate_steps": study.rate_steps,
        "rate_seed": RATE_SEED,
        "unlike": sorted({document.domain for document in read_documents(study.unlike)}),
    }
    if not study.results.exists():
        run = study.training(Variant("dense"), RATES[0], study.steps, SEEDS[0]).run.to_dict()
        return {**about, "run": run | {"corpus": ["corpus"]}, "machines": [], "tried": {}, "variants": {}}
    found = read_object(study.results, "remove it or choose other --results")
    if other := [key for key, value in about.items() if found.get(key) != value]:
        raise InputError(f"{study.results}: has other {', '.join(other)}; choose other --results")
    return found


def write(study: Study, found: dict[str, Any]) -> None:
    """Write the results, with the machine that added to them."""
    machine = {**describe_machine(), "jobs": study.jobs, "threads": threads_of(study.jobs)}
    machine["date"] = time.strftime("%Y-%m-%d")
    found["machines"] += [machine] if machine not in found["machines"] else []
    write_json(study.results, found)


def main() -> None:
    """Answer the questions, one after another, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    listed, others = ", ".join(QUESTIONS), ", ".join(OF_OTHER_TEXT)
    add("questions", nargs="*", metavar="QUESTION", help=f"{listed}; by default all but {others}")
    add("--text", nargs="+", default=(), metavar="PATH", help="documents; *.heldout.* are held out")
    add("--unlike", nargs="+", default=(), metavar="PATH", help="documents of other domains to score too")
    add("--longest", type=int, default=MAX_DOCUMENT_CHARACTERS, help="leave out longer documents of --text")
    add("--characters", type=int, default=20_000_000, help="read of --text; held out is a tenth of it")
    add("--out", type=Path, required=True, help="where corpora and runs are made")
    add("--results", type=Path, default=RESULTS, help="the JSON to add to")
    add("--steps", type=int, default=1000)
    add("--rate-steps", type=int, default=500, help="steps of the trainings that choose a rate")
    add("--jobs", type=int, default=2)
    add("--instances", type=int, default=160, help="held-out instances of each domain")
    given = vars(parser.parse_args())
    questions = given.pop("questions") or [name for name in QUESTIONS if name not in OF_OTHER_TEXT]
    if unknown := set(questions) - QUESTIONS.keys():
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    study = Study(**{**given, "text": tuple(given["text"]), "unlike": tuple(given["unlike"])})
    found = results_so_far(study)
    if not study.text:
        found.setdefault("branch_rms", branch_rms(study.corpus()))
    for question in questions:
        answer(study, found, QUESTIONS[question])


if __name__ == "__main__":
    main()
