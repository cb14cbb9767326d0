"""Commands with arguments that cannot be, and settings that no machine can hold."""

from collections.abc import Iterator
from pathlib import Path

from hostile.runner import Harm, Row, nothing

TRAIN = "train tiny-lory --corpus corpus --out run --steps 1 --length 64 --routing.segment_length 16 "
NOT_FINITE = ("nan", "-inf", "1e300")
RATES = (
    *(f"optimizer.{name}" for name in ("learning_rate", "router_rate", "weight_decay", "warmup", "decay")),
    *(f"optimizer.{name}" for name in ("eps", "clip", "final_rate")),
    *(f"routing.{name}" for name in ("router_z", "confidence_entropy", "gate_l1", "capacity_factor")),
    *(f"model.{name}" for name in ("rope_theta", "initializer_range", "rms_norm_eps", "dropout")),
    "warmup.dense_share",
    "watch.peak_flops",
)
COUNTS = (
    *(f"model.{name}" for name in ("low_rank", "hidden_size", "num_experts", "vocab_size", "head_dim")),
    *(f"routing.{name}" for name in ("top_k", "segment_length")),
    *("steps", "batch_size", "checkpoint.keep", "evaluate.every", "parallel.experts"),
)
SETTINGS = {
    "--optimizer.betas nan,0.9": "each a finite number",
    "--corpus_weights 1,nan": "each a finite number",
    "--length 100000000000": "at most",
    "--max-minutes nan": "a finite number or none",
    "--model.head_dim 3": "make it even",
    "--model.low_rank 1000000": "no width",
    "--model.vocab_size 10": "give at least as many",
    "--routing.top_k 99": "has no effect here",
    "--micro_batch_size 99": "has no effect here",
    "--parallel.shard 2": "has no effect here: it needs several processes",
    "--routing mixtral --routing.top_k 99": "at most num_experts",
    "--model.hidden_size 100000": r"needs at least [\d,.]+ GiB, .* this machine has",
    "--model.hidden_size 100000000000000": "this machine has",
    "--model.vocab_size 1000000000000": "this machine has",
    "--batch_size 100000000000": "this machine has",
}
OTHERS = {
    "train tiny-lory --corpus corpus --out corpus --length 64": "holds a corpus",
    "train tiny-lory --corpus corpus --out documents.jsonl": "is a file",
    f"train tiny-lory --corpus corpus --out {'a' * 300}": "too long",
    "train tiny-lory --corpus corpus --out ''": "--out is empty",
    "train tiny-lory --dry-run --memory inf": "give it as 80GiB",
    "train tiny-lory --dry-run --vocab-size 99999999999999999999999999": "at most",
    "train tiny-lory --dry-run --batch_size 1000000000000000 --length 16000000": "largest that is estimated",
    "train tiny-dense --dry-run --routing.top_k 99": "needs a mixture",
    "quickstart --steps 99999999999999999999": "at most",
    "compare mixtral relu --out there --grid optimizer.learning_rate=nan,1 --dry-run": "finite number",
    "compare mixtral relu --out there --corpus corpus --heldout documents.jsonl --skip -1": "at least 0",
    "compare mixtral relu --out there --corpus absent --heldout documents.jsonl": "no finished corpus",
    "bench --out corpus": "is a folder",
}
OF_MODELS = {
    "evaluate some/model --documents documents.jsonl --length 100000000000": "at most 1,048,576",
    "evaluate some/model --documents documents.jsonl --device tpu": "no such device",
    "evaluate some/model --tasks piqa --num-fewshot 99999999": "at most 1,000",
    "analyze some/model --documents documents.jsonl --out documents.jsonl": "is a file",
    "generate some/model --prompt x --max-new-tokens 1000000000000": "at most",
    "generate some/model --prompt x --temperature nan": "a finite number",
    "generate some/model --prompt x --seed 99999999999999999999999": "below 9,223,372,036,854,775,808",
    "lens some/model --prompt words --out /dev/full": "/dev/full: is a .*pipe or device",
    "lens some/model --text loop --out page.html": "loop",
    "lens some/model --text bytes --out page.html": "not valid UTF-8",
    "export corpus --to llama --out there --prompt-file /dev/zero": "a folder, pipe or device",
    "export corpus --to hf --out there --prompt x": "formats without a router",
    "export corpus --to hf --out loop": "loop",
}
EVERY = 6
"""One setting of these is tried in the suite, all in the drill."""


def strange_files(folder: Path) -> None:
    """A link to itself, and bytes that are no text."""
    (folder / "loop").symlink_to("loop")
    (folder / "bytes").write_bytes(b"\xff\xfe\x00")


def numbers() -> Iterator[Row]:
    values = [(name, value) for name in RATES for value in NOT_FINITE]
    values += [(name, value) for name in COUNTS for value in ("-3", "1" + "0" * 30, "many")]
    for i, (name, value) in enumerate(values):
        line = rf"--{name}|{name} is|no larger than a segment"
        yield Row(f"train --{name} {value}", f"{TRAIN} --{name} {value}", line, drill=i % EVERY != 0)


def rows(table: dict[str, str], harm: Harm = nothing) -> Iterator[Row]:
    for i, (command, line) in enumerate(table.items()):
        yield Row(command.replace(TRAIN, "train ")[:90], command, line, harm, drill=i % EVERY != 0)


ROWS = [
    *numbers(),
    *rows({TRAIN + setting: line for setting, line in SETTINGS.items()}),
    *rows(OTHERS),
    *rows(OF_MODELS, strange_files),
    Row("text that is not UTF-8", "generate some/model --prompt \udcff", "not UTF-8"),
    Row("out that is not UTF-8", "bench --out \udcff", "not UTF-8"),
]
