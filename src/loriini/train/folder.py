"""A run's folder: whose it is, and the final model in it."""

from pathlib import Path

from transformers import AutoTokenizer

from loriini.atomic import write_json
from loriini.errors import InputError
from loriini.model import LoriiniForCausalLM
from loriini.model.card import model_card
from loriini.model.saving import save_model_folder
from loriini.parallel.mesh import world_size
from loriini.progress import warn
from loriini.train.corpora import TrainingCorpus
from loriini.train.record import training_record
from loriini.train.run import RUN, Run, read_run

CHANGEABLE = frozenset({"parallel", "speed", "watch", "guard", "order"})
"""Settings that may change when a run is resumed: they leave what is trained unchanged, up to rounding."""

ORDERS = {"random": "random", "similar": "similar", "papers": "similar"}
"""The order of documents that a method of `loriini prepare --order` gives."""


def claim_run(run: Run, corpus: TrainingCorpus, out: Path) -> bool:
    """Write `run.json`, or check that it is this run's; returns whether the run is finished already.

    Raises InputError for another run's folder and for a run that this corpus and these processes do not fit.
    Settings in CHANGEABLE may have changed; `run.json` then follows.
    """
    run.check(run.label_names(corpus.instances), world_size())
    path, data = out / RUN, {"corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size}
    settings = {**run.to_dict(), **data}
    if path.exists():
        before, written = read_run(path)
        settings_before = {**before.to_dict(), **{name: written.get(name) for name in data}}
        changed = sorted(k for k in settings.keys() - CHANGEABLE if settings_before[k] != settings[k])
        if changed:
            raise InputError(
                f"{path}: this folder holds another run (different: {', '.join(changed)}); "
                "choose another --out, or remove the folder"
            )
        finished = (out / "model").exists()
        if written != settings and not finished:
            write_json(path, settings)
        return finished
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; choose another --out")
    if run.length > corpus.instances.length:
        raise InputError(
            f"the run's context is {run.length} tokens, but the corpus was cut into "
            f"{corpus.instances.length}; prepare it with --length {run.length}"
        )
    warn_of_order(run, corpus)
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, settings)
    return False


def warn_of_order(run: Run, corpus: TrainingCorpus) -> None:
    """Warn when a corpus's documents are in another order than the run is meant for.

    A warning, since training on either order is sound: Lory's figure 4 compares them.
    """
    others = {ORDERS.get(method, run.order) for method in corpus.orders} - {run.order}
    if run.order is not None and others:
        warn(
            f"{run.name} is meant for documents in {run.order} order, the corpus is in {others.pop()} order; "
            f"prepare it with --order {run.order}"
        )


def save_model(model: LoriiniForCausalLM, corpus: TrainingCorpus, out: Path) -> None:
    """Write the final model of the run in `out` as the Hugging Face folder `out/model`, atomically."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.tokenizer)
    card = model_card(model.config, training_record(out))
    save_model_folder(model.eval(), tokenizer, card, out / "model")
