"""Everything to measure on one GPU by one command; data is made on the spot.

PYTHONPATH=src python benchmarks/gpu.py --results gpu.json    # correctness, profiles, speed and memory
PYTHONPATH=src python benchmarks/gpu.py --tiny                # the same at tiny sizes, in a minute on a CPU

Correctness comes first: every fast path on this device beside its naive twin, outputs and gradients, and
greedy decoding with a cache beside decoding without one. Where that fails, nothing is timed and the exit
status is 1. The results file is rewritten after every round. What the memory does not hold is left out with a
warning; `--layers` takes fewer layers, of which more fits. Needs torch and transformers alone.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import standins  # noqa: F401  first: loriini imports what it replaces
from loriini.bench import measure
from loriini.bench.models import bench_run, build_steps, on_device, run_config
from loriini.bench.parts import random_ids
from loriini.bench.sizes import QUICK, BenchSize, bench_size
from loriini.bench.timing import if_it_fits
from loriini.hardware import autocast, has_bf16, pick_device
from loriini.model.experts.stacked import by_outputs_loop, by_parameters_loop
from loriini.model.low_precision import experts_cast_once
from loriini.routing.selection import SELECTIONS, fixed_counts
from loriini.train.run import Run
from loriini.train.speed import SpeedConfig, speed_up
from measuring import write_results

MERGED = ("lory", "prefix", "smear")
SELECTED = ("mixtral", "switch", "ec-token")
PRECISIONS = {"fp32": 1e-4, "bf16": 4e-2, "autocast": 4e-2, "cast once": 4e-2}
"""Largest norm of a difference, relative to the twin's. autocast: bfloat16 over float32 weights; cast once:
on copies of the weights and with gradients added to the float32 ones, as in training."""
UNITS = 130
"""More than two blocks of the kernel's rows."""
SHOWN = 30
"""Operations of a profile."""


