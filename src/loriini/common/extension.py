"""Modules that a user names, which add to Loriini (`routing.extension`); no file that is read names one."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from loriini.common.errors import InputError

EXTENSIONS: list[str] = []
"""Those loaded in this process, for the processes that it starts: modules, and absolute paths of files."""


def load_extension(name: str) -> str:
    """Import an installed module, or execute FILE.py; returns its entry. InputError where that fails."""
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
    """The arguments by which another process loads what this one has loaded."""
    return [f"--extension={name}" for name in EXTENSIONS]


def execute(path: Path) -> ModuleType:
    """The module of a Python file, executed. InputError where that fails.

    As where Python itself runs a file, it can import modules next to it.
    """
    spec = spec_from_file_location(f"file {path.stem}", path)  # no other module's name
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
