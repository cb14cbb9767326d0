"""Phrases of stored results in the words of today."""

PHRASES = {
    "distance from the claimed range, that as trained here minus this": (
        "how much closer to the paper's claim"
    ),
    "shift towards the claimed range, from that as trained here": "change towards the paper's claim",
    "questions are continuations of held-out text among four": (
        "questions ask which of four passages continues a held-out text"
    ),
    "; the paper's tasks need larger models": ", since the paper's tasks need larger models",
    "training losses count an instance's first segment, which Lory routes by itself in training: its experts "
    "depend on tokens to be predicted": (
        "training losses count the first segment of an instance, which Lory routes by its own mean in "
        "training, so that its experts depend on tokens to be predicted"
    ),
    "Lory starts as a dense model; Expert Choice cannot, because its gates do not sum to 1, and is a mixture "
    "from the first step": (
        "Lory starts as a dense model, but Expert Choice cannot, because its gates do not sum to 1: it is a "
        "mixture from the first step"
    ),
    "the paper calls prefix routing much worse and prints no number: tested is 2 % of perplexity": (
        "the paper calls prefix routing much worse and prints no number, so the claim is a difference of "
        "2 % of perplexity"
    ),
    "perplexity of the final model on held-out text; the paper's is the mean of the last 100 evaluations": (
        "perplexity is the final model's on held-out text, in the paper the mean of the last 100 evaluations"
    ),
    "on this machine; the paper's is on A100": "measured on this machine, in the paper on A100",
    "on this machine; memory is weights": "throughput is measured here; memory is weights",
    "are counted by a formula; what 2 processes of this machine send with small models is set beside it. "
    "Expert parallelism is that of a top-2 mixture, since merging needs every expert, and by the formula "
    "alone": (
        "are counted by a formula, beside what 2 processes of this machine send with small models; expert "
        "parallelism is that of a top-2 mixture, since merging needs every expert, and is counted by the "
        "formula alone"
    ),
    "rows of unlike widths, and": "rows whose inputs and experts differ in width, and",
    "is active in windows of many alone, so shares": "is active only in windows of many segments, so shares",
    "on a mixture of our own": "on a mixture trained here",
    "seconds are those of a wider one with": "seconds are those of a wider mixture with",
    "; training: ": "; text for training: ",
    "; held out: ": "; held-out text: ",
}
"""Phrases of results that an earlier version wrote, and what stands for them."""


def reworded(text: str) -> str:
    """A text of stored results in the words of today."""
    for before, today in PHRASES.items():
        text = text.replace(before, today)
    return text
