"""Everything to check and measure on one GPU by one command; its data are random tokens.

PYTHONPATH=src python benchmarks/gpu.py --results gpu.json    # everything, or until --minutes are over
PYTHONPATH=src python benchmarks/gpu.py --tiny                # the same at tiny sizes, also on a CPU

First the results on this device are compared with those on the CPU: logits, losses and gradients, in float32
and as in training (bfloat16 over float32 weights, experts cast once), compiled and not; and greedy decoding
with a cache with that without one. Then training steps, decoding and memory are measured as by `loriini
bench`, and the steps profiled. What fails is noted, and the rest goes on; the results file is rewritten after
every row. The exit status is 1 where a result was wrong or something failed. Needs torch and transformers.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import standins  # noqa: F401  first: loriini imports what it replaces
from loriini.bench.measure import decoding, memory_rows, muon_steps, timed_rows, train_steps
from loriini.bench.models import (
    QUICK,
    BenchSize,
    bench_run,
    bench_size,
    build_steps,
    on_device,
    random_ids,
    run_config,
)
from loriini.bench.timing import free
from loriini.common.hardware import autocast, has_bf16, pick_device
from loriini.model import LoriiniForCausalLM
from loriini.train.low_precision import experts_cast_once
from loriini.train.speed import SpeedConfig, speed_up
from measuring import write_results

Row = dict[str, Any]
LIMITS = {"fp32": 1e-2, "bf16": 4e-2}
"""Largest norm of a difference relative to the CPU's result in float32. In float32 too a token's experts may
be a tie, and fall otherwise."""
MERGED, SELECTED = ("lory", "prefix", "smear"), ("mixtral", "switch", "ec-token")
"""Designs to check. In bfloat16 many tokens would select other experts than in float32: gradients of designs
that select are compared in float32 alone."""
COMPILED = ("dense", "lory", "mixtral")
"""Designs that are also checked compiled, which takes a while."""
SHOWN = 30
"""Operations of a profile."""


def checks(size: BenchSize) -> Iterator[Row]:
    """Every check of models of two layers: its name, what differs, and whether it passed."""
    torch.backends.cuda.matmul.allow_tf32 = False
    shallow = replace(size, shape=replace(size.shape, num_hidden_layers=2))
    cases = [("dense", 1), *(("lory", n) for n in size.experts)]
    cases += [(name, size.experts[0]) for name in (*MERGED[1:], *SELECTED)]
    cases += [("mixtral", 64)]  # some without any token
    for design, experts in cases:
        for precision in ("fp32", "bf16"):
            for compiled in (False, True) if design in COMPILED else (False,):
                if precision == "fp32" or (has_bf16(pick_device()) and design not in SELECTED):
                    name = f"{design}, {experts} experts, {precision}, {'compiled' if compiled else 'eager'}"
                    find = partial(differences, shallow, design, experts, precision, compiled)
                    yield checked(name, find, LIMITS[precision])
    for batch in size.decode_batches:
        name = f"greedy decoding with and without a cache, batch {batch}"
        yield checked(name, partial(decoding_differs, shallow, batch), 0.05)  # ties may fall either way


def checked(name: str, find: Callable[[], dict[str, float]], limit: float) -> Row:
    """A check's row; an error that it raises is a failure, and the other checks go on."""
    try:
        errors = find()
    except Exception as error:
        return {"check": name, "error": f"{type(error).__name__}: {error}", "passed": False}
    finally:
        free()
    passed = all(error <= limit for error in errors.values())
    return {"check": name, "errors": errors, "limit": limit, "passed": passed}


def differences(
    size: BenchSize, design: str, experts: int, precision: str, compiled: bool
) -> dict[str, float]:
    """Relative differences of logits, loss and every gradient of this device to those of the CPU.

    Gradients are added up over two micro-batches, as in a step of training.
    """
    run = bench_run(size, design, experts, recompute_merge=design == "smear")
    torch.manual_seed(0)
    reference = LoriiniForCausalLM(run_config(run)).train()
    model = deepcopy(reference).to(pick_device())
    speed_up(model, SpeedConfig(compile=compiled))
    expected, found = outcomes(reference, "fp32"), outcomes(model, precision)
    return {name: relative(found[name], expected[name]) for name in expected}


def outcomes(model: LoriiniForCausalLM, precision: str) -> dict[str, Tensor]:
    """Logits, the loss, and the gradients of two micro-batches."""
    ids_BL = random_ids(model.config.vocab_size, 2, 2 * model.config.routing.segment_length).to(model.device)
    on = autocast("bf16" if precision == "bf16" else "fp32", model.device)
    once = torch.bfloat16 if precision == "bf16" else None
    with torch.no_grad(), on:
        logits = model(ids_BL, use_cache=False).logits
    for _ in range(2):
        with on, experts_cast_once(model, once):
            loss = model(ids_BL, shift_labels=ids_BL, skip_logits=True, use_cache=False).loss
            loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits, "loss": loss.detach(), **gradients}


