"""Greedy decoding of Lory against transformers' Llama of the active size: prompt and new tokens apart.

python benchmarks/decode.py --results results/decode.json [--hidden 512 --width 1408 --experts 8 …]

Each round times every case in turn: `generate` of one token (prefill) and of `--new` more; the difference is
decoding. Ratios are medians over rounds of Llama's seconds over the case's own, so 1 is the price of dense.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.bench.timing import speed
from measuring import write_results

Generate = Callable[[int], Tensor]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {
        "hidden": 512,
        "width": 1408,
        "layers": 4,
        "heads": 8,
        "vocabulary": 8192,
        "prompt": 128,
        "new": 32,
        "segment": 256,
        "rounds": 7,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16, 64])
    parser.add_argument("--cases", nargs="+", default=["dense", "prompt", "segment"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--results", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure every number of experts and batch size, and print one line each."""
    args = parse()
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(**sizes(args))).to(getattr(torch, args.dtype)).eval()
    rows = []
    for batch in args.batches:
        ids = torch.randint(3, args.vocabulary, (batch, args.prompt))
        for experts in args.experts:
            models = {"llama": generation(llama, ids), **our_cases(args, experts, ids)}
            rows += measure(models, {"experts": experts, "batch": batch}, args)
    if args.results:
        write_results(args.results, arguments={k: str(v) for k, v in vars(args).items()}, rows=rows)


def sizes(args: argparse.Namespace) -> dict[str, Any]:
    """The sizes by the names of transformers' configurations."""
    return {
        "vocab_size": args.vocabulary,
        "hidden_size": args.hidden,
        "intermediate_size": args.width,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "num_key_value_heads": args.heads,
        "max_position_embeddings": args.prompt + args.new + 1,
        "bos_token_id": 0,
        "eos_token_id": None,
    }


def our_cases(args: argparse.Namespace, experts: int, ids: Tensor) -> dict[str, Generate]:
    """Our dense model, and Lory by each mode of inference."""
    made: dict[str, Generate] = {}
    lory = build(args, "lory", experts)
    for case in args.cases:
        model = build(args, "dense", 1) if case == "dense" else lory
        made[case] = generation(model, ids, inference_routing="segment" if case == "segment" else "prompt")
    return made


def build(args: argparse.Namespace, design: str, experts: int) -> LoriiniForCausalLM:
    routing = replace(DESIGNS[design], segment_length=args.segment)
    config = LoriiniConfig(**sizes(args), num_experts=experts, routing=routing)
    return LoriiniForCausalLM(config).to(getattr(torch, args.dtype)).eval()


def generation(model: Any, ids: Tensor, **settings: Any) -> Generate:
    """Greedy generation of a given number of tokens; (B, L + tokens)."""
    settings |= {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    return lambda tokens: model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **settings)


def measure(
    models: dict[str, Generate], about: dict[str, int], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each case: its speed relative to Llama's in prefill and in decoding."""
    rounds = [{name: seconds(run, args.new) for name, run in models.items()} for _ in range(args.rounds + 1)]
    rows = []
    for name in models:
        prefill, step = zip(*(times[name] for times in rounds[1:]), strict=True)
        reference = [times["llama"] for times in rounds[1:]]
        rows.append(
            {
                "case": name,
                **about,
                "prefill_ms": round(1e3 * median(prefill), 3),
                "prefill_ratio": round(speed(prefill, [times[0] for times in reference]), 3),
                "token_ms": round(1e3 * median(step), 3),
                "decode_ratio": round(speed(step, [times[1] for times in reference]), 3),
            }
        )
        print(rows[-1], flush=True)
    return rows


def seconds(run: Generate, new: int) -> tuple[float, float]:
    """Seconds of a prompt with its first token, and of each of `new` tokens after it."""
    start = time.perf_counter()
    run(1)
    middle = time.perf_counter()
    run(1 + new)
    end = time.perf_counter()
    return middle - start, (end - middle - (middle - start)) / new


if __name__ == "__main__":
    main()
