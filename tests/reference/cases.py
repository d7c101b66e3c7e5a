"""The models of the reference, their batches, and Argosy's names for their parameters."""

import re
from dataclasses import dataclass

import numpy as np
from transformers import (Gemma3TextConfig, Glm4MoeConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, Olmo3Config, Phi3Config,
                          PretrainedConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

from initialisation import random_words

NUM_STEPS = 20
BATCH = 4
IGNORED = -1  # a target that carries no loss


@dataclass
class Case:
    name: str
    sequence: int
    seed: int
    config: PretrainedConfig


def all_cases():
    """Sizes are prime or uneven if possible; heads and hidden sizes stay even, for tensor parallel 2."""
    # Its four rotary wavelengths (6.3, 30, 140, 664) lie in all three ranges of the scaling: kept, blended, divided.
    scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=48)
    # Its four frequencies: the first is kept, the second is blended, the others are divided. Both weights of the attention
    # factor are given, so that it is their quotient.
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=48, beta_fast=4.0, beta_slow=0.5,
                truncate=False, mscale=1.2, mscale_all_dim=0.8)
    return [
        Case("llama", sequence=24, seed=42, config=LlamaConfig(
            vocab_size=131, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
            intermediate_size=106, max_position_embeddings=384, rope_theta=500.0, rope_scaling=scaling,
            rms_norm_eps=1e-5, tie_word_embeddings=False)),
        Case("llama_tied", sequence=13, seed=7, config=LlamaConfig(
            vocab_size=61, hidden_size=24, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=1,
            intermediate_size=58, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True)),
        Case("qwen2", sequence=19, seed=1, config=Qwen2Config(
            vocab_size=97, hidden_size=36, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            intermediate_size=94, max_position_embeddings=64, rope_theta=1e6, tie_word_embeddings=True)),
        Case("qwen3", sequence=17, seed=2**32 + 5, config=Qwen3Config(
            vocab_size=113, hidden_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, intermediate_size=74, max_position_embeddings=64, rope_theta=1e6, tie_word_embeddings=False)),
        Case("llama_yarn", sequence=23, seed=11, config=LlamaConfig(
            vocab_size=71, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=50, max_position_embeddings=192, rope_theta=500.0, rope_scaling=yarn, rms_norm_eps=1e-5,
            attention_bias=True, mlp_bias=True, tie_word_embeddings=False)),
        Case("qwen3_linear", sequence=15, seed=3, config=Qwen3Config(
            vocab_size=53, hidden_size=28, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1,
            head_dim=8, intermediate_size=38, max_position_embeddings=64, rope_theta=500.0,
            rope_scaling=dict(rope_type="linear", factor=2.5), attention_bias=True, tie_word_embeddings=True)),
        Case("mistral", sequence=21, seed=5, config=MistralConfig(
            vocab_size=59, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, intermediate_size=46, max_position_embeddings=64, rope_theta=10000.0, sliding_window=6,
            rms_norm_eps=1e-5, tie_word_embeddings=False)),
        Case("olmo2", sequence=18, seed=17, config=Olmo2Config(
            vocab_size=79, hidden_size=36, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            intermediate_size=62, max_position_embeddings=64, rope_theta=500.0,
            rope_scaling=dict(type="linear", factor=2.0), attention_bias=True, rms_norm_eps=1e-5,
            pad_token_id=None, tie_word_embeddings=True)),
        # Every fourth layer sees all tokens, and alone rotates with the scaled frequencies.
        Case("olmo3", sequence=22, seed=19, config=Olmo3Config(
            vocab_size=67, hidden_size=32, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=46, max_position_embeddings=192, rope_theta=500.0, rope_scaling=yarn, sliding_window=6,
            rms_norm_eps=1e-6, pad_token_id=None, tie_word_embeddings=False)),
        # The divisor of the scores is not the root of the heads' size, and the two kinds of layers have two bases.
        Case("gemma3", sequence=20, seed=23, config=Gemma3TextConfig(
            vocab_size=83, hidden_size=30, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=52, max_position_embeddings=64, rope_theta=2000.0, rope_local_base_freq=300.0,
            rope_scaling=dict(rope_type="linear", factor=2.0), query_pre_attn_scalar=11, sliding_window=6,
            sliding_window_pattern=3, pad_token_id=None)),
        # Six of a head's eight elements rotate, by the long factors: a sequence is longer than the original context.
        Case("phi3", sequence=21, seed=29, config=Phi3Config(
            vocab_size=73, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=46, max_position_embeddings=64, original_max_position_embeddings=16, rope_theta=500.0,
            partial_rotary_factor=0.75, sliding_window=6, pad_token_id=None,
            rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.5], long_factor=[1.0, 1.7, 3.3]))),
        Case("mixtral", sequence=19, seed=31, config=MixtralConfig(
            vocab_size=71, hidden_size=28, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, intermediate_size=22, num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=64,
            rope_theta=500.0, sliding_window=6, pad_token_id=None, tie_word_embeddings=False)),
        # The second and the last layer have experts, whose weights are not divided by their sum.
        Case("qwen3_moe", sequence=17, seed=37, config=Qwen3MoeConfig(
            vocab_size=61, hidden_size=26, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, intermediate_size=34, moe_intermediate_size=10, num_experts=7, num_experts_per_tok=3,
            norm_topk_prob=False, decoder_sparse_step=2, max_position_embeddings=64, rope_theta=500.0,
            pad_token_id=None, tie_word_embeddings=False)),
        # The first and the third layer have them, and these weights are.
        Case("qwen3_moe_norm", sequence=16, seed=41, config=Qwen3MoeConfig(
            vocab_size=53, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
            head_dim=6, intermediate_size=30, moe_intermediate_size=14, num_experts=6, num_experts_per_tok=4,
            norm_topk_prob=True, mlp_only_layers=[1], attention_bias=True, max_position_embeddings=64,
            rope_theta=500.0, rope_scaling=dict(rope_type="linear", factor=2.0), pad_token_id=None,
            tie_word_embeddings=True)),
        # Half of a head rotates. The last two layers have sigmoid scores, three groups of experts, and two shared experts.
        Case("glm4_moe", sequence=18, seed=43, config=Glm4MoeConfig(
            vocab_size=67, hidden_size=28, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, intermediate_size=34, moe_intermediate_size=10, n_routed_experts=6, num_experts_per_tok=3,
            n_group=3, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.8, first_k_dense_replace=1,
            use_qk_norm=True, attention_bias=True, max_position_embeddings=64, rope_theta=500.0, pad_token_id=None)),
    ]


