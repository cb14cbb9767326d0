"""Exports in transformers 4: are their logits those of transformers 5?

python tests/earlier.py [VERSION]

Exports one model of every case in `export/exported.py` and every scaling of rotary positions, and compares
their logits with those of transformers VERSION (4.57.3) in a virtual environment of its own, of 1.5 GB.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from export.exported import DENSE_CASES, SERVED_CASES, byte_tokenizer, model_of
from loriini import DESIGNS
from loriini.export.export import ExportSettings, export_model
from loriini.export.formats import FORMATS
from tiny import random_ids

READ = """
import sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sorted(Path(sys.argv[1]).iterdir()):
    ids, expected = torch.load(folder / "expected.pt")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        difference = float((model(ids).logits - expected).abs().max())
    encoded = AutoTokenizer.from_pretrained(folder)("owl")
    print(f"{folder.name}: {difference:.1e} of {float(expected.abs().max()):.2f}, {sorted(encoded)}")
    assert difference < 1e-4 and sorted(encoded) == ["attention_mask", "input_ids"]
"""
SCALINGS = (
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
)


def export_all(out: Path) -> None:
    """Every case with its ids and logits."""
    cases = [*SERVED_CASES, *DENSE_CASES]
    for scaling in SCALINGS:
        cases.append(("mixtral", DESIGNS["mixtral"], {"rope_parameters": {"rope_theta": 500.0, **scaling}}))
    for i, (to, design, settings) in enumerate(cases):
        model = model_of(design, vocab_size=260, eos_token_id=256, **settings)
        by_label = model.config.routed_by_label
        model.config.label_names = ["a", "b", "c", "d"] if by_label else None
        by_prompt = FORMATS[to].decided and model.config.design.data_dependent
        label, prompt = "b" if by_label else None, "an owl" if by_prompt else None
        how = ExportSettings(to, prompt=prompt, label=label)
        folder = out / f"{i:02}-{to}"
        export_model(model, byte_tokenizer(), how, folder)
        ids = random_ids(2, 48)
        with torch.no_grad():
            expected = AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
        torch.save((ids, expected), folder / "expected.pt")


def main() -> None:
    """Export, install, compare."""
    version = sys.argv[1] if len(sys.argv) > 1 else "4.57.3"
    with tempfile.TemporaryDirectory() as temporary:
        venv, out = Path(temporary, "venv"), Path(temporary, "exports")
        out.mkdir()
        export_all(out)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        packages = (f"torch=={torch.__version__.split('+')[0]}", f"transformers=={version}", "numpy")
        subprocess.run([venv / "bin/pip", "install", "-q", *packages], check=True)
        subprocess.run([venv / "bin/python", "-c", READ, out], check=True)


if __name__ == "__main__":
    main()
