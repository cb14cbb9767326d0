"""The AoE paper's tables and figures (figure 1 is a diagram)."""

from functools import partial

from loriini.papers.published.items.item import Item, PaperRun

NODES = {
    "xW_g": "gate",
    "xW_p": "up",
    "SiLU(xW_g)": "activated_gate",
    "SiLU(xW_g) * xW_p": "hidden",
    "output": "output",
}
RANKED_GATES = "uniform"
"""Gates of experts that are ranked by norms. By the norms themselves they would be sharper with one norm than
with another, and this would be compared instead of the ranking."""
TASKS = ("--tasks", "aoe")
RANKS = (64, 128, 256, 512)
MIXTURE = "732m-moe-aux"
"""The mixture of our own that stands for the pretrained ones of tables 1, 6 and 7."""

CONFIGURATIONS = {
    "1 MoE": PaperRun("732m-moe"),
    "2 MoE + aux": PaperRun("732m-moe-aux"),
    "3 MoE + aux + factorized": PaperRun("732m-moe-aux-factorized"),
    "4 MoE + aux + large router": PaperRun("732m-moe-aux-large-router"),
    **{
        f"{2 * i + 5 + bool(aux)} AoE {rank}{aux}": PaperRun(f"732m-aoe-{rank}{'-aux' if aux else ''}")
        for i, rank in enumerate(RANKS)
        for aux in ("", " + aux")
    },
}


def configurations(*numbers: int) -> dict[str, PaperRun]:
    """Some of table 2's twelve."""
    return {name: run for name, run in CONFIGURATIONS.items() if int(name.split()[0]) in numbers}


def router_free(norm: str) -> dict[str, PaperRun]:
    """The mixture with its router, and with experts ranked by a norm at each node."""
    tasks = ("--tasks", "router-free")
    ranked = {
        row: PaperRun(MIXTURE, evaluate=(*tasks, "--router-free", f"{node}:{norm}:{RANKED_GATES}"))
        for row, node in NODES.items()
    }
    return ranked | {"router": PaperRun(MIXTURE, evaluate=tasks)}


_item = partial(Item, texts=("RedPajama",))
PRETRAINED = "the paper's models are Mixtral 8x7B and Phi-3.5-MoE-instruct, as pretrained"

AOE_ITEMS = (
    _item(
        "aoe-table1",
        "Pretrained mixtures without routers, L2 norm",
        "table 1; section 3.1",
        "Ranked by the L2 norm of their activations at the best node, pretrained experts keep up to 95 % "
        "(Mixtral) and 71 % (Phi-3.5) of the accuracy; the best node differs between models, and it takes "
        "longer.",
        router_free("2"),
        note=f"{PRETRAINED}; gates are not stated; on MMLU Phi-3.5 keeps at most 49 %",
    ),
    _item(
        "aoe-table6",
        "Pretrained mixtures without routers, L1 norm",
        "table 6; appendix A",
        "Experts ranked by the L1 norm keep less of the accuracy than by the L2 norm.",
        router_free("1"),
        note=f"{PRETRAINED}; gates are not stated; two cells of Phi-3.5 are above table 1's",
    ),
    _item(
        "aoe-table7",
        "Pretrained mixtures without routers, maximum norm",
        "table 7; appendix A",
        "Experts ranked by the maximum norm keep less of the accuracy than by the L2 norm.",
        router_free("inf"),
        note=f"{PRETRAINED}; gates are not stated; three cells of Phi-3.5 are above table 1's, and so is "
        "its best on ARC-C",
    ),
    _item(
        "aoe-table2",
        "Twelve configurations: downstream tasks",
        "table 2; section 4.1.2, questions 1, 2, 4 and 5",
        "Every AoE configuration has a higher mean accuracy than every traditional one, with or without the "
        "balancing loss; neither factorised weights nor a larger router explain it.",
        CONFIGURATIONS,
        evaluate=TASKS,
        note="MRPC and QQP are named as tasks, but not printed; the rank of configuration 3 is not stated",
    ),
    _item(
        "aoe-table3",
        "Top-p and expert choice",
        "table 3; section 4.1.2, question 7",
        "AoE has the higher mean accuracy with top-p selection and with expert choice, too.",
        {
            "top-p, MoE": PaperRun("732m-moe-top-p"),
            "top-p, AoE": PaperRun("732m-aoe-256-top-p"),
            "expert choice, MoE": PaperRun("732m-moe-ec"),
            "expert choice, AoE": PaperRun("732m-aoe-256-ec"),
        },
        evaluate=TASKS,
    ),
    _item(
        "aoe-table5",
        "The 4B models: downstream tasks",
        "table 5; section 4.2",
        "At 4B AoE has a higher mean accuracy than the traditional mixture, by more than at 732M.",
        {"MoE": PaperRun("4b-moe"), "AoE": PaperRun("4b-aoe")},
        evaluate=TASKS,
    ),
    _item(
        "aoe-fig2",
        "Training loss by rank",
        "figure 2; section 4.1.2, question 2",
        "AoE's loss is below the traditional mixture's, lowest with a rank of a third of the width (256), "
        "and about equal to it with 64.",
        configurations(2, 6, 8, 10, 12),
    ),
    _item(
        "aoe-fig3",
        "Load and confidence by layer",
        "figure 3; section 4.1.2, questions 3 and 8",
        "AoE's load is more even than the traditional mixture's, with and without the balancing loss, and "
        "its choices are more confident, increasingly with depth.",
        configurations(1, 2, 9, 10),
        note="measured on SST-2",
    ),
    _item(
        "aoe-fig4",
        "Activation norms over training",
        "figure 4; section 4.1.2, question 6",
        "The norms of a layer's experts stay alike; without the balancing loss some in middle to upper "
        "layers start far lower and catch up later.",
        configurations(9, 10),
    ),
    _item(
        "aoe-table4",
        "Throughput and memory by rank",
        "table 4; section 4.1.2, question 8",
        "AoE reaches up to 97 % of the traditional mixture's throughput and needs more memory.",
        {"MoE": PaperRun("732m-moe"), **{f"AoE {rank}": PaperRun(f"732m-aoe-{rank}") for rank in RANKS}},
        note="finding 8.2 calls the rank a trade-off, but both throughput and memory only fall as it grows",
    ),
    Item(
        "aoe-fig5",
        "Toy study: who classifies what",
        "figure 5; appendix B",
        "The router of two experts splits two classes between them and a third over both; autonomous experts "
        "leave the first two classes to one of them and the third to the other.",
        {},
        note="no language model",
    ),
)
