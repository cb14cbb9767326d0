"""What is unequal in a comparison is said, and not compared."""

from dataclasses import replace

from loriini.compare.remarks import remarks, unequal_settings
from loriini.compare.trainings import Training
from loriini.train.optimizer import OptimizerConfig
from runs import tiny_run


def test_settings_of_training_that_differ_are_named() -> None:
    dense, lory = tiny_run("dense"), tiny_run("lory", precision="bf16")
    faster = replace(lory, optimizer=replace(lory.optimizer, learning_rate=0.5))
    scaled = replace(lory, model=replace(lory.model, rope_scaling={"rope_type": "linear", "factor": 2.0}))
    trainings = [
        Training("dense", replace(dense, precision="fp32")),
        Training("lory", lory),
        Training("faster", faster),
    ]
    rate = dense.optimizer.learning_rate
    assert list(unequal_settings(trainings)) == [
        f"The runs differ in optimizer.learning_rate: {rate} (dense and lory); 0.5 (faster).",
        "The runs differ in precision: fp32 (dense); bf16 (lory and faster).",
    ]
    assert "The runs differ in model.rope_scaling.factor: none (lory); 2.0 (scaled)." in list(
        unequal_settings([Training("lory", lory), Training("scaled", scaled)])
    )


def test_settings_by_which_designs_sizes_and_grids_differ_are_not() -> None:
    rates = {rate: replace(OptimizerConfig(), learning_rate=rate) for rate in (0.1, 0.2)}
    grid = [
        Training(
            design,
            replace(tiny_run(design), optimizer=rates[rate]),
            settings={"optimizer.learning_rate": str(rate)},
        )
        for design in ("dense", "mixtral")
        for rate in rates
    ]
    assert not list(unequal_settings(grid))
    sizes = [
        Training("dense", replace(tiny_run(), optimizer=rates[rate]), width=int(9 * rate)) for rate in rates
    ]
    assert not list(unequal_settings(sizes))


def test_unequal_corpora_and_sizes_and_what_varies_by_token_are_named() -> None:
    unlike = {"dense": {}, "relu": {"experts_vary": True}}
    about = {"seed": 0, "state": "finished", "parameters": {"active": 5}, "corpus_digest": "a"}
    trainings = [{"name": name, **about, **own} for name, own in unlike.items()]
    (said,) = remarks(trainings)
    assert "experts a token of relu passes through varies" in said
    larger = {**trainings[0], "name": "large", "parameters": {"active": 6}, "corpus_digest": "b"}
    (corpora, sizes) = remarks([trainings[0], larger])
    assert "corpus" in corpora
    assert "dense 5, large 6" in sizes