def relative(value: Tensor, reference: Tensor) -> float:
    value, reference = value.double().cpu(), reference.double().cpu()
    return float((value - reference).norm() / reference.norm().clamp(min=1e-12))


def decoding_differs(size: BenchSize, batch: int) -> dict[str, float]:
    """The share of sequences whose greedy tokens with a cache differ from those without one, in float32."""
    torch.manual_seed(0)
    model = on_device(run_config(bench_run(size, "lory", size.experts[0]))).eval()
    ids = random_ids(model.config.vocab_size, batch, size.new_tokens)
    tokens = min(16, size.new_tokens)
    settings = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    cached = model.generate(ids, **settings, max_new_tokens=tokens, min_new_tokens=tokens)
    prompts = {"prompt_lengths": torch.full((batch,), ids.shape[1], device=ids.device)}
    with torch.no_grad():
        for _ in range(tokens):
            logits = model(ids, **prompts, inference_routing="prompt", use_cache=False).logits[:, -1:]
            logits[..., 0] = -math.inf  # the end of a text, which `min_new_tokens` suppresses
            ids = torch.cat([ids, logits.argmax(-1)], 1)
    return {"sequences": float((cached != ids).any(1).float().mean())}


def timed(size: BenchSize) -> Iterator[Row]:
    """Rows of `loriini bench`."""
    for compared in (*train_steps(size), *muon_steps(size), *decoding(size)):
        yield from timed_rows(compared, size.rounds)
    yield from memory_rows(size)


def profiles(size: BenchSize) -> Iterator[Row]:
    """The operations that take the time of a training step, dense and Lory."""
    for design, experts in (("dense", 1), *(("lory", n) for n in size.experts)):
        yield {"design": design, "experts": experts, **profile_of(bench_run(size, design, experts))}
        free()


def profile_of(run: Any) -> Row:
    """The longest operations of a training step: kernels on a GPU, operators on a CPU."""
    work = build_steps(run)
    on_gpu = pick_device().type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        work()
    attribute = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    # an operator's device time is that of its kernels, which have events of their own
    device = "CUDA" if on_gpu else "CPU"
    events = [
        op for op in profiler.key_averages() if op.device_type.name == device and not op.is_user_annotation
    ]
    operations = sorted(events, key=lambda op: -getattr(op, attribute))
    total = sum(getattr(op, attribute) for op in operations)
    shown = [
        {"operation": op.key, "calls": op.count, "ms": round(getattr(op, attribute) / 1e3, 3)}
        for op in operations[:SHOWN]
    ]
    return {"total_ms": round(total / 1e3, 3), "operations": shown}


PARTS: dict[str, Callable[[BenchSize], Iterator[Row]]] = {
    "correctness": checks,
    "bench": timed,
    "profile": profiles,
}
"""What is done, in this order, by its key in the results."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a test on a CPU")
    parser.add_argument("--only", choices=PARTS, help="one of these alone")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then end at the next row")
    parser.add_argument("--results", type=Path, default=Path("gpu.json"))
    arguments = parser.parse_args()
    size, deadline = QUICK if arguments.tiny else bench_size(), time.monotonic() + 60 * arguments.minutes
    results: dict[str, list[Row]] = {}
    errors: list[str] = []

    def write() -> None:
        write_results(arguments.results, experiment="gpu", **results, errors=errors)

    for name in [arguments.only] if arguments.only else PARTS:
        if time.monotonic() > deadline:
            break
        rows = results[name] = []
        try:
            for row in PARTS[name](size):
                rows.append(row)
                print(shown(row), flush=True)
                write()
                if time.monotonic() > deadline:
                    errors.append(f"{name}: the time is over")
                    break
        except Exception as error:
            errors.append(f"{name}: {type(error).__name__}: {error}")
        write()
    errors += [f"wrong: {row['check']}" for row in results.get("correctness", []) if not row["passed"]]
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
        sys.exit(1)


def shown(row: Row) -> str:
    """A row as a line."""
    if "check" in row:
        worst = max(row.get("errors", {"": math.nan}).items(), key=lambda item: item[1])
        return f"{'ok  ' if row['passed'] else 'FAIL'} {row['check']}: {worst} {row.get('error', '')}"
    first = [f"{op['ms']:.2f} ms {op['operation']}" for op in row.get("operations", [])[:5]]
    return "  ".join(
        [*(f"{k} {v}" for k, v in row.items() if not isinstance(v, list | tuple | dict)), *first]
    )


if __name__ == "__main__":
    main()
