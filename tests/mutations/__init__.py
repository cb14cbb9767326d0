"""Known mistakes, by what they are made in; `tests/mutate.py` tries them."""

from mutations.core import CORE
from mutations.data import DATA
from mutations.exports import EXPORTS
from mutations.hostile import HOSTILE
from mutations.mutation import Mutation
from mutations.reports import REPORTS
from mutations.training import TRAINING

MUTATIONS = (*CORE, *TRAINING, *DATA, *REPORTS, *EXPORTS, *HOSTILE)

__all__ = ["MUTATIONS", "Mutation"]
