"""Commands on a run whose settings, checkpoints, metrics or model folder were damaged or edited."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hostile.rows_corpus import JSON, as_folder, halved, replaced
from hostile.runner import Harm, Row, rows_of
from hostile.template import TRAIN
from loriini.common.hardware import has_bf16, pick_device
from loriini.data.jobs.artifact import file_hash

RESUME = "train --resume run"
INIT = "train tiny-lory --init {} --corpus corpus --out other --steps 1 --length 64 --batch_size 2"
COMMANDS = {
    "resume": RESUME,
    "train": TRAIN,
    "export a step": "export run --to hf --step 2 --out there",
    "start from a step": INIT.format("run/checkpoints/step-00000002"),
    "compare": "compare run twin --out compared",
    "analyze": "analyze run --documents documents.jsonl --domain-field topic --out there",
    "evaluate": "evaluate run --documents documents.jsonl --domain-field topic",
}
STEPS = ("step-00000004", "step-00000002")


def at(path: str, harm: Callable[[Path], None]) -> Harm:
    return lambda folder: harm(folder / "run" / path)


def both(*harms: Harm) -> Harm:
    def harm(folder: Path) -> None:
        for each in harms:
            each(folder)

    return harm


def unfinished(folder: Path) -> None:
    """The final model is removed, so that the run resumes from its last checkpoint."""
    shutil.rmtree(folder / "run" / "model")


def edited(*keys: str, value: Any) -> Callable[[Path], None]:
    """A JSON object with one of its values replaced; `...` removes it."""

    def harm(path: Path) -> None:
        values = json.loads(path.read_text())
        inner = values
        for key in keys[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = value
        path.write_text(json.dumps(values))

    return harm


def shard(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """A checkpoint's shard changed, and its hash with it."""

    def harm(step: Path) -> None:
        (file,) = step.glob("*.safetensors")
        change(file)
        edited("sha256", file.name, value=file_hash(file))(step / "state.json")

    return harm


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """A safetensors file with other tensors and the same metadata."""

    def harm(path: Path) -> None:
        head = path.read_bytes()
        size = int.from_bytes(head[:8], "little")
        metadata = json.loads(head[8 : 8 + size]).get("__metadata__")
        values = load_file(path)
        change(values)
        save_file(values, path, metadata)

    return harm


EMBEDDING = "model.model.embed_tokens.weight"
STATES = {
    "an unknown field": edited("progress", "more", value=1),
    "a missing field": edited("progress", "consumed", value=...),
    "another step": edited("progress", "step", value=3),
    "no hashes": edited("sha256", value={}),
    "hashes that lead outside": edited("sha256", value={"../../../documents.jsonl": "0" * 64}),
}
SHARDS = {"that is no safetensors": replaced(b"\xff" * 999), "that is cut": halved}
TENSORS = {
    "without a weight": tensors(lambda t: t.pop(EMBEDDING)),
    "of another shape": tensors(lambda t: t.update({EMBEDDING: torch.zeros(3, 5)})),
    "of no tensors": tensors(lambda t: t.clear()),
    "without a moment": tensors(lambda t: t.pop(f"optimizer.exp_avg.{EMBEDDING.removeprefix('model.')}")),
    "with a random state of another size": tensors(
        lambda t: t.update({"random.0": torch.zeros(3, dtype=torch.uint8)})
    ),
}
SETTINGS = {
    "a name of a list": edited("name", value=["a"]),
    "a rate of NaN": edited("optimizer", "learning_rate", value=float("nan")),
    "a rate of text": edited("optimizer", "learning_rate", value="high"),
    "negative steps": edited("steps", value=-1),
    "a length of 0": edited("length", value=0),
}
CORPORA = {
    "an absent corpus": edited("corpus", value=["/absent\x1b[31m"]),
    "a NUL in a path": edited("corpus", value=["a\0b"]),
}
RECORDED = {
    "a vocabulary that is a list": edited("vocab_size", value=[]),
    "a corpus without a digest": edited("corpus_digest", value=None),
}
OTHERS = {
    "precision": edited("precision", value="fp32" if has_bf16(pick_device()) else "bf16"),
    "seed": edited("seed", value=7),
    "model": edited("model", "hidden_size", value=64),
}
METRICS = {
    "garbage": replaced(b"\xff\x00\xfe\n" * 9),
    "too deep": replaced(b"[" * 100_000 + b"\n{}\n"),
    "a folder": as_folder,
    "of steps alone": replaced(b'{"step": 1}\n{"step": 2}\n'),
}
MODELS = {
    "without a configuration": lambda model: (model / "config.json").unlink(),
    "without weights": lambda model: (model / "model.safetensors").unlink(),
    "of cut weights": lambda model: halved(model / "model.safetensors"),
}


