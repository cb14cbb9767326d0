"""Known mistakes, put into the code one at a time: which test catches each?

python tests/mutations.py [NAME…]

Copies the source, changes one line, runs the tests of the packages that should notice, and stops at the first
failure. Takes about a minute a mutation; `test_mutations.py` checks that every line is still there.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """A mistake: `old` occurs once in `file` and becomes `new`; `tests` should fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def apply(self, source: Path) -> None:
        path = source / "loriini" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} holds {self.old!r} {text.count(self.old)} times")
        path.write_text(text.replace(self.old, self.new))


MUTATIONS = (
    Mutation(
        "a segment is routed by itself",
        "routing/pooling.py",
        "return torch.cat([first_BD[:, None], means_BND[:, :-1]], dim=1)",
        "return means_BND",
        "tests/routing tests/model",
    ),
    Mutation(
        "segment 1 trains the router",
        "routing/router.py",
        "else logits_BUE.detach()",
        "else logits_BUE",
        "tests/routing tests/model",
    ),
    Mutation(
        "expert choice counts padding in its capacity",
        "routing/selection.py",
        "units = int(valid_N.sum())",
        "pass",
        "tests/routing",
    ),
    Mutation(
        "expert choice of AoE compares softmaxes",
        "routing/selection.py",
        'logits_NE if config.scorer == "activation_norm" else logits_NE.softmax(-1)',
        "logits_NE.softmax(-1)",
        "tests/routing tests/model",
    ),
    Mutation(
        "the norms of AoE pass no gradient",
        "routing/scorer.py",
        "torch.linalg.vector_norm(a_BUEW.float(),",
        "torch.linalg.vector_norm(a_BUEW.detach().float(),",
        "tests/routing tests/model",
    ),
    Mutation(
        "a random router is not scaled as the initialiser",
        "routing/scorer.py",
        "weight = s.std * standard_normal(",
        "weight = standard_normal(",
        "tests/routing",
    ),
    Mutation(
        "a random router is never redrawn",
        "train/loop.py",
        "    state.model.model.begin_step()\n",
        "",
        "tests/train/test_random_router.py",
    ),
    Mutation(
        "selected experts compute again what is known",
        "model/experts.py",
        "for name, activations in known.items()}",
        "for name, activations in dict[str, Tensor]().items()}",
        "tests/model/test_router_free.py tests/model/test_experts.py",
    ),
    Mutation(
        "a pretrained mixture is copied",
        "model/pretrained.py",
        "weights[ours] = weight.view(shapes[ours])",
        "weights[ours] = weight.view(shapes[ours]).clone()",
        "tests/model/test_pretrained.py",
    ),
    Mutation(
        "an expert's epsilon is not divided by E",
        "train/optimizer.py",
        '"eps": config.eps / experts',
        '"eps": config.eps',
        "tests/train",
    ),
    Mutation(
        "second moments are divided by E once",
        "train/optimizer.py",
        "experts**2",
        "experts",
        "tests/train",
    ),
    Mutation(
        "every rank reads the first rank's share",
        "batches/loader.py",
        "position.consumed + self.rank * share",
        "position.consumed",
        "tests/batches tests/parallel tests/train",
    ),
    Mutation(
        "a resumed run reads its first batch again",
        "train/loop.py",
        "consumed=position.consumed,",
        "consumed=state.progress.consumed,",
        "tests/train",
    ),
    Mutation(
        "the load of one process stands for all",
        "routing/losses.py",
        "f = f if average is None else average(f)",
        "pass",
        "tests/routing tests/parallel",
    ),
    Mutation(
        "perplexity counts the skipped tokens",
        "evaluate/perplexity.py",
        "math.exp(losses_NL[:, skip:].mean().item())",
        "math.exp(losses_NL.mean().item())",
        "tests/evaluate",
    ),
    Mutation(
        "the bootstrap draws each model's instances separately",
        "evaluate/intervals.py",
        "means_2R[1, start:stop] = b_N[drawn].mean(1)",
        "means_2R[1, start:stop] = b_N[rng.permuted(drawn.ravel()).reshape(drawn.shape)].mean(1)",
        "tests/evaluate",
    ),
    Mutation(
        "a prompt routes nothing in an evaluation",
        "evaluate/perplexity.py",
        'inference = {"prompt_lengths": lengths_B, "inference_routing": routing}',
        "pass",
        "tests/evaluate",
    ),
    Mutation(
        "several runs skip the shortest first segment",
        "evaluate/runs.py",
        "skip=max(map(first_segment,",
        "skip=min(map(first_segment,",
        "tests/evaluate",
    ),
    Mutation(
        "the weights of a sparse design are its choices",
        "analyze/routes.py",
        "chosen = gates if soft else (gates > 0).double()",
        "chosen = gates",
        "tests/analyze",
    ),
    Mutation(
        "routes count padding",
        "analyze/routes.py",
        "values = values * routing.valid[:, None]",
        "pass",
        "tests/analyze",
    ),
    Mutation(
        "chance agrees with no domain",
        "analyze/routes.py",
        "chance_bits=_chance_bits(per_sequence[..., :E], counts)",
        "chance_bits=np.zeros(len(totals_LDX))",
        "tests/analyze",
    ),
    Mutation(
        "a sparse design is active by Lory's threshold",
        "train/metrics.py",
        "active = use.above if soft else use.choices",
        "active = use.above",
        "tests/train/test_metrics.py",
    ),
    Mutation(
        "the headline ignores the interval",
        "analyze/comparison.py",
        "if not overall.decided:",
        "if overall.change == 0:",
        "tests/analyze",
    ),
    Mutation(
        "a model stays where it was loaded",
        "model/loading.py",
        "model.to(device).eval()",
        "model.eval()",
        "tests/evaluate",
    ),
    Mutation(
        "files are renamed before they are synced",
        "atomic.py",
        "        for name in files:\n            fsync(Path(folder, name))\n",
        "",
        "tests/test_atomic.py",
    ),
    Mutation(
        "edited manifests are believed",
        "jobs/artifact.py",
        "if written is not None and written != digest(manifest):",
        "if False:",
        "tests/corpus/test_verify.py",
    ),
    Mutation(
        "offsets of decoded columns are not checked",
        "sources/decoder.py",
        "                _check(column)\n",
        "                pass\n",
        "tests/sources/test_columns.py",
    ),
    Mutation(
        "ids outside the vocabulary are read",
        "corpus/instances.py",
        "if largest >= self.vocab_size:",
        "if False:",
        "tests/corpus/test_instances.py",
    ),
    Mutation(
        "workers receive the terminal's signals",
        "jobs/processes.py",
        "signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP}",
        "signal.SIG_BLOCK, set()",
        "tests/hostile/test_signals.py",
    ),
    Mutation(
        "random order keeps near-duplicates",
        "corpus/walks.py",
        "return permutation[keep[permutation]]",
        "return permutation",
        "tests/corpus",
    ),
    Mutation(
        "the 7B models are trained on less text",
        "recipes/lory.py",
        "200_000_000_000",
        "20_000_000_000",
        "tests/test_paper_recipes.py",
    ),
)


def caught_by(mutation: Mutation) -> str | None:
    """The first test that fails with the mutation in place; None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        mutation.apply(source)
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--durations=0"]
        done = subprocess.run(
            [*command, *mutation.tests.split()], cwd=ROOT, env=environment, capture_output=True, text=True
        )
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else None if done.returncode == 0 else f"pytest ended with {done.returncode}"


def main() -> None:
    """Print a line for each mutation; exit 1 if any is not caught."""
    wanted = sys.argv[1:]
    missed = 0
    for mutation in MUTATIONS:
        if not wanted or mutation.name in wanted:
            test = caught_by(mutation)
            missed += test is None
            print(f"{mutation.name}: {test or 'NOT CAUGHT'}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
