"""The command that exports a model."""

import argparse
from pathlib import Path

from loriini.cli.parser import (
    Add,
    device_option,
    extension_option,
    model_argument,
    output_path,
    read_text_file,
    text_argument,
)
from loriini.common.errors import InputError
from loriini.export.formats import DTYPES, FORMATS, SHORT_DTYPES


def export_arguments(add: Add) -> None:
    """Arguments of `loriini export`."""
    model_argument(add)
    formats = "; ".join(f"{name}: {each.help}" for name, each in FORMATS.items())
    decided = [name for name, each in FORMATS.items() if each.decided]
    add("--to", choices=FORMATS, required=True, metavar="FORMAT", help=formats)
    add(
        "--prompt",
        type=text_argument,
        metavar="TEXT",
        help=f"text that chooses the experts, for {', '.join(decided)}",
    )
    add("--prompt-file", type=Path, metavar="PATH", help="the same, from a file")
    add("--label", metavar="NAME", help="domain whose expert is exported, for a model that routes by label")
    dtype = "type of the weights: float32 (fp32), bfloat16 (bf16) or float16 (fp16) (as trained)"
    add("--dtype", type=lambda text: SHORT_DTYPES.get(text, text), choices=DTYPES, metavar="TYPE", help=dtype)
    add(
        "--step",
        type=steps,
        default=(),
        metavar="N[,N…]",
        help="export the checkpoint of this step, or the mean of several (the final model)",
    )
    add("--top-k", type=int, metavar="K", help="first make a soft mixture a top-K one")
    add("--combination", choices=("parameters", "outputs"), help="how to combine the K experts (as before)")
    device_option(add)
    add("--out", type=output_path, required=True, metavar="DIR", help="folder to write")
    extension_option(add)


def steps(text: str) -> tuple[int, ...]:
    """Steps with commas between them."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give steps of the run, as 500 or 500,1000") from None


def export(arguments: argparse.Namespace) -> None:
    """Write a model for other programs: transformers, vLLM, SGLang or llama.cpp."""
    from loriini.export.export import ExportSettings, export_run

    settings = ExportSettings(
        to=arguments.to,
        dtype=arguments.dtype,
        steps=arguments.step,
        top_k=arguments.top_k,
        combination=arguments.combination,
        prompt=_prompt(arguments),
        label=arguments.label,
    )
    print(export_run(arguments.model, settings, arguments.out, arguments.device))


def _prompt(arguments: argparse.Namespace) -> str | None:
    """The text of --prompt or --prompt-file. InputError for both, and for a file that cannot be read."""
    path: Path | None = arguments.prompt_file
    if path is None:
        prompt: str | None = arguments.prompt
        return prompt
    if arguments.prompt is not None:
        raise InputError("give --prompt or --prompt-file, one of them")
    return read_text_file(path)
