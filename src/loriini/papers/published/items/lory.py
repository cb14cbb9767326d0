"""Lory's figures and tables (figure 1 is a diagram). SOAP, its earlier version, numbers some differently."""

from functools import partial

from loriini.papers.published.items.item import Item, PaperRun

DENSE_03, DENSE_15, DENSE_7 = (PaperRun(f"{size}-dense") for size in ("0.3b", "1.5b", "7b"))
LORY_03 = {f"0.3B/{experts}E": PaperRun(f"0.3b-lory-{experts}e") for experts in (8, 16, 32)}
LORY_15 = {f"1.5B/{experts}E": PaperRun(f"1.5b-lory-{experts}e") for experts in (8, 16, 32)}
SMALLER = {"0.3B": DENSE_03, **LORY_03, "1.5B": DENSE_15, **LORY_15}
PAIR_7B = {"7B": DENSE_7, "7B/4E": PaperRun("7b-lory-4e")}
TASKS = ("--tasks", "lory")
INFERENCE = {
    f"1.5B/{experts}E ({routing})": PaperRun(f"1.5b-lory-{experts}e", evaluate=(*TASKS, "--routing", routing))
    for experts in (8, 16)
    for routing in ("prompt", "segment")
}
MODEL_03 = "0.3b-lory-8e"
RANDOM_ORDER = ("--order=random",)

_item = partial(Item, texts=("Common Crawl",))
_item_7b = partial(Item, runs=PAIR_7B, texts=("several corpora, after Llama 2",))

