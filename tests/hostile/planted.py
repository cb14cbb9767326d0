"""Code in a folder that others made: it writes a file into the working folder if it is run."""

import json
import pickle
from pathlib import Path
from typing import Any

from hostile.runner import MARKER


class Marker:
    """What a pickle runs when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (MARKER, "w")


CODE = f"open({MARKER!r}, 'w')\n"
AUTO_MAP = {
    "AutoConfig": "planted.Planted",
    "AutoModel": "planted.Planted",
    "AutoModelForCausalLM": "planted.Planted",
    "AutoTokenizer": ["planted.Planted", "planted.Planted"],
}


def planted(folder: Path, module: str = "planted.Planted") -> None:
    """A module beside the weights, and every name by which it might be imported.

    `module` is what modules.json names; Router and WordEmbeddings of sentence-transformers import what their
    own settings name.
    """
    (folder / "planted.py").write_text(CODE + "class Planted: pass\n")
    modules = "__init__ configuration_loriini modeling_loriini setup custom_generate/generate"
    for name in modules.split():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(CODE)
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": module}]))
    router = {"types": {"a": "planted.Planted"}, "structure": {"query": ["a"], "document": ["a"]}}
    (folder / "router_config.json").write_text(json.dumps({**router, "parameters": {}}))
    (folder / "wordembedding_config.json").write_text(json.dumps({"tokenizer_class": "planted.Planted"}))
    for name in ("pytorch_model.bin", "model.pt", "adapter_model.bin", "training_args.bin", "encoder.pickle"):
        (folder / name).write_bytes(pickle.dumps(Marker()))
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        values = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**values, "auto_map": AUTO_MAP}))
