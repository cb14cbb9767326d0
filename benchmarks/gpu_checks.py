"""Fast paths on this device beside their naive twins, compiled steps beside eager ones, and decoding."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor

from loriini.bench.models import bench_run, on_device, run_config
from loriini.bench.parts import random_ids
from loriini.bench.sizes import BenchSize
from loriini.common.hardware import autocast, has_bf16, pick_device
from loriini.model.experts.stacked import ByOutputs, ByParameters, by_outputs_loop, by_parameters_loop
from loriini.model.low_precision import experts_cast_once
from loriini.routing.selection import SELECTIONS, fixed_counts
from loriini.train.speed import SpeedConfig, speed_up

MERGED = ("lory", "prefix", "smear")
SELECTED = ("mixtral", "switch", "ec-token")
PRECISIONS = {"fp32": 1e-4, "bf16": 4e-2, "autocast": 4e-2, "cast once": 4e-2}
"""Largest norm of a difference, relative to the twin's. autocast: bfloat16 over float32 weights; cast once:
on copies of the weights and with gradients added to the float32 ones, as in training."""
COMPILED_LIMITS = {"fp32": 1e-2, "cast once": 4e-2}
"""The same of a compiled step relative to an eager one. In float32 too a token's experts may be a tie."""
UNITS = 130
"""More than two blocks of the kernel's rows."""
MANY_EXPERTS, FEW_TOKENS = 64, 16
"""Top-2 of so few tokens leaves experts without any."""


def checks(size: BenchSize) -> Iterator[dict[str, Any]]:
    """Every check of models of two layers: its name, what differs, and whether it passed."""
    shallow = replace(size, shape=replace(size.shape, num_hidden_layers=2))
    return chain(twin_checks(shallow), compiled_checks(shallow), decode_checks(shallow))


def twin_checks(size: BenchSize) -> Iterator[dict[str, Any]]:
    """Experts of one layer beside their naive twins, at each precision that the hardware has.

    Lory's at every number of experts that is timed: its kernel has other blocks for more of them. The last
    case has experts that no token selects.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    few, numbers, tokens = size.experts[:1], size.experts, 4 * size.segment_length
    cases = [(name, n, False, UNITS) for name in MERGED for n in (numbers if name == "lory" else few)]
    cases += [(name, n, False, tokens) for name in SELECTED for n in few]
    cases += [(name, n, True, UNITS) for name in MERGED for n in few]
    cases += [("mixtral", MANY_EXPERTS, False, FEW_TOKENS)]
    for precision, (design, experts, recompute, units) in product(PRECISIONS, cases):
        if precision == "fp32" or has_bf16(pick_device()):
            again = ", recompute_merge" if recompute else ""
            name = f"{design}, {experts} experts{again}, {units} units, beside its twin"
            errors = attempt(partial(twin_errors, size, design, experts, precision, recompute, units))
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

    The compiled one has the fused loss, the eager one all logits. Both round differently. A design that
    selects experts is compared in float32: in bfloat16 so many tokens would select other experts that the
    gradients differed by more than an error.
    """
    if not has_bf16(pick_device()):
        return
    merged = dict.fromkeys((size.experts[0], size.experts[-1]))
    for design, experts in (("dense", 1), *(("lory", n) for n in merged), ("mixtral", size.experts[0])):
        precision = "fp32" if design in SELECTED else "cast once"
        errors = attempt(partial(compiled_errors, size, design, experts, precision))
        limit = COMPILED_LIMITS[precision]
        yield checked(f"{design}, {experts} experts, compiled beside eager", precision, errors, limit)


def compiled_errors(size: BenchSize, design: str, experts: int, precision: str) -> dict[str, float]:
    """Relative differences of the gradients of every parameter, added up over two micro-batches."""
    ids, found = random_ids(size, 2, size.length), []
    once = torch.bfloat16 if precision == "cast once" else None
    for compiled in (False, True):
        torch.manual_seed(0)
        model = on_device(run_config(bench_run(size, design, experts))).train()
        speed_up(model, SpeedConfig(compile=compiled))
        for _ in range(2):
            with autocast("bf16" if once else "fp32"), experts_cast_once(model, once):
                loss = model(ids, shift_labels=ids, skip_logits=compiled).loss
                loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    eager, other = found
    return {name: relative(other[name], eager[name]) for name in eager}


def twin_errors(
    size: BenchSize, design: str, experts_count: int, precision: str, recompute: bool, units: int
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
    slots = size.segment_length if design in MERGED else 1
    x = torch.randn(units, slots, width, device=device, dtype=dtype)
    logits = torch.randn(units, experts_count, device=device)
    gates = logits.softmax(-1) * SELECTIONS[routing.selection](logits, routing, None, True)
    if design in MERGED:
        fast: Callable[..., Tensor] = lambda x, g: experts(x, ByParameters(g, recompute))  # noqa: E731
        naive: Callable[..., Tensor] = lambda x, g: by_parameters_loop(experts, x, g)  # noqa: E731
    else:
        counts = fixed_counts(routing, units, experts_count, training=True, padded=False)
        x = x.flatten(0, 1)
        fast = lambda x, g: experts(x, ByOutputs(g, {}, counts))  # noqa: E731
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
