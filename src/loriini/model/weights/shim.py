"""Small files next to a model's weights, by which transformers finds Loriini without importing it first.

With `trust_remote_code=True` transformers imports the classes that `auto_map` in `config.json` names from
these files, which import them from the installed package, or report in one line what to install.
"""

from pathlib import Path

CLASSES = {
    "configuration_loriini": {"AutoConfig": "LoriiniConfig"},
    "modeling_loriini": {"AutoModel": "LoriiniModel", "AutoModelForCausalLM": "LoriiniForCausalLM"},
}
"""Each module, with the class that it imports for each Auto class of transformers."""
AUTO_MAP = {auto: f"{module}.{name}" for module, names in CLASSES.items() for auto, name in names.items()}
"""`auto_map` of a saved configuration."""

SHIM = '''"""Part of a model saved by Loriini: its classes are those of the installed package."""

try:
    from loriini.model import {names}
except ModuleNotFoundError as error:
    if error.name != "loriini":
        raise
    raise ImportError("this model needs the package loriini, which wrote it; install that first") from None
'''


def write_shim(folder: Path) -> None:
    """Write the modules that AUTO_MAP names into a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, names in CLASSES.items():
        (folder / f"{module}.py").write_text(SHIM.format(names=", ".join(sorted(names.values()))))
