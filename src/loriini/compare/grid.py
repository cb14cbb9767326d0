"""The trainings of a comparison: widths × designs × grid points × seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.common.grouping import grouped
from loriini.compare.settings import Grid
from loriini.compare.trainings import Training, variant_name
from loriini.recipes.redesign import scaled_shape, with_routing
from loriini.routing import DESIGNS, RoutingConfig
from loriini.routing.design import without_effect
from loriini.routing.registry import AXES, REGISTERED, registered_values
from loriini.train.changes import NOT_OF_TRAINING
from loriini.train.config import TrainConfig
from loriini.train.overrides.apply import override, override_pairs
from loriini.train.overrides.names import setting_name
from loriini.train.preflight import unmet_need

NOT_IN_GRID = {
    "seed": "give --seeds N",
    "name": "runs are named by their design and settings",
    "routing": "the designs are the first arguments",
    **dict.fromkeys(NOT_OF_TRAINING, "it does not change what is trained"),
}


def make_trainings(
    designs: Sequence[str],
    base: TrainConfig,
    overrides: Sequence[str],
    grid: Grid,
    seeds: int,
    widths: Sequence[int] = (),
) -> list[Training]:
    """A training for every design, width, grid point and seed; trainings of the first seed come first.

    `base` is changed by `overrides`, `--dotted.name=value`, and by the grid, then made as wide as each of
    `widths`, if there are any; its design is replaced by each of `designs` at the same active size. Grid
    points that differ only in settings without effect on a design are one training. Seeds count up from that
    of `base`. InputError for an unknown design, a wrong setting and runs that no model admits.
    """
    for design in designs:
        check_design(design)
    check_overrides(overrides, grid)
    check_grid(grid, base)
    if widths and "model.hidden_size" in grid:
        raise InputError("--grid model.hidden_size: the sizes of --ladder are widths; leave one of them out")
    if widths and base.init:
        raise InputError(f"--ladder: {base.name} starts from a model, which has one size; leave it out")
    variants = [
        training
        for width in (*widths,) or (None,)
        for design in dict.fromkeys(designs)
        for training in _variants(design, base, overrides, grid, width)
    ]
    return [
        replace(training, run=replace(training.run, seed=training.seed + i))
        for i in range(seeds)
        for training in variants
    ]


def check_design(name: str) -> None:
    """InputError for a name that is not in DESIGNS; it suggests the nearest design."""
    if name not in DESIGNS:
        hint = f"{nearest(name, DESIGNS)}`loriini designs` lists all"
        raise InputError(f"{name}: neither a design nor a run's folder; {hint}")


def check_overrides(overrides: Sequence[str], grid: Grid) -> None:
    """InputError for an override of name or design, which a comparison sets, or of what its grid varies."""
    for flag, _ in override_pairs(overrides):
        if (name := setting_name(flag)) in ("name", "routing"):
            raise InputError(f"{flag}: {NOT_IN_GRID[name]}; leave it out")
        if name in grid:
            raise InputError(f"{flag}: --grid {name} varies it; leave one of them out")


def check_grid(grid: Grid, base: TrainConfig) -> None:
    """InputError for a setting that does not exist or cannot vary, and for a value it cannot have."""
    for name, values in grid.items():
        if name in NOT_IN_GRID:
            raise InputError(f"--grid {name}: {NOT_IN_GRID[name]}; leave it out")
        if name.startswith("routing."):
            continue  # which values go together depends on the design
        for value in values:
            try:
                override(base, [f"--{name}={value}"])
            except InputError as error:
                raise InputError(f"--grid {name}: {error}") from error


def _variants(
    design: str, base: TrainConfig, overrides: Sequence[str], grid: Grid, width: int | None
) -> Iterator[Training]:
    """A design's distinct runs over the grid, named by the width and the settings that affect this design."""
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    runs = [_point_run(design, base, overrides, point, width) for point in points]
    effective = [name for name in grid if _has_effect(name, points, runs)]
    first: dict[TrainConfig, dict[str, str]] = {}
    for run, point in zip(runs, points, strict=True):
        first.setdefault(run, point)
    for run, point in first.items():
        settings = {name: point[name] for name in effective}
        size = {} if width is None else {"width": width}
        name = variant_name(design, {**size, **settings})
        yield Training(name, run, settings=settings, width=width)


def _point_run(
    design: str, base: TrainConfig, overrides: Sequence[str], point: Mapping[str, str], width: int | None
) -> TrainConfig:
    """The run of a grid point; settings that have no effect on it stay as in `base`."""
    flags = {name: f"--{name}={value}" for name, value in point.items()}
    run = _design_run(design, base, [*overrides, *flags.values()], width)
    effective = [flag for name, flag in flags.items() if not unmet_need(run, name)]
    return _design_run(design, base, [*overrides, *effective], width)


def _has_effect(name: str, points: Sequence[Mapping[str, str]], runs: Sequence[TrainConfig]) -> bool:
    """True if grid points that differ only in this setting give different runs."""
    alike = grouped(range(len(points)), lambda i: tuple(v for k, v in points[i].items() if k != name))
    return any(len({runs[i] for i in numbers}) > 1 for numbers in alike.values())


def _design_run(design: str, base: TrainConfig, arguments: Sequence[str], width: int | None) -> TrainConfig:
    """`base` at a width, with a design and overrides; those of `routing.` change the design."""
    of_routing = [text for text in arguments if text.startswith("--routing.")]
    base = override(base, [text for text in arguments if not text.startswith("--routing.")])
    base = at_width(base, width) if width else base
    plain = replace(DESIGNS[design], segment_length=base.routing.segment_length)
    if not _may_read_options(plain, of_routing):
        of_routing = [text for text in of_routing if not text.startswith("--routing.options")]
    try:
        changed = override(replace(base, routing=plain), of_routing).routing
        kept = {name: getattr(plain, name) for name in without_effect(changed)}
        routing = plain if design == "dense" else replace(changed, **kept)
        run = replace(with_routing(base, routing, dense=design == "dense"), name=design)
        run.check()
    except InputError as error:
        raise InputError(f"{design}: {error}") from error
    return run


def _may_read_options(plain: RoutingConfig, arguments: Sequence[str]) -> bool:
    """True if something could read `routing.options`: a registered part or loss, or an overridden axis.

    Also True without extensions, so that the usual error is raised.
    """
    changed = any(text.startswith(f"--routing.{axis}=") for text in arguments for axis in AXES)
    return changed or bool(registered_values(plain) or REGISTERED["loss"]) or not any(REGISTERED.values())


def at_width(run: TrainConfig, width: int) -> TrainConfig:
    """`run` at another width, with the same depth and steps.

    Attention heads keep their width if a whole number of them fits, otherwise their number.
    """
    shape, ratio = run.model, Fraction(width, run.model.hidden_size)
    heads, groups = ratio * shape.num_attention_heads, ratio * (shape.num_key_value_heads or 0)
    if heads.denominator == groups.denominator == 1:
        scaled = scaled_shape(shape, width, shape.num_hidden_layers, int(heads))
        return replace(run, model=replace(scaled, num_key_value_heads=int(groups) or None))
    scaled = scaled_shape(shape, width, shape.num_hidden_layers, shape.num_attention_heads)
    return replace(run, model=replace(scaled, head_dim=shape.head_dim and int(shape.head_dim * ratio)))
