"""Settings from the command line: named ones are set, wrong ones refused."""

from dataclasses import replace

import pytest

from loriini.common.errors import InputError
from loriini.routing import DESIGNS
from loriini.routing.registry import REGISTERED
from loriini.train.config import TrainConfig
from loriini.train.overrides.apply import override
from loriini.train.overrides.names import Override, describe_overrides
from runs import tiny_run

RUN = tiny_run()
MIXTRAL = replace(DESIGNS["mixtral"], segment_length=RUN.routing.segment_length)
TOP_1 = replace(MIXTRAL, top_k=1)


def test_an_option_is_set_alone_or_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTERED["scorer"], "own", ("a", "b"))
    whole, part = ["--routing.options", '{"a": 1, "b": 2}'], ["--routing.options.a", "3"]
    for given in ([*whole, *part], [*part, *whole]):
        run = override(RUN, ["--routing.scorer", "own", *given])
        assert run.routing.options == {"a": 3, "b": 2}
    assert override(run, ["--routing.options.b", "0.5"]).routing.options == {"a": 3, "b": 0.5}
    assert run.routing.options == {"a": 3, "b": 2}
    assert {type(value) for value in run.routing.options.values()} == {float}
    for wrong, message in (
        (["--routing.options", "3"], "not a JSON object"),
        (["--routing.options.a", "x"], "not a number"),
        (["--routing.options.c", "1"], "c is"),
    ):
        with pytest.raises(InputError, match=message):
            override(run, wrong)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], RUN),
        (["--steps", "7"], replace(RUN, steps=7)),
        (["--steps=7"], replace(RUN, steps=7)),
        (["--batch-size", "7", "--seed", "1"], replace(RUN, batch_size=7, seed=1)),
        (["--name", "a=b"], replace(RUN, name="a=b")),
        (["--name", "--a=b", "--steps=7"], replace(RUN, name="--a=b", steps=7)),
        (["--precision", "bf16"], replace(RUN, precision="bf16")),
        (["--model.num_experts", "8"], replace(RUN, model=replace(RUN.model, num_experts=8))),
        (["--routing.norm", "inf"], replace(RUN, routing=replace(RUN.routing, norm="inf"))),
        (["--optimizer.betas", "0.8,0.9"], replace(RUN, optimizer=replace(RUN.optimizer, betas=(0.8, 0.9)))),
        (["--routing", "mixtral"], replace(RUN, routing=MIXTRAL)),
        (["--routing", "mixtral", "--routing.top_k", "1"], replace(RUN, routing=TOP_1)),
        (["--routing.top_k", "1", "--routing", "mixtral"], replace(RUN, routing=TOP_1)),
        (["--routing", "global-top1", "--routing", "mixtral"], replace(RUN, routing=MIXTRAL)),
        (["--steps", "1", "--steps", "2"], replace(RUN, steps=2)),
        (
            ["--model.rope_scaling", '{"rope_type": "linear", "factor": 2.0}'],
            replace(RUN, model=replace(RUN.model, rope_scaling={"rope_type": "linear", "factor": 2.0})),
        ),
        (["--watch.trackers", "none", "--model.low_rank", "none"], RUN),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_overrides_set_what_they_name(arguments: list[str], expected: TrainConfig) -> None:
    assert override(RUN, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed=3", "--routing.norm=2", "--routing.unit=token"], "^--routing.norm 2 --routing.unit token:"),
        (["--stepps", "7"], "--stepps: no such setting; the nearest is --steps; `loriini train"),
        (["--num-experts", "7"], "--num-experts: no such setting; the nearest is --model.num_experts;"),
        (["--model.segment_length", "7"], "the nearest is --routing.segment_length;"),
        (["--xyzzy", "7"], "--xyzzy: no such setting; `loriini train RECIPE --help` lists all"),
        (["--model", "7"], "--model 7: it has parts; set one of them"),
        (["--steps", "many"], "--steps many: it is not an integer"),
        (["--micro_batch_size", "some"], "--micro_batch_size some: it is not an integer, nor auto"),
        (["--model.rope_scaling", "linear"], "--model.rope_scaling linear: it is not a JSON object"),
        (["--model.rope_scaling", "[" * 100_000], "it is not a JSON object"),
        (["--optimizer.eps", "nan"], "--optimizer.eps is nan; it must be a finite number"),
        (["--precision", "fp8"], "--precision fp8: it is one of: auto, bf16, fp32"),
        (["--model.tie_word_embeddings", "yes"], "it is one of: true, false"),
        (["--optimizer.betas", "0.9"], "it takes 2 values with commas between them"),
        (["--routing.top_k", "0"], "top_k is 0; it must be at least 1"),
        (["--steps"], "--steps has no value; overrides come in pairs"),
        (["steps", "7"], "unexpected argument 'steps'; overrides look like --model.num_experts 8"),
        (["--routing", "rory"], "--routing rory: there is no design 'rory'; there are: dense, lory"),
    ],
)
def test_wrong_overrides_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        override(RUN, arguments)


def test_every_setting_is_described_and_can_be_set_to_its_default() -> None:
    found = list(describe_overrides(RUN))
    pairs = [f"--{o.name}={o.default}" for o in found if o.name != "routing" and o.default != '""']
    assert override(RUN, pairs) == RUN
    assert len(found) > 60
    assert not [o.name for o in found if not o.meaning]
    by_name = {o.name: o for o in found}
    betas = Override("optimizer.betas", "float,float", "0.9,0.95", "AdamW's β₁ and β₂.")
    assert by_name["optimizer.betas"] == betas
    assert (by_name["precision"].type, by_name["model.low_rank"].type) == ("auto|bf16|fp32", "int|none")
    assert by_name["routing"].default == "as below"
    mixtral = describe_overrides(replace(RUN, routing=DESIGNS["mixtral"]))
    assert [o.default for o in mixtral if o.name == "routing"] == ["mixtral"]
