"""The language model: transformers' blocks around our mixtures of experts."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM, LoriiniModel

AutoConfig.register(LoriiniConfig.model_type, LoriiniConfig, exist_ok=True)
AutoModel.register(LoriiniConfig, LoriiniModel, exist_ok=True)
AutoModelForCausalLM.register(LoriiniConfig, LoriiniForCausalLM, exist_ok=True)

__all__ = ["LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel"]
