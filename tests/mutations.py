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
from pathlib import Path

from mutation import Mutation
from mutations_of_exports import EXPORTS
from mutations_of_reports import REPORTS

ROOT = Path(__file__).parents[1]


MUTATIONS = (
    *EXPORTS,
    *REPORTS,
    Mutation(
        "segments of a packed row run on over its documents",
        "routing/unit.py",
        "starts_BH = (positions_BH >= 0) & (positions_BH % T == 0)",
        "starts_BH = (positions_BH >= 0) & (self.positions().cumsum(1) % T == 0)",
        "tests/model/test_packing.py",
    ),
    Mutation(
        "a segment of a packed row is routed by itself",
        "routing/pooling.py",
        "layout.segments_BU.clamp(max=1)",
        "layout.segments_BU.clamp(max=0)",
        "tests/model/test_packing.py",
    ),
    Mutation(
        "experts read their parameters past adapters",
        "model/experts.py",
        "{name: getattr(self, name) for name in self.width_dims}",
        "dict(self.named_parameters())",
        "tests/model/test_wrappers.py",
    ),
    Mutation(
        "an old checkpoint's up is read as its gate",
        "model/gate_up.py",
        "read = tensor.unbind(1) if tensor.dim()",
        "read = (tensor[:, 0], tensor[:, 0]) if tensor.dim()",
        "tests/train/test_checkpoint.py",
    ),
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
        "        weights.update(family.weights(name, weight))\n",
        "        weights.update(family.weights(name, weight.clone()))\n",
        "tests/model/test_pretrained.py",
    ),
    Mutation(
        "a sliding window is ignored",
        "model/pretrained.py",
        "if window is not None and window < (context or longest):",
        "if False:",
        "tests/model/test_families.py",
    ),
    Mutation(
        "Qwen2's output has a bias",
        "model/block.py",
        "if config.attention_out_bias != config.attention_bias:",
        "if False:",
        "tests/model",
    ),
    Mutation(
        "routers are kept for other units",
        "model/conversion.py",
        'axes = ("unit", "scope",',
        'axes = ("scope",',
        "tests/model/test_conversion.py",
    ),
    Mutation(
        "a run starts from random weights",
        "train/loop.py",
        "        make = initial.in_design\n",
        "",
        "tests/test_initial.py",
    ),
    Mutation(
        "a run begins with weights that changed",
        "train/initial.py",
        "if expected is not None and self.digest() != expected:",
        "if False:",
        "tests/test_initial.py",
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
        "losses_NL[:, skip:].mean().exp()",
        "losses_NL.mean().exp()",
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
        "skip = max(map(first_segment,",
        "skip = min(map(first_segment,",
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
        "a hang-up of the terminal kills a command",
        "cli/signals.py",
        "ENDING = (signal.SIGTERM, signal.SIGHUP)",
        "ENDING = (signal.SIGTERM,)",
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
    Mutation(
        "seeds spread as if they were all there are",
        "compare/seeds.py",
        "np.std(values, ddof=1)",
        "np.std(values)",
        "tests/compare/test_seeds.py",
    ),
    Mutation(
        "the dense phase costs what the mixture does",
        "compare/measures.py",
        '[flops[m["experts"]] for m in metrics]',
        'flops[metrics[-1]["experts"]]',
        "tests/compare/test_results.py",
    ),
    Mutation(
        "a design that sees later tokens is compared",
        "compare/results.py",
        'if variant["causality"] != "none":',
        "if True:",
        "tests/compare/test_results.py",
    ),
    Mutation(
        "a headline claims what one interval supports",
        "compare/report.py",
        "if known and all(difference.high < 0 for difference in known):",
        "if known and any(difference.high < 0 for difference in known):",
        "tests/compare/test_report.py",
    ),
    Mutation(
        "settings that change the training share a folder",
        "compare/cells.py",
        "return None if value == default else value",
        "return None",
        "tests/compare/test_cells.py",
    ),
    Mutation(
        "interrupted cells are not saved",
        "compare/running.py",
        "            process.terminate()\n",
        "            process.kill()\n",
        "tests/compare/test_running.py",
    ),
    Mutation(
        "a published accuracy has two digits exchanged",
        "published/aoe.py",
        "34.06",
        "30.46",
        "tests/published",
    ),
    Mutation(
        "a published perplexity is another table's",
        "published/design_choices.py",
        '"sequence (4, 1)": (11.573,)',
        '"sequence (4, 1)": (11.605,)',
        "tests/published",
    ),
    Mutation(
        "an item's curve in random order trains in similar order",
        "published/items/lory.py",
        'RANDOM_ORDER = ("--order=random",)',
        "RANDOM_ORDER = ()",
        "tests/published",
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
