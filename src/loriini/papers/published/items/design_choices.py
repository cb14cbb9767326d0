"""The design-choices paper's tables and figures; some figures lost their number in the text at hand."""

from functools import partial

from loriini.papers.published.design_choices import TEXTS
from loriini.papers.published.items.item import Item, PaperRun


def gpt2(name: str) -> PaperRun:
    """A mixture of GPT-2-small."""
    return PaperRun(f"gpt2-small-{name}")


SEQUENCE_TOP2 = "sequence, layer-wise, top-2"
"""The row of table 1 that figures and other tables are about too."""
SEQUENCE, TOKEN = gpt2("sequence-top2"), gpt2("token-top2")
BALANCING_IS_NOT_STATED = "whether the load-balancing loss was on is not stated, and ours is off"
_on_both = partial(Item, texts=TEXTS)
_on_languages = partial(Item, texts=TEXTS[:1])

DESIGN_CHOICES_ITEMS = (
    _on_both(
        "design-choices-table1",
        "Unit, scope and active experts against dense widths",
        "table 1; section 3.1",
        "The unit matters most. Token-level top-2 is better than a dense model of all its parameters, "
        "token-level top-1 than one of its active parameters; sequence-level top-2 is about as good as a "
        "dense model of its active parameters.",
        {
            **{
                f"{unit}, {scope}, top-{k}": gpt2(f"{name}-top{k}")
                for k in (2, 1)
                for unit, scope, name in (
                    ("token", "layer-wise", "token"),
                    ("sequence", "layer-wise", "sequence"),
                    ("sequence", "global", "global"),
                )
            },
            "dense, 1x FFN width": PaperRun("gpt2-small"),
            "dense, 2x FFN width": gpt2("2x"),
            "dense, 4x FFN width": gpt2("4x"),
        },
        note=f"{BALANCING_IS_NOT_STATED}; on MultiWiki the printed perplexities "
        "change more with the scope than with the unit",
    ),
    _on_languages(
        "design-choices-table2",
        "Number of experts and of active experts",
        "table 2; section 3.1.2",
        "Sequence-level routing gains from more active experts, token-level routing more from more experts.",
        {
            f"{unit} ({experts}, {k})": gpt2(f"{unit}-top{k}{'' if experts == 4 else f'-{experts}e'}")
            for unit in ("sequence", "token")
            for experts, k in ((2, 2), (4, 2), (6, 2), (4, 1), (4, 3))
        },
        note=BALANCING_IS_NOT_STATED,
    ),
    _on_both(
        "design-choices-table3",
        "Learned, frozen, random and language routing",
        "table 3; section 3.2.1",
        "A router frozen at its initial values is about as good as a learned one, and both are better than "
        "one drawn anew at every step; global routing by language is about as good as learned global "
        "routing.",
        {
            "sequence, global, language": gpt2("language"),
            "sequence, global, learned": gpt2("global-top2"),
            **{
                f"{unit}, layer-wise, {scorer}": gpt2(f"{unit}-top2{suffix}")
                for unit in ("sequence", "token")
                for scorer, suffix in (("frozen", "-frozen"), ("random", "-random"), ("learned", ""))
            },
        },
        note=f"{BALANCING_IS_NOT_STATED}; global routing on MultiWiki only; top-2 is not stated, but its "
        "values are those of table 1",
    ),
    _on_both(
        "design-choices-collapse",
        "Collapse of experts and validation perplexity",
        "unnumbered figure of section 3.1.1",
        "Without a load-balancing loss the experts of early and late layers collapse, and the perplexity is "
        "almost the same as with it.",
        {"no balancing": SEQUENCE, "balancing": gpt2("sequence-top2-balanced")},
        note="the model is not named, and is taken from figures 2 and 3",
    ),
    _on_both(
        "design-choices-fig2",
        "Experts over training, sequence-level top-2, without balancing",
        "figure 2; appendix A.4",
        "Experts collapse, most in early and late layers, and can recover.",
        {SEQUENCE_TOP2: SEQUENCE},
    ),
    *(
        _on_both(
            f"design-choices-fig{number}",
            f"Experts over training, sequence-level top-{k}, with balancing",
            f"figure {number}; appendix A.4",
            "With the load-balancing loss the experts of every layer stay in use.",
            {f"sequence, layer-wise, top-{k}": gpt2(f"sequence-top{k}-balanced")},
            note="the finding is what the figure is shown for; the text does not put it into words",
        )
        for number, k in ((3, 2), (4, 3))
    ),
    _on_both(
        "design-choices-fig1",
        "One- against two-layer router",
        "figure 1; appendix A.2",
        "Whether the router has one layer or two makes no difference.",
        {"one layer": SEQUENCE, "two layers": gpt2("sequence-top2-mlp")},
        note="unit, number of active experts and text are not stated",
    ),
    _on_both(
        "design-choices-assignment",
        "Experts by MMLU topic and language, sequence-level",
        "unnumbered figure of section 3.2.2",
        "Sequence-level experts specialise weakly in topics, alike for both training texts, and not in "
        "languages.",
        {SEQUENCE_TOP2: SEQUENCE},
        note="six MMLU topics; the languages of XNLI and X-stance",
    ),
    Item(
        "design-choices-random-assignment",
        "Experts by MMLU topic: learned, frozen and random",
        "unnumbered figure of appendix A.3",
        "A frozen router assigns topics as a learned one does, with one expert common to all and weakly "
        "specialised others; a random one spreads them evenly.",
        {
            "learned": SEQUENCE,
            "frozen": gpt2("sequence-top2-frozen"),
            "random": gpt2("sequence-top2-random"),
        },
        texts=TEXTS[1:],
    ),
    _on_languages(
        "design-choices-token-assignment",
        "Experts by MMLU topic and language, token-level",
        "unnumbered figure of appendix A.3",
        "Token-level experts do not specialise in topics, but their use differs by language.",
        {"token, layer-wise, top-2": TOKEN},
    ),
)