READERS = {
    "start from a step": "a damaged checkpoint",
    "export a step": "damaged checkpoint|no checkpoint of this step",
}
"""Commands that read a checkpoint, and how they refuse a damaged one."""


rows = partial(rows_of, COMMANDS)


def passed_over() -> Iterator[Row]:
    """The newest checkpoint is damaged: the run resumes from the one before; with both, it is refused."""
    harms = {f"state.json has {name}": harm for name, harm in STATES.items()}
    damages: dict[str, Callable[[Path], None]] = {
        **{name: lambda step, harm=harm: harm(step / "state.json") for name, harm in harms.items()},
        **{
            f"state.json is {name}": lambda step, harm=harm: harm(step / "state.json")
            for name, harm in JSON.items()
        },
        **{f"a shard {name}": shard(harm) for name, harm in SHARDS.items()},
    }
    for i, (name, damage) in enumerate(damages.items()):
        harm = both(unfinished, at(f"checkpoints/{STEPS[0]}", damage))
        yield Row(
            f"resume: {name}",
            RESUME,
            "run/model",
            harm,
            code=0,
            warning=r"step-00000004: damaged checkpoint passed over \(",
            drill=i % 4 != 0,
        )
        every = both(unfinished, *(at(f"checkpoints/{step}", damage) for step in STEPS))
        refused = "checkpoints: no intact checkpoint"
        yield Row(f"resume: both {name}", RESUME, refused, every, drill=i % 5 != 3)
        for place, (command, line) in enumerate(READERS.items(), 1):
            yield Row(f"{command}: {name}", COMMANDS[command], line, every, drill=i % 5 != place)


def tables() -> Iterator[Row]:
    broken = {f"is {name}": both(unfinished, at("run.json", harm)) for name, harm in JSON.items()}
    yield from rows("run.json", broken, ("compare", "export a step", "resume", "train"), r"run\.json: ", 2)
    objects = {"an empty object", "of lists"}  # a model is evaluated without the settings of its run
    finished = {f"is {name}": at("run.json", harm) for name, harm in JSON.items() if name not in objects}
    yield from rows("finished run.json", finished, ("analyze", "evaluate"), r"run\.json: ", 3)
    wrong = {f"has {name}": both(unfinished, at("run.json", harm)) for name, harm in SETTINGS.items()}
    yield from rows("run.json", wrong, ("export a step", "resume", "train"), r"loriini: ", 3)
    corpora = {f"has {name}": both(unfinished, at("run.json", harm)) for name, harm in CORPORA.items()}
    yield from rows("run.json", corpora, ("resume",), r"loriini: ", 3)
    recorded = {f"has {name}": at("run.json", harm) for name, harm in RECORDED.items()}
    yield from rows("run.json", recorded, ("compare",), r"loriini: .*run\.json: .*it must be")
    others = {name: both(unfinished, at("run.json", harm)) for name, harm in OTHERS.items()}
    yield from rows("run.json has another", others, ("resume",), r"run\.json: .*\(different: [\w.]+\)", 2)
    lacking = {
        name: both(unfinished, *(at(f"checkpoints/{s}", shard(harm)) for s in STEPS))
        for name, harm in TENSORS.items()
    }
    yield from rows("a shard", lacking, ("resume",), r"step-00000004: (it lacks|.* has shape)", 2)
    weights = dict(list(lacking.items())[:3])
    yield from rows(
        "a shard", weights, ("export a step", "start from a step"), r"step-00000002: .*(lacks|has shape)", 2
    )
    steps = dict(list(METRICS.items())[:-1])  # to rewind them, steps are enough
    garbled = {name: both(unfinished, at("metrics.jsonl", harm)) for name, harm in steps.items()}
    yield from rows("metrics.jsonl", garbled, ("resume",), r"metrics\.jsonl: ", 3)
    read = {name: at("metrics.jsonl", harm) for name, harm in METRICS.items()}
    yield from rows("metrics.jsonl", read, ("analyze", "compare"), r"metrics\.jsonl: ", 3)
    halves = {name: at("model", harm) for name, harm in MODELS.items()}
    yield from rows("a model", halves, ("resume", "train"), r"run/model: .*; remove it", 1)
    yield from rows("a model", halves, ("compare", "evaluate"), r"loriini: (run(/model)?: |the tokenizer)", 2)


ROWS = [*passed_over(), *tables()]
