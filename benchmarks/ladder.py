"""Dense, Lory and Mixtral at several widths on the same text: how a mixture's gain changes with compute.

python benchmarks/ladder.py --text PATH… --out WORK --results benchmarks/results/ladder.json

At each width all designs are trained with the learning rate of the dense model's lowest training loss: only
the baseline is tuned. All read the same tokens.
"""

from dataclasses import replace

from experiment import FIRST_REPORTED, Experiment, with_rate
from loriini.compare.grid import make_trainings
from loriini.compare.trainings import Training
from loriini.recipes import quickstart_run
from loriini.recipes.redesign import scaled_shape
from loriini.routing import DESIGNS

BASELINE, OTHERS = "dense", ("lory", "mixtral")
RATES = ("1e-3", "2e-3", "4e-3", "8e-3")
WIDTH, HEAD_WIDTH = 256, 32


def main() -> None:
    """Tune the baseline at every width, train all designs with other seeds, evaluate, and write results."""
    parser = Experiment.parser(steps=960, rates=RATES)
    parser.add_argument("--designs", nargs="+", default=OTHERS, choices=DESIGNS, metavar="DESIGN")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the largest size")
    parser.add_argument("--sizes", type=int, default=4)
    arguments = parser.parse_args()
    experiment = Experiment.of(arguments)
    widths = sorted(arguments.width >> i for i in range(arguments.sizes))
    run = quickstart_run("lory", "small", experiment.steps, FIRST_REPORTED)
    layers, heads = run.model.num_hidden_layers, arguments.width // HEAD_WIDTH
    base = replace(
        run,
        model=scaled_shape(run.model, arguments.width, layers, heads),
        corpus=(experiment.prepare(),),
        batch_size=experiment.batch_size,
    )
    baselines = {cell.width: cell for cell in make_trainings([BASELINE], base, [], {}, 1, widths)}

    def baseline(width: int, rate: str) -> Training:
        return with_rate(baselines[width], rate)

    tried = experiment.tune(baseline, widths)
    if lost := [width for width, found in tried.items() if found["rate"] is None]:
        raise SystemExit(f"all trainings diverged at width {lost[0]}: give other --rates")
    made = make_trainings([BASELINE, *arguments.designs], base, [], {}, experiment.seeds, widths)
    trainings = experiment.train(with_rate(cell, tried[cell.width]["rate"]) for cell in made)
    experiment.write(trainings, tried, experiment="ladder")


if __name__ == "__main__":
    main()
