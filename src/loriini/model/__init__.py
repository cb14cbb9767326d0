"""The transformer is transformers'; the experts are ours."""

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM, LoriiniModel

__all__ = ["LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel"]
