"""The language model: transformers' blocks around our mixtures of experts."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from loriini.model.configuration import LoriiniConfig
from loriini.model.decoder import LoriiniModel
from loriini.model.modeling import LoriiniForCausalLM

AutoConfig.register(LoriiniConfig.model_type, LoriiniConfig, exist_ok=True)
AutoModel.register(LoriiniConfig, LoriiniModel, exist_ok=True)
AutoModelForCausalLM.register(LoriiniConfig, LoriiniForCausalLM, exist_ok=True)
# Trainer's label smoothing shifts the labels of models in this table.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[LoriiniConfig.model_type] = LoriiniForCausalLM.__name__

__all__ = ["LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel"]