def twin_checks(size: BenchSize) -> Iterator[dict[str, Any]]:
    """Experts of one layer beside their naive twins, at each precision that the hardware has.

    Lory's at every number of experts that is timed: its kernel has other blocks for more of them.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    few, numbers = size.experts[:1], size.experts
    cases = [(name, n, False) for name in (*MERGED, *SELECTED) for n in (numbers if name == "lory" else few)]
    cases += [(name, n, True) for name in MERGED for n in few]
    for precision, (design, experts, recompute) in product(PRECISIONS, cases):
        if precision == "fp32" or has_bf16(pick_device()):
            name = f"{design}, {experts} experts{', recompute_merge' if recompute else ''}, beside its twin"
            errors = attempt(partial(twin_errors, size, design, experts, precision, recompute))
            yield checked(name, precision, errors, PRECISIONS[precision])


def attempt(measure: Callable[[], dict[str, float]]) -> dict[str, float] | str:
    """What `measure` returns, or the error that it raises: the other checks go on."""
    try:
        return measure()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def checked(name: str, precision: str, errors: dict[str, float] | str, limit: float) -> dict[str, Any]:
    passed = isinstance(errors, dict) and all(error <= limit for error in errors.values())
    return {"check": name, "precision": precision, "errors": errors, "limit": limit, "passed": passed}


def compiled_checks(size: BenchSize) -> Iterator[dict[str, Any]]:
    """Gradients of a compiled step beside those of an eager one, on copies cast once, as in training.

    The compiled one has the fused loss, the eager one all logits.
    """
    if not has_bf16(pick_device()):
        return
    for design, experts in (("dense", 1), *(("lory", n) for n in size.experts), ("mixtral", size.experts[0])):
        errors = attempt(partial(compiled_errors, size, design, experts))
        yield checked(f"{design}, {experts} experts, compiled beside eager", "cast once", errors, 4e-2)


def compiled_errors(size: BenchSize, design: str, experts: int) -> dict[str, float]:
    """Relative differences of the gradients of every parameter, added up over two micro-batches."""
    ids, found = random_ids(size, 2, size.length), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = on_device(run_config(bench_run(size, design, experts))).train()
        speed_up(model, SpeedConfig(compile=compiled))
        for _ in range(2):
            with autocast("bf16"), experts_cast_once(model, torch.bfloat16):
                loss = model(ids, shift_labels=ids, skip_logits=compiled).loss
                loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    eager, other = found
    return {name: relative(other[name], eager[name]) for name in eager}


def twin_errors(
    size: BenchSize, design: str, experts_count: int, precision: str, recompute: bool
) -> dict[str, float]:
    """Relative differences of the output and of every gradient; the twin computes in float64."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    torch.manual_seed(0)
    run = bench_run(size, design, experts_count, recompute_merge=recompute)
    run = replace(run, model=replace(run.model, num_hidden_layers=1))
    config = run_config(run)
    model = on_device(config).to(dtype)
    experts, routing = model.model.mixtures[0].experts, config.routing
    width, device = size.shape.hidden_size, pick_device()
    units, slots = (UNITS, size.segment_length) if design in MERGED else (4 * size.segment_length, 1)
    x = torch.randn(units, slots, width, device=device, dtype=dtype)
    logits = torch.randn(units, experts_count, device=device)
    gates = logits.softmax(-1) * SELECTIONS[routing.selection](logits, routing, None, True)
    if design in MERGED:
        fast: Callable[..., Tensor] = lambda x, g: experts("by_parameters", x, g, recompute)  # noqa: E731
        naive: Callable[..., Tensor] = lambda x, g: by_parameters_loop(experts, x, g)  # noqa: E731
    else:
        counts = fixed_counts(routing, units, experts_count, training=True, padded=False)
        x = x.flatten(0, 1)
        fast = lambda x, g: experts("by_outputs", x, g, {}, counts)  # noqa: E731
        naive = lambda x, g: by_outputs_loop(experts, x, g)  # noqa: E731
    cast_once = torch.bfloat16 if precision == "cast once" else None
    with (
        autocast("bf16" if precision in ("autocast", "cast once") else "fp32"),
        experts_cast_once(model, cast_once, into_main_grads=True),
    ):
        own = outcomes(experts, fast, x, gates)
    reference = outcomes(experts.double(), naive, x.double(), gates.double())
    return {name: relative(own[name], reference[name]) for name in reference}


def outcomes(
    experts: torch.nn.Module, call: Callable[..., Tensor], x: Tensor, gates: Tensor
) -> dict[str, Tensor]:
    """The output and the gradients of states, gates and weights, of a fixed weighted sum, added up twice."""
    x, gates = x.detach().requires_grad_(), gates.detach().requires_grad_()
    for parameter in experts.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()  # in place: a merge's backward pass may add to it
    for _ in range(2):
        y = call(x, gates)
        weights = torch.linspace(-1, 1, y.numel(), device=y.device, dtype=torch.float64).sin().view_as(y)
        (y * weights.to(y.dtype)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in experts.named_parameters() if p.grad is not None}
    assert x.grad is not None
    assert gates.grad is not None
    selected = gates > 0  # the twin has gradients of other gates too
    return {"output": y.detach(), "states": x.grad, "gates": gates.grad[selected], **gradients}


def relative(value: Tensor, reference: Tensor) -> float:
    return float((value.double() - reference.double()).norm() / reference.double().norm())


def decode_checks(size: BenchSize) -> Iterator[dict[str, Any]]:
    """Greedy tokens with a cache beside those without one, in float32."""
    torch.manual_seed(0)
    model = on_device(run_config(bench_run(size, "lory", size.experts[0]))).eval()
    for batch in size.decode_batches:
        ids = random_ids(size, batch, size.prompt)
        settings = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
        tokens = {"max_new_tokens": min(16, size.new_tokens), "min_new_tokens": min(16, size.new_tokens)}
        cached = model.generate(ids, **settings, **tokens)
        prompt_lengths = torch.full((batch,), size.prompt, device=ids.device)
        longer = ids
        with torch.no_grad():
            for _ in range(tokens["max_new_tokens"]):
                out = model(
                    longer, prompt_lengths=prompt_lengths, inference_routing="prompt", use_cache=False
                )
                longer = torch.cat([longer, out.logits[:, -1:].argmax(-1)], 1)
        equal = float((cached == longer).all(1).float().mean())
        yield {
            "check": f"greedy decoding with and without a cache, batch {batch}",
            "precision": "fp32",
            "equal_sequences": equal,
            "passed": equal >= 0.95,  # ties of float32 logits may fall either way
        }


