"""The cells of a comparison: sizes × designs × grid points × seeds, each a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from loriini.common.checks import as_argument, by_dotted_name, nearest
from loriini.common.errors import InputError
from loriini.common.grouping import grouped
from loriini.compare.settings import Grid
from loriini.compare.sizes import at_width, check_widths
from loriini.data.jobs.artifact import digest
from loriini.recipes import families, with_routing
from loriini.routing import DESIGNS, RoutingConfig
from loriini.routing.design import without_effect
from loriini.routing.registry import AXES, REGISTERED, registered_values
from loriini.train.changes import NOT_OF_TRAINING, free_micro_batch
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.launch import resolve_recipe
from loriini.train.overrides.apply import override, override_pairs
from loriini.train.overrides.names import setting_name

NOT_IN_GRID = {
    "seed": "give --seeds N",
    "name": "runs are named by their design and settings",
    "routing": "the designs are the first arguments",
    **dict.fromkeys(NOT_OF_TRAINING, "it does not change what is trained"),
}


@dataclass(frozen=True)
class Cell:
    """One training of a comparison; cells that differ only in their seed are one variant."""

    variant: str
    """Design and settings: what the report names."""
    run: TrainConfig
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the grid that the design depends on."""
    width: int | None = None
    """Width of the model, where the comparison is a ladder of sizes."""
    of_grid: bool = True
    """Whether `settings` are of a grid, whose sweeps choose; those of existing runs tell them apart."""

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def causality(self) -> str:
        """That of the design in effect when text is scored: dense, if there is one expert."""
        return self.run.config().design.causality

    @property
    def training_causality(self) -> str:
        """The same in training."""
        return self.run.config().design.training_causality

    def folder_name(self, corpus: TrainingCorpus) -> str:
        """Readable, and different for every setting that changes what is trained, the corpus included."""
        readable = "".join(c if c.isalnum() or c in "=.-" else "_" for c in self.variant)
        return f"{readable}-seed{self.seed}-{run_digest(self.run, corpus)}"


def make_cells(
    designs: Sequence[str],
    base: TrainConfig,
    overrides: Sequence[str],
    grid: Grid,
    seeds: int,
    widths: Sequence[int] = (),
) -> list[Cell]:
    """A cell for every design, size, grid point and seed; all cells of the first seed come first.

    `base` is changed by `overrides`, `--dotted.name=value`, and by the grid, then made as wide as each of
    `widths`, if there are any; its design is replaced by each of `designs` at the same active size. Grid
    points that do not differ for a design are one cell. Seeds count up from that of `base`. InputError for
    an unknown design, a wrong setting and runs that no model admits.
    """
    for design in designs:
        check_design(design)
    check_overrides(overrides, grid)
    check_grid(grid, base)
    check_widths(base, widths, list(grid))
    cells = [
        cell
        for width in (*widths,) or (None,)
        for design in dict.fromkeys(designs)
        for cell in _variants(design, base, overrides, grid, width)
    ]
    return [
        replace(cell, run=replace(cell.run, seed=cell.run.seed + i)) for i in range(seeds) for cell in cells
    ]


def base_run(name: str) -> TrainConfig:
    """A family's or a recipe's run; InputError for another name."""
    return families()[name] if name in families() else resolve_recipe(name, [])


def check_design(name: str) -> None:
    """InputError for a name that is neither a design's nor, as a path, a run's; it names the nearest."""
    if name not in DESIGNS:
        hint = f"{nearest(name, DESIGNS)}`loriini designs` lists all"
        raise InputError(f"{name}: neither a design nor a run's folder; {hint}")


def check_overrides(overrides: Sequence[str], grid: Grid) -> None:
    """InputError for an override of what a comparison sets itself, and of what its grid varies."""
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
) -> Iterator[Cell]:
    """A design's distinct runs over the grid, named by its size and the settings that matter to it."""
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    swept = [[f"--{name}={value}" for name, value in point.items()] for point in points]
    runs = [_design_run(design, base, [*overrides, *point], width) for point in swept]
    effective = [name for name in grid if _has_effect(name, points, runs)]
    first: dict[TrainConfig, dict[str, str]] = {}
    for run, point in zip(runs, points, strict=True):
        first.setdefault(run, point)
    for run, point in first.items():
        settings = {name: point[name] for name in effective}
        size = {} if width is None else {"width": width}
        yield Cell(variant_name(design, {**size, **settings}), run, settings, width)


def variant_name(name: str, settings: Mapping[str, object]) -> str:
    """A name followed by settings, each without its section: `lory segment_length=64`."""
    return " ".join([name, *(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())])


def _has_effect(name: str, points: Sequence[Mapping[str, str]], runs: Sequence[TrainConfig]) -> bool:
    """Whether this setting has an effect: whether grid points that differ in it alone give different runs."""

    def others(number: int) -> tuple[str, ...]:
        return tuple(value for key, value in points[number].items() if key != name)

    alike = grouped(range(len(points)), others).values()
    return any(len({runs[number] for number in numbers}) > 1 for numbers in alike)


def _design_run(design: str, base: TrainConfig, arguments: Sequence[str], width: int | None) -> TrainConfig:
    """`base` with a design and overrides, those of routing applied to the design, at a width."""
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
    """Whether a design with these overrides may read options; true where no extension is loaded."""
    changed = any(text.startswith(f"--routing.{axis}=") for text in arguments for axis in AXES)
    return (
        changed or bool(registered_values(plain)) or bool(REGISTERED["loss"]) or not any(REGISTERED.values())
    )


def run_settings(run: TrainConfig, left_out: Collection[str]) -> dict[str, str]:
    """A run's settings as text, by dotted name, without those in `left_out` and those in its sections."""
    parts = tuple(f"{name}." for name in left_out)
    return {
        name: as_argument(value)
        for name, value in by_dotted_name(run.to_dict()).items()
        if not f"{name}.".startswith(parts)
    }


def run_digest(run: TrainConfig, corpus: TrainingCorpus) -> str:
    """A hash of what is trained: the settings that differ from their defaults, and the corpus.

    Defaults are left out so that a new setting does not change the hash of older runs.
    """
    left_out = (*NOT_OF_TRAINING, *free_micro_batch(run.routing))
    default = run_settings(TrainConfig(name="", routing=RoutingConfig()), left_out)
    settings = run_settings(run, left_out)
    changed = {name: value for name, value in settings.items() if value != default.get(name)}
    return digest({**changed, "corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size})[:8]
