"""The folder of a finished job, without training."""

from pathlib import Path

import pytest

from reports import HOSTILE, dump, write_run


def difference(change: float, reach: float = 0.01) -> dict[str, float]:
    return {"change": change, "low": change - reach, "high": change + reach}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished job's folder, with a domain whose name and texts are hostile."""
    dense, mixture = {"python": 20.0, HOSTILE: 40.0}, {"python": 18.0, HOSTILE: 41.0}
    results = {
        "dense": {"perplexity": dense, "perplexity_all": {**dense, "python": 22.0}, "loss": 3.0},
        "lory": {"perplexity": mixture, "perplexity_all": mixture, "loss": 2.9},
        "parameters": {"dense": 1000, "lory_total": 4100, "lory_active": 1100},
        "tokens": {"train": 1536, "heldout": 200},
        "seconds": {"train dense": 4.0, HOSTILE: 100.0},
        "order": {"random": 0.1, "similar": 0.4},
        "difference": {"python": difference(-0.1), HOSTILE: difference(0.025), "all": difference(-0.017)},
    }
    amounts = {domain: {"documents": 3, "characters": 900} for domain in dense}
    settings = {
        "design": "lory",
        "size": {"name": "small", "hidden_size": 32, "num_hidden_layers": 2},
        "num_experts": 4,
        "segment_length": 8,
        "length": 32,
        "steps": 24,
        "batch_size": 2,
        "learning_rates": {"dense": 1e-3, "lory": 2e-3},
        "seed": 0,
        "causality": "after_first_segment",
        "machine": dict.fromkeys(("processor", "cores", "precision", "torch", "python"), HOSTILE),
        "documents": {"train": amounts, "heldout": {"python": amounts["python"]}},
        "inputs": [HOSTILE],
        "text_field": "text",
        "domain_field": "domain",
        "on_error": "stop",
        "peak_memory_bytes": {"train dense": 2_000_000, HOSTILE: 1_000_000},
    }
    document = {"id": HOSTILE, "domain": HOSTILE, "text": HOSTILE}
    near = [{**document, "similarity": 0.8}] * 2
    write_run(tmp_path / "runs/dense", dense_steps=24, routed=False)
    write_run(tmp_path / "runs/lory", dense_steps=4)
    dump(tmp_path / "results.json", results)
    dump(tmp_path / "settings.json", settings)
    dump(tmp_path / "samples.json", [dict.fromkeys(("domain", "prompt", "dense", "lory"), HOSTILE)])
    dump(tmp_path / "neighbors.json", [{**document, "neighbors": near}] * 2)
    return tmp_path