def profiles(size: BenchSize) -> Iterator[dict[str, Any]]:
    """The operations that take the time of a training step, dense and Lory."""
    for design, experts in (("dense", 1), *(("lory", n) for n in size.experts)):
        run = bench_run(size, design, experts)
        profiled = if_it_fits(f"profile of {design}, {experts} experts", partial(profile_of, run))
        if profiled:
            yield {"design": design, "experts": experts, **profiled}


def profile_of(run: Run) -> dict[str, Any]:
    """The longest operations of a training step: kernels on a GPU, operators on a CPU."""
    work = build_steps(run, 1)
    on_gpu = pick_device().type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        work()
    attribute = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    # an operator's device time is that of its kernels, which have events of their own
    device = DeviceType.CUDA if on_gpu else DeviceType.CPU
    events = [op for op in profiler.key_averages() if op.device_type == device and not op.is_user_annotation]
    operations = sorted(events, key=lambda op: -getattr(op, attribute))
    total = sum(getattr(op, attribute) for op in operations)
    shown = [
        {"operation": op.key, "calls": op.count, "ms": round(getattr(op, attribute) / 1e3, 3)}
        for op in operations[:SHOWN]
    ]
    return {"total_ms": round(total / 1e3, 3), "operations": shown}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a test on a CPU")
    parser.add_argument("--only", choices=("correctness", "bench", "profile"), help="one part alone")
    parser.add_argument(
        "--part", help="one part of the benchmark alone: train, sweep, sparse, aoe, ffn, decode, memory"
    )
    parser.add_argument("--rounds", type=int, help="2 fit into some minutes: each builds every model again")
    parser.add_argument("--layers", type=int, help="layers of the models, instead of those of the size")
    parser.add_argument("--results", type=Path, default=Path("gpu.json"))
    arguments = parser.parse_args()
    size = QUICK if arguments.tiny else bench_size()
    if arguments.layers:
        size = replace(size, shape=replace(size.shape, num_hidden_layers=arguments.layers))
    results: dict[str, Any] = {"experiment": "gpu", "correctness": [], "bench": [], "profile": []}

    def keep(name: str, rows: list[dict[str, Any]]) -> None:
        results[name] = rows
        write_results(arguments.results, **results)

    if arguments.only in (None, "correctness"):
        shallow = replace(size, shape=replace(size.shape, num_hidden_layers=2))
        for check in chain(twin_checks(shallow), compiled_checks(shallow), decode_checks(shallow)):
            print("ok  " if check["passed"] else "FAIL", check["check"], check["precision"])
            keep("correctness", [*results["correctness"], check])
        if not all(check["passed"] for check in results["correctness"]):
            sys.exit(1)
    if arguments.only in (None, "profile"):
        for each in profiles(size):
            keep("profile", [*results["profile"], each])
            print(f"{each['design']} {each['experts']}: {each['total_ms']:.1f} ms")
            for operation in each["operations"][:10]:
                print(f"  {operation['ms']:9.2f} ms  {operation['calls']:5d}  {operation['operation']}")
    if arguments.only in (None, "bench"):
        only = [arguments.part] if arguments.part else []
        for rows in measure(arguments.tiny, only, arguments.rounds, size):
            keep("bench", rows)
        for row in results["bench"]:
            print(row["what"], row["design"], row["experts"], row["baseline"], row["ratio"], row.get("bound"))


if __name__ == "__main__":
    main()