LORY_ITEMS = (
    _item(
        "lory-fig2-left",
        "Training loss by size and experts",
        "figure 2, left; section 4.2",
        "At equal active size Lory's loss is below the dense model's, and lower with more experts; with 32 "
        "experts it reaches the dense model's final loss with fewer than half of the tokens.",
        SMALLER,
    ),
    _item(
        "lory-fig2-right",
        "Perplexity by domain, size and experts",
        "figure 2, right; section 4.2",
        "Lory's perplexity is below the dense model's in every domain, most where the text differs most from "
        "the training text, as Python does.",
        SMALLER,
    ),
    _item(
        "lory-table1",
        "Downstream tasks, 0.3B and 1.5B",
        "table 1; section 4.2",
        "Lory is on average better than the dense model of its active size on 17 tasks.",
        SMALLER,
        evaluate=TASKS,
        note='the text says "across all tasks"; single tasks get worse, such as BoolQ for 0.3B/8E',
    ),
    _item(
        "lory-fig3",
        "Causal segment routing against prefix routing",
        "figure 3; section 5.1",
        "Routing every segment by the one before it trains to a much lower loss than routing all by the "
        "first.",
        {
            "causal segment routing": PaperRun(MODEL_03),
            "prefix routing": PaperRun(MODEL_03, "prefix"),
            "SMEAR": PaperRun(MODEL_03, "smear"),
        },
        note="the model's size is not stated; SMEAR, which is not causal, is added here",
    ),
    _item(
        "lory-fig4",
        "Similar against random order of documents",
        "figure 4; section 5.2",
        "Lory's gain in loss over the dense model is larger with similar documents side by side than in "
        "random order, and grows during training.",
        {
            "0.3B (sim batch)": DENSE_03,
            "0.3B (rand batch)": PaperRun("0.3b-dense", overrides=RANDOM_ORDER),
            "0.3B/8E (sim batch)": PaperRun(MODEL_03),
            "0.3B/8E (rand batch)": PaperRun(MODEL_03, overrides=RANDOM_ORDER),
        },
    ),
    _item(
        "lory-fig5",
        "Lory against Expert Choice: training loss",
        "figure 5; section 5.3",
        "Lory's loss is well below that of segment-level and close to that of token-level Expert Choice.",
        {
            "Lory": PaperRun(MODEL_03),
            "EC, segment-level": PaperRun(MODEL_03, "ec-segment"),
            "EC, token-level": PaperRun(MODEL_03, "ec-token"),
        },
    ),
    _item(
        "lory-table2",
        "Lory against Expert Choice: perplexity by domain",
        "table 2; section 5.3",
        "Lory is better than segment-level Expert Choice in every domain, and than token-level Expert Choice "
        "on arXiv, Books and Python; it is equal on Wikipedia and worse on C4.",
        {
            "0.3B/8E (Lory)": PaperRun(MODEL_03),
            "0.3B/8E (EC, seg-level)": PaperRun(MODEL_03, "ec-segment"),
            "0.3B/8E (EC, tok-level)": PaperRun(MODEL_03, "ec-token"),
        },
        note="the versions differ on Python, and so does the order of the two baselines there",
    ),
    _item(
        "lory-fig6",
        "Routing weights by domain at layers 0, 11 and 23",
        "figure 6; section 5.4",
        "Experts specialise in domains, more in the middle and high layers; weights at low layers are flat, "
        "and those on arXiv and Python are more alike than those on Books and Wikipedia.",
        {"0.3B/8E": LORY_03["0.3B/8E"]},
        note='the last comparison can also mean "more like each other than like Books and Wikipedia"',
    ),
    _item(
        "lory-fig11",
        "Routing weights by domain at every layer",
        "figure 11; appendix F",
        "Experts specialise in domains at the layers that figure 6 leaves out as well.",
        {"0.3B/8E": LORY_03["0.3B/8E"]},
    ),
    _item(
        "lory-table3",
        "Training throughput",
        "table 3; appendix B",
        "Training gets slower with the number of experts.",
        {"0.3B": DENSE_03, **LORY_03},
    ),
    _item(
        "lory-table4",
        "Sizes of the 0.3B and 1.5B models",
        "table 4; appendix D",
        "32 experts of the dense model's FFN make 6.8B parameters of 0.3B, and 29.5B of 1.5B.",
        SMALLER,
    ),
    _item_7b(
        "lory-table5",
        "Sizes of the 7B models",
        "table 5; appendix E",
        "Four experts of the dense model's FFN make 19.7B parameters of 7B.",
    ),
    _item(
        "lory-appendix-b",
        "Overhead of merging",
        "appendix B",
        "Merging E experts every T tokens costs E/T of the FFN's FLOPs; training slows down more than that.",
        {"0.3B": DENSE_03, **LORY_03},
        note="the 3.1 % are called an upper bound for the whole model, yet the slow-down measured is 15 %",
    ),
    *(
        _item(
            f"lory-table{number}",
            "Prompt against segment routing in inference",
            f"table {number}; appendix G.2",
            "Routing once by the prompt is about as good on downstream tasks as routing every segment.",
            INFERENCE,
            note="tables 6 and 9 are the same",
        )
        for number in (6, 9)
    ),
    _item_7b(
        "lory-table7",
        "Perplexity of the 7B models, random order",
        "table 7; appendix E",
        "In random order and with four experts Lory is still better than the dense model in every domain, "
        "but by less than the smaller models in similar order.",
    ),
    _item_7b(
        "lory-table8",
        "Downstream tasks of the 7B models, random order",
        "table 8; appendix E",
        "In random order and with four experts Lory is still better than the dense model on average.",
        evaluate=TASKS,
        note='"clearly better results on various tasks": worse on SIQA and Yelp',
    ),
    _item_7b(
        "lory-fig8",
        "Training loss of the 7B models, random order",
        "figure 8; appendix E",
        "The gain over the dense model is smaller than that of the smaller models in similar order.",
    ),
    _item(
        "lory-fig10",
        "With and without the dense warm-up",
        "figure 10; appendix G.3",
        "Without the dense warm-up the loss is higher and far fewer experts are used.",
        {
            "1.5B/32E": LORY_15["1.5B/32E"],
            "1.5B/32E (no warmup)": PaperRun("1.5b-lory-32e", overrides=("--warmup.dense_share=0",)),
        },
    ),
    _item(
        "lory-fig9",
        "Active experts during training",
        "figure 9; appendix G.1",
        "Without a balancing loss most of 8 or 16 experts a layer are soon in use; of 32 the number grows "
        "until the end of training, to about 900 of 1536.",
        LORY_15,
    ),
    _item(
        "lory-fig7",
        "Expert-wise model parallelism",
        "figure 7; section 6",
        "Sharding every expert's width sends activations instead of parameters, so that communication does "
        "not grow with the number of experts.",
        {
            "data parallelism (ZeRO)": PaperRun(MODEL_03),
            "expert-wise": PaperRun(MODEL_03, overrides=("--parallel.experts=8",)),
        },
        note="expert parallelism, which the figure also shows, would need every expert on every device",
    ),
)
