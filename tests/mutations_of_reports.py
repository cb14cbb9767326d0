"""Known mistakes in what people look at: pages, generated text, runs and their folders."""

from mutation import Mutation

REPORTS = (
    Mutation(
        "the lens shows the routing of the next segment",
        "analyze/lens.py",
        "units + np.arange(inputs.shape[1]) // slots",
        "units + (np.arange(inputs.shape[1]) + 1) // slots",
        "tests/analyze/test_lens.py",
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
        '"order", "corpus"}',
        '"order"}',
        "tests/train/test_folder.py",
    ),
)
