"""Commands on a model folder with other settings, weights or tokenizer, or with code in it."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hostile.planted import AUTO_MAP, planted
from hostile.rows_corpus import JSON, halved, replaced
from hostile.rows_runs import INIT, edited, tensors
from hostile.runner import Harm, Row, rows_of

DOCUMENTS = "--documents documents.jsonl --domain-field topic"
COMMANDS = {
    "evaluate": f"evaluate run/model {DOCUMENTS}",
    "lens": "lens run/model --prompt birds --out lens.html",
    "generate": "generate run/model --prompt birds --max-new-tokens 2 --greedy",
    "export": "export run/model --to hf --out there",
    "analyze": f"analyze run/model {DOCUMENTS} --out there",
    "start": INIT.format("run/model"),
}
EMBEDDING, ROUTER = "model.embed_tokens.weight", "model.layers.1.mlp.router.scorer.weight"
ESCAPE = "\x1b[31mred\u202e\n"


def at(file: str, harm: Callable[[Path], None]) -> Harm:
    return lambda folder: harm(folder / "run" / "model" / file)


def config(*keys: str, value: Any) -> Harm:
    return at("config.json", edited(*keys, value=value))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Harm:
    return at("model.safetensors", tensors(change))


def filled(name: str, value: float) -> Harm:
    """One of a weight's numbers replaced."""
    return weights(lambda found: found[name].view(-1)[-1].fill_(value))


SETTINGS = {
    "a negative vocab_size": config("vocab_size", value=-5),
    "an endless vocab_size": config("vocab_size", value=10**30),
    "an epsilon of NaN": config("rms_norm_eps", value=float("nan")),
    "an unknown design": config("routing", value="best"),
    "no routing unit": config("routing", "unit", value="paragraph"),
    "a segment of text": config("routing", "segment_length", value="long"),
    "an unknown model_type": config("model_type", value=ESCAPE),
    "positions of text": config("rope_parameters", value="far"),
    "labels of numbers": config("label_names", value=[1, 2]),
    "another width": config("hidden_size", value=64),
    "quantized weights": config("quantization_config", value={"quant_method": "bitsandbytes"}),
    "attention from the Hub": config("attn_implementation", value="some-one/some-kernel"),
}
WEIGHTS = {
    "but one": (weights(lambda found: found.pop(ROUTER)), ROUTER),
    "of another shape": (weights(lambda found: found.update({ROUTER: torch.zeros(9, 9)})), ROUTER),
    "that are NaN": (filled(ROUTER, float("nan")), f"{ROUTER} holds NaN"),
    "of no tensors": (weights(dict.clear), r"lacks \d+ tensors"),
}
"""Harms, and the tensor that the line names."""
IN_TURN = [tuple(COMMANDS)[i:] + tuple(COMMANDS)[:i] for i in range(len(WEIGHTS))]


FILES = {
    "cut weights": at("model.safetensors", halved),
    "weights with an endless header": at("model.safetensors", replaced(b"\xff" * 7 + b"\x7f{}")),
    "no weights": at("model.safetensors", Path.unlink),
}
TOKENIZERS = {
    "no tokenizer": at("tokenizer.json", Path.unlink),
    "a cut tokenizer": at("tokenizer.json", halved),
    "a tokenizer of a list": at("tokenizer.json", replaced(b"[]")),
    "a tokenizer's settings cut": at("tokenizer_config.json", halved),
}


def with_more_tokens(tokenizer: Path) -> None:
    """A tokenizer with tokens of the documents and of the prompt that the model does not embed."""
    values = json.loads(tokenizer.read_text())
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    for i, text in enumerate((" is number ", "irds")):
        values["added_tokens"].append({"id": 320 + i, "content": text, **plain})
    tokenizer.write_text(json.dumps(values))


def in_the_model(more: Callable[[Path], object] = lambda model: None) -> Harm:
    def harm(folder: Path) -> None:
        planted(folder / "run" / "model")
        more(folder / "run" / "model")

    return harm


def code_alone(model: Path) -> None:
    """A tokenizer that only the code beside it can read."""
    edited("tokenizer_class", value="Planted")(model / "tokenizer_config.json")
    (model / "tokenizer.json").rename(model / "vocab.json")


def adapter(model: Path) -> None:
    (model / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "../../twin/model", "auto_mapping": {}})
    )


BESIDE_WEIGHTS = {
    "pickled weights alone": (lambda model: (model / "model.safetensors").unlink(), r"run/model: "),
    "the settings of its code alone": (
        lambda model: (model / "config.json").write_text(json.dumps({"auto_map": AUTO_MAP})),
        r"run/model: .*model_type is None",
    ),
    "an adapter": (
        adapter,
        r"run/model: .*holds an adapter; merge that into its model first \(PEFT: merge_and_unload\)",
    ),
}
"""What a folder with code has or lacks besides, and why it is refused."""


def control_characters(found: dict[str, torch.Tensor]) -> None:
    found.update({ESCAPE: torch.zeros(2), f"model.{ESCAPE}": torch.zeros(2)})


rows = partial(rows_of, COMMANDS)


def tables() -> Iterator[Row]:
    damaged = {f"is {name}": at("config.json", harm) for name, harm in JSON.items()}
    yield from rows("a model whose config.json", damaged, COMMANDS, "run/model(/config.json)?: ", 4)
    yield from rows("a model with", SETTINGS, COMMANDS, r"run/model: ", 5)
    for i, (name, (harm, line)) in enumerate(WEIGHTS.items()):
        yield from rows("a model with weights", {name: harm}, IN_TURN[i], rf"run/model: .*{line}")
    yield from rows("a model with", FILES, COMMANDS, r"run/model: ", 4)
    readers = [command for command in COMMANDS if command != "start"]
    yield from rows("a model with", TOKENIZERS, readers, r"run/model: |run/model/tokenizer", 4)
    more = {"a tokenizer of more tokens": at("tokenizer.json", with_more_tokens)}
    readers.remove("export")
    yield from rows(
        "a model with", more, readers, "the tokenizer makes the id 32[01], but the model embeds 320"
    )
    for command in COMMANDS:
        again = command == "evaluate"
        code = Row(f"{command}: a model with code", COMMANDS[command], "", in_the_model(), 0, drill=not again)
        yield code
        names = weights(control_characters)
        line = r"\\x1b\[31mred\\u202e belongs to nothing that its config\.json names"
        yield Row(f"{command}: a model with raw names", COMMANDS[command], line, names, drill=not again)
    for name, (harm, line) in BESIDE_WEIGHTS.items():
        yield from rows(
            "a model with code and", {name: in_the_model(harm)}, ("evaluate", "export", "start"), line
        )
    yield Row(
        "export: a weight beyond float16",
        f"{COMMANDS['export']} --dtype float16",
        f"--dtype float16: {EMBEDDING} holds NaN or infinity",
        filled(EMBEDDING, 1e6),
    )
    unknown = edited("tokenizer_class", value="Planted")
    own_code = in_the_model(lambda model: unknown(model / "tokenizer_config.json"))
    yield Row("evaluate: a tokenizer of its code", COMMANDS["evaluate"], "run/model: ", own_code)
    yield Row(
        "evaluate: a tokenizer of its code alone",
        COMMANDS["evaluate"],
        "run/model: ",
        in_the_model(code_alone),
    )


ROWS = list(tables())