def make_batches(case):
    """Inputs and targets, int64[NUM_STEPS, BATCH, sequence] each.
    A token is (3 * previous + 1) mod vocabulary, or in one case of four a random token. One target in eight is ignored;
    so are the tail of every sample, of uneven length, and a whole sample at step 3.
    """
    shape = (NUM_STEPS, BATCH, case.sequence + 1)
    vocabulary = case.config.vocab_size
    branch, draw, ignored, _ = random_words("reference tokens", np.prod(shape), case.seed).reshape(4, *shape)
    stream = (draw * np.uint64(vocabulary) >> np.uint64(32)).astype(np.int64)
    for t in range(1, case.sequence + 1):
        stream[..., t] = np.where(branch[..., t] % 4 == 0, stream[..., t], (3 * stream[..., t - 1] + 1) % vocabulary)
    targets = stream[..., 1:].copy()
    tail = (ignored[..., :1] % np.uint64(case.sequence // 2)).astype(np.int64)
    targets[(ignored[..., 1:] % 8 == 0) | (np.arange(case.sequence) >= case.sequence - tail)] = IGNORED
    targets[3, -1] = IGNORED
    return stream[..., :-1].copy(), targets


# Parts of transformers' names that differ from Argosy's names, which are Meta's.
ARGOSY_PARTS = {"embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm", "self_attn": "attention",
                "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "post_attention_layernorm": "ffn_norm",
                "mlp": "feed_forward", "gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "lm_head": "output"}
# Those of models whose norms stand after the halves of a block.
POST_NORMS = {"post_attention_layernorm": "attention_post_norm", "pre_feedforward_layernorm": "ffn_pre_norm",
              "post_feedforward_layernorm": "ffn_post_norm"}


def argosy_parts(hf_name, config, has_post_norms):
    """Argosy's parameters in a tensor of transformers, and their rows there. Only names differ, but for Phi-3's fused matrices,
    and for experts, whose tensors are one parameter, one below the other: both keep the rows of wq and wk in the same order
    (rotary pairs i and i + half of what rotates)."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    fused = {"qkv_proj": [("wq", heads * head_dim), ("wk", kv_heads * head_dim), ("wv", kv_heads * head_dim)],
             "gate_up_proj": [("w1", config.intermediate_size), ("w3", config.intermediate_size)]}
    whole = next((part for part in fused if part in hf_name.split(".")), None)
    if whole is None:
        return [(argosy_name(hf_name, has_post_norms), slice(None))]
    parts, begin = [], 0
    for part, rows in fused[whole]:
        parts.append((argosy_name(hf_name.replace(whole, part), has_post_norms), slice(begin, begin + rows)))
        begin += rows
    return parts


def argosy_name(hf_name, has_post_norms):
    parts = ARGOSY_PARTS | (POST_NORMS if has_post_norms else {})
    hf_name = re.sub(r"\.(mlp|block_sparse_moe)\.experts\.\d+\.", ".moe.experts.", hf_name)
    hf_name = re.sub(r"\.(mlp|block_sparse_moe)\.gate\.", ".moe.router.", hf_name)
    hf_name = hf_name.replace(".mlp.shared_experts.", ".moe.shared_experts.")
    return ".".join(parts.get(part, part) for part in hf_name.removeprefix("model.").split("."))
