"""Processes share an evaluation: each computes a part, and all return what one process does."""

import os
from typing import Any

import pytest
import torch

import together
from loriini.evaluate.heldout import HeldOut
from loriini.evaluate.perplexity import evaluate
from loriini.parallel.mesh import process_group
from tiny import LENGTH, SEGMENT, random_ids, tiny_model

CASES = [("lory", "training"), ("lory", "prompt"), ("random", "training"), ("label", "training")]


def evaluated(cases: list[tuple[str, str]]) -> list[tuple[dict[str, Any], int]]:
    """Results of evaluating 7 and 2 instances, and how many instances this process's model was given."""
    torch.set_num_threads(1)
    with process_group():
        return [_evaluated(*case) for case in cases]


def _evaluated(design: str, routing: Any) -> tuple[dict[str, Any], int]:
    torch.manual_seed(0)
    model = tiny_model(design, **({"label_names": ["code", "prose"]} if design == "label" else {}))
    rows = 0

    def count(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal rows
        rows += len(args[0])

    model.register_forward_pre_hook(count, with_kwargs=True)
    unlike = [ids[: LENGTH + 1 - i] for i, ids in enumerate(random_ids(7, LENGTH + 1))]
    heldout = {
        "code": HeldOut(unlike, bytes_per_token=3.5),
        "prose": HeldOut(random_ids(2, LENGTH + 1), bytes_per_token=2.0),
    }
    shared = {"precision": "fp32", "routing": routing, "shown": False}
    return evaluate(model, heldout, SEGMENT, batch_size=2, **shared), rows


def test_two_processes_share_the_instances() -> None:
    assert "WORLD_SIZE" not in os.environ
    alone, ranks = evaluated(CASES), together.job(2, evaluated, CASES)
    assert ranks[0] == ranks[1]
    for (expected, whole), (found, part) in zip(alone, ranks[0], strict=True):
        assert (whole, part) == (9, 5)
        for name, values in expected.items():
            for domain in values if isinstance(values, dict) else ():
                assert found[name][domain] == pytest.approx(values[domain], rel=1e-5)
