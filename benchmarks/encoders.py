"""How fast documents are embedded: sentence-transformers' own `encode`, and ours.

python benchmarks/encoders.py --text TEXT --encoder MODEL --results benchmarks/results/encoders.json

All compute in bfloat16 where the machine has it. They take turns on the same documents.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from loriini.common.hardware import has_bf16
from loriini.data.prepare.similarity.embeddings import normalize_rows
from loriini.data.prepare.similarity.encoders import Encoder, load_encoder
from measuring import timed, write_results
from order_quality import short_documents

ROUNDS, WARM_UP = 3, 64


def theirs(model: SentenceTransformer, batch_size: int) -> Encoder:
    """The library's own loop, which sorts by characters."""
    return lambda texts: model.encode(texts, batch_size=batch_size, convert_to_tensor=True).float().numpy()


def systems(name: str) -> dict[str, Encoder]:
    """What is compared; 16 is the library's fastest batch on a CPU, 32 its default."""
    dtype = torch.bfloat16 if has_bf16(torch.device("cpu")) else torch.float32
    model = SentenceTransformer(name, device="cpu", model_kwargs={"dtype": dtype})
    return {
        "sentence-transformers": theirs(model, 16),
        "sentence-transformers, batches of 32": theirs(model, 32),
        "ours": load_encoder(name),
    }


def compare(
    encoders: dict[str, Encoder], texts: list[str], exact: Callable[..., Any]
) -> list[dict[str, Any]]:
    """A row a system: seconds over the rounds, speed over the first's, cosine to float32."""
    reference_ND = normalize_rows(exact(texts))
    vectors = {name: normalize_rows(encode(texts[:WARM_UP])) for name, encode in encoders.items()}
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in encoders}
    for _ in range(ROUNDS):
        for name, encode in encoders.items():
            vectors[name], spent = timed(lambda encode=encode: normalize_rows(encode(texts)))
            seconds[name].append(spent)
    baseline = seconds["sentence-transformers"]
    return [
        {
            "system": name,
            "documents_per_s": len(texts) / median(s["wall_s"] for s in spent),
            "documents_per_cpu_s": len(texts) / median(s["cpu_s"] for s in spent),
            "speed_over_theirs": {
                unit: median(b[unit] / s[unit] for b, s in zip(baseline, spent, strict=True))
                for unit in ("wall_s", "cpu_s")
            },
            "least_cosine_to_float32": float((vectors[name] * reference_ND).sum(1).min()),
            "seconds": spent,
        }
        for name, spent in seconds.items()
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True, help="folder of DOMAIN.train.jsonl.zst")
    parser.add_argument("--encoder", required=True, help="a sentence-transformers model's folder")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--results", type=Path)
    a = parser.parse_args()
    every = list(short_documents(a.text))
    picked = np.random.default_rng(0).choice(len(every), a.documents, replace=False)
    texts = [every[i].text for i in picked]
    exact = SentenceTransformer(a.encoder, device="cpu").encode
    rows = compare(systems(a.encoder), texts, exact)
    print(json.dumps(rows, indent=1))
    if a.results:
        about = {
            "encoder": Path(a.encoder).name,
            "documents": a.documents,
            "threads": torch.get_num_threads(),
        }
        write_results(a.results, **about, rounds=ROUNDS, rows=rows)


if __name__ == "__main__":
    main()
