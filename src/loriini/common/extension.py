"""User modules that extend Loriini (`routing.extension`). Only the user names them, never a file read."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from loriini.common.errors import InputError

EXTENSIONS: list[str] = []
"""Extensions loaded in this process, to load in those it starts: module names or absolute file paths."""


def load_extension(name: str) -> str:
    """Import a module or execute FILE.py; returns its entry in EXTENSIONS. InputError if that fails."""
    if name.endswith(".py"):
        name = str(Path(name).absolute())
        execute(Path(name))
    else:
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"--extension {name}: cannot be imported ({reason}); correct it") from error
    EXTENSIONS.append(name)
    return name


def extension_arguments() -> list[str]:
    """Command-line arguments with which another process loads the same extensions."""
    return [f"--extension={name}" for name in EXTENSIONS]


def execute(path: Path) -> ModuleType:
    """Execute a Python file and return it as a module. InputError if that fails.

    As a script, it can import modules next to it.
    """
    spec = spec_from_file_location(f"file {path.stem}", path)  # a name that no other module has
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(f"{path}: no such Python file; check the path")
    module = sys.modules[spec.name] = module_from_spec(spec)  # where a dataclass looks for its module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"line {lines[-1]}, " if lines else ""
        reason = f"{where}{type(error).__name__}: {error}"
        raise InputError(f"{path}: cannot be executed ({reason}); correct it") from error
    finally:
        sys.path.remove(str(path.absolute().parent))
    return module
