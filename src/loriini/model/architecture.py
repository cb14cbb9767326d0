"""The fields of an architecture: type, default and meaning of each, for configurations and settings."""

from dataclasses import dataclass
from typing import Literal

from loriini.common.checks import Count, Fraction, FractionBelowOne, Weight
from loriini.common.settings import Needs, setting

BlockKind = Literal["llama", "phimoe", "gpt2"]
QueryKeyNorm = Literal["head", "all"]
ExpertScale = Literal["dense", "copies", "initializer"]

ROTARY = Needs("a block that is not gpt2", lambda run: run.model.block != "gpt2")
GPT2 = Needs("--model.block gpt2", lambda run: run.model.block == "gpt2")
DRAWN_EXPERTS = Needs(
    "a mixture that is no copy, --warmup.dense_share 0 without --init",
    lambda run: run.model.num_experts > 1 and not run.init and not run.copy_step,
)


@dataclass(frozen=True)
class Architecture:
    """A transformer whose FFNs are mixtures of `num_experts` FFNs of `intermediate_size` each."""

    hidden_size: Count = 1024
    """Width of the residual stream."""
    intermediate_size: Count = 2816
    """Hidden width of each expert's FFN, and of the dense model's."""
    num_hidden_layers: Count = 24
    """Transformer blocks."""
    num_attention_heads: Count = 16
    """Attention heads of a block."""
    num_experts: Count = setting(1, "design")
    """Experts of a layer; 1: a dense model."""
    tie_word_embeddings: bool = False
    """Use the input embedding as the output head."""
    block: BlockKind = "llama"
    """Kind of transformer block: Llama's (llama); the same with LayerNorm (phimoe); or GPT-2's, with
    LayerNorm, GELU, learned positions and biases (gpt2)."""
    dropout: FractionBelowOne = setting(0.0, "training")
    """Dropout of embeddings, attention weights and residual branches; gpt2 only."""
    low_rank: Count | None = setting(None, "design")
    """Rank of the experts' factorised gate projections (AoE), at an expert width that keeps the number of
    parameters; none: about hidden_size / 3 where the design needs a rank, else no factorisation."""
    num_key_value_heads: Count | None = None
    """Heads of keys and values, each shared by a group of queries' heads; none: as many as queries'."""
    head_dim: Count | None = None
    """Width of a head; none: hidden_size / num_attention_heads."""
    qk_norm: QueryKeyNorm | None = None
    """RMSNorm of queries and keys: of every head by itself (head, as in Qwen3), over all heads together
    (all, as in OLMoE), or none."""
    attention_bias: bool = False
    """Biases of queries, keys and values; GPT-2 always has them."""
    attention_out_bias: bool | None = None
    """Bias of attention's output; none: as attention_bias."""
    lm_head_bias: bool = False
    """Bias of the output head."""
    rms_norm_eps: Fraction = setting(1e-6, needs=ROTARY)
    """Epsilon of the norms of all blocks except gpt2."""
    layer_norm_epsilon: Fraction = setting(1e-5, needs=GPT2)
    """Epsilon of the norms of block gpt2."""
    initializer_range: Fraction = setting(0.02, "training")
    """Standard deviation of initial weights."""
    expert_scale: ExpertScale = setting("dense", "training", DRAWN_EXPERTS)
    """Initial weights of experts: drawn so that the FFN branch has the dense model's root mean square
    (dense); equal copies of one draw, with the same scaling (copies); or drawn with initializer_range, as
    in the papers (initializer)."""
    output_z: Weight = setting(0.0, "training")
    """Weight z of the z-loss of the output logits, z · log²Z per target (PaLM: 1e-4), which keeps log Z near
    0; 0: none."""
