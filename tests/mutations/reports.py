"""Known mistakes in what people look at: evaluation, pages, generated text."""

from mutations.mutation import Mutation

REPORTS = (
    Mutation(
        "perplexity counts the skipped tokens",
        "evaluate/perplexity.py",
        "losses_NL[:, skip:].mean().exp()",
        "losses_NL.mean().exp()",
        "tests/evaluate/test_perplexity.py",
    ),
    Mutation(
        "the bootstrap draws each model's instances separately",
        "evaluate/intervals.py",
        "means_R[start:stop] = sums_G[drawn].sum(1) / instances_R",
        "means_R[start:stop] = sums_G[rng.permuted(drawn.ravel()).reshape(drawn.shape)].sum(1) / instances_R",
        "tests/evaluate/test_intervals.py",
    ),
    Mutation(
        "a prompt routes nothing in an evaluation",
        "evaluate/perplexity.py",
        'inference = {"prompt_lengths": lengths_B, "inference_routing": routing}',
        "pass",
        "tests/evaluate/test_perplexity.py",
    ),
    Mutation(
        "several runs skip the shortest first segment",
        "evaluate/runs.py",
        "skip = max(map(first_segment,",
        "skip = min(map(first_segment,",
        "tests/evaluate/test_runs.py",
    ),
    Mutation(
        "the weights of a sparse design are its choices",
        "analyze/routes.py",
        "chosen = gates if soft else (gates > 0).double()",
        "chosen = gates",
        "tests/analyze/test_routes.py",
    ),
    Mutation(
        "routes count padding",
        "analyze/routes.py",
        "values = values * routing.valid[:, None]",
        "pass",
        "tests/analyze/test_routes.py",
    ),
    Mutation(
        "chance agrees with no domain",
        "analyze/routes.py",
        "chance_bits=chance_L,",
        "chance_bits=np.zeros(len(totals_LDX)),",
        "tests/analyze/test_routes.py",
    ),
    Mutation(
        "long documents are less noisy than short ones",
        "analyze/routes.py",
        "shares_SLE[first_G + draw.integers(length_G)]",
        "np.add.reduceat(shares_SLE, first_G) / length_G[:, None, None]",
        "tests/analyze/test_routes.py",
    ),
    Mutation(
        "the headline ignores the interval",
        "analyze/comparison.py",
        "if not overall.decided:",
        "if overall.change == 0:",
        "tests/analyze/test_report.py",
    ),
    Mutation(
        "the lens shows the routing of the next segment",
        "analyze/lens.py",
        "units + np.arange(len(ids_L) - 1) // slots",
        "units + (np.arange(len(ids_L) - 1) + 1) // slots",
        "tests/analyze/test_lens.py",
    ),
    Mutation(
        "a likely reason is about what holds",
        "reproduce/results.py",
        'if claim["verdict"] == verdict != HOLDS',
        "if verdict != HOLDS",
        "tests/reproduce/test_reasons.py",
    ),
    Mutation(
        "a page runs any script",
        "analyze/page.py",
        "f\"'sha256-{digest}'\" if script else \"'none'\"",
        "\"'unsafe-inline'\"",
        "tests/analyze/test_lens.py",
    ),
    Mutation(
        "the end of a streamed text is lost",
        "evaluate/samples.py",
        "if text:",
        "if text and not stream_end:",
        "tests/evaluate/test_samples.py",
    ),
    Mutation(
        "a moved corpus makes another run",
        "train/folder.py",
        '"corpus", "evaluate.heldout")',
        '"evaluate.heldout")',
        "tests/train/test_folder.py",
    ),
)
