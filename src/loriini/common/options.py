"""Dataclasses as command-line options: what a field defines, and what its annotation adds.

An option has its field's name, with dashes, its type and default; the string below the field is its meaning.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from loriini.common.checks import option_of
from loriini.common.errors import InputError


@dataclass(frozen=True)
class Option:
    """Annotates a field: how the command line reads it, where its type does not say."""

    metavar: str | None = None
    """Placeholder of the value in the help."""
    positional: bool = False
    parse: Callable[[Any], Any] | None = None
    """Parses one text, also into a whole tuple; for a mapping, all its texts. InputError for a wrong one."""
    rest: bool = False
    """The field collects all other options, each as `--dotted.name=VALUE`."""
    only: tuple[str, ...] | None = None
    """Of a dataclass of settings, the fields that become options (None: all). Others keep their defaults, or
    take the value of the command's own option of the same name."""


def field_meanings(kind: type) -> dict[str, str]:
    """The meanings of a dataclass's fields, inherited ones included: the string below each."""
    meanings = dict[str, str]()
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for node, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(below.value, ast.Constant)
                meanings[ast.unparse(node.target)] = " ".join(str(below.value.value).split())
    return meanings


def type_text(hint: Any) -> str:
    """How the help shows the values of a field of this type: `int`, `a|b`, `path,…`, `float|none`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return ",".join("…" if kind is ... else type_text(kind) for kind in arguments)
    if origin in (Union, types.UnionType):
        named = any(get_origin(kind) is Literal for kind in arguments)  # other text is a registered name
        return "|".join("NAME" if named and kind is str else type_text(kind) for kind in arguments)
    names = {bool: "true|false", str: "text", dict: "json", types.NoneType: "none"}
    return names.get(origin or hint, hint.__name__.lower())


def refuse_given(settings: Any, names: tuple[str, ...], why: str) -> None:
    """InputError for the first of the named fields that is not at its default: it would have no effect."""
    for each in fields(settings):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name in names and getattr(settings, each.name) != default:
            raise InputError(f"{option_of(each.name)}: {why}")
