"""Random small models of every family, for a comparison with transformers beyond the recorded cases."""

import random

from transformers import (Gemma3TextConfig, Glm4MoeConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, Olmo3Config, Phi3Config,
                          Qwen2Config, Qwen3Config, Qwen3MoeConfig)

from cases import Case


def random_rope(draw, long_context):
    kinds = [None, dict(rope_type="linear", factor=draw.choice([1.5, 2.0, 4.0]))]
    if long_context:
        kinds += [dict(rope_type="llama3", factor=draw.choice([2.0, 8.0]), low_freq_factor=1.0, high_freq_factor=4.0,
                       original_max_position_embeddings=draw.randint(8, 64)),
                  dict(rope_type="yarn", factor=draw.choice([2.0, 4.0]), original_max_position_embeddings=draw.randint(8, 64),
                       beta_fast=draw.choice([4.0, 32.0]), beta_slow=draw.choice([0.5, 1.0]))]
    return draw.choice(kinds)


def layer_types(draw, num_layers):
    period = draw.randint(2, 4)
    return ["full_attention" if (layer + 1) % period == 0 else "sliding_attention" for layer in range(num_layers)]


def random_experts(draw, count):
    return {count: draw.randint(4, 9), "num_experts_per_tok": draw.randint(1, 4)}


def random_groups(draw):
    groups, size = draw.randint(1, 4), draw.randint(2, 4)
    taken = draw.randint(1, groups)
    return {"n_routed_experts": groups * size, "n_group": groups, "topk_group": taken,
            "num_experts_per_tok": draw.randint(1, taken * size)}


def random_config(draw):
    kv_heads, head_dim = draw.randint(1, 3), 2 * draw.randint(2, 8)
    heads = kv_heads * draw.randint(1, 4)
    layers, window = draw.randint(1, 5), draw.randint(2, 20)  # in a window of one all gradients of q and k are 0
    common = dict(vocab_size=draw.randint(20, 150), hidden_size=heads * head_dim, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=draw.randint(5, 90),
                  max_position_embeddings=512, rms_norm_eps=draw.choice([1e-6, 1e-5]),
                  rope_theta=draw.choice([300.0, 10000.0]), tie_word_embeddings=draw.random() < 0.5, pad_token_id=None)
    bias, own_head_dim = draw.random() < 0.3, 2 * draw.randint(2, 8)
    scaled = dict(common, rope_scaling=random_rope(draw, long_context=True))
    olmo2 = random_rope(draw, long_context=False)
    if olmo2 is not None:
        olmo2["type"] = olmo2.pop("rope_type")
    rotated = 2 * draw.randint(1, head_dim // 2)
    longrope = dict(type="longrope", short_factor=[draw.uniform(1, 2) for _ in range(rotated // 2)],
                    long_factor=[draw.uniform(1, 5) for _ in range(rotated // 2)])
    return draw.choice([
        lambda: LlamaConfig(**scaled, attention_bias=bias, mlp_bias=draw.random() < 0.3),
        lambda: MistralConfig(**scaled, head_dim=own_head_dim, sliding_window=draw.choice([None, window])),
        lambda: Qwen2Config(**scaled),
        lambda: Qwen3Config(**scaled, head_dim=own_head_dim, attention_bias=bias),
        lambda: Phi3Config(**common, partial_rotary_factor=rotated / head_dim, rope_scaling=draw.choice([None, longrope]),
                           original_max_position_embeddings=draw.randint(8, 64), sliding_window=draw.choice([None, window])),
        lambda: Olmo2Config(**common, rope_scaling=olmo2, attention_bias=bias),
        lambda: Olmo3Config(**scaled, attention_bias=bias, sliding_window=window, layer_types=layer_types(draw, layers)),
        lambda: Gemma3TextConfig(**scaled, head_dim=own_head_dim, attention_bias=bias, sliding_window=window,
                                 layer_types=layer_types(draw, layers), rope_local_base_freq=draw.choice([100.0, 5000.0]),
                                 query_pre_attn_scalar=draw.choice([own_head_dim, 11])),
        lambda: MixtralConfig(**scaled, **random_experts(draw, "num_local_experts"), head_dim=own_head_dim,
                              sliding_window=draw.choice([None, window])),
        lambda: Qwen3MoeConfig(**scaled, **random_experts(draw, "num_experts"), head_dim=own_head_dim, attention_bias=bias,
                               moe_intermediate_size=draw.randint(5, 30), norm_topk_prob=draw.random() < 0.5,
                               decoder_sparse_step=draw.randint(1, 2),
                               mlp_only_layers=sorted(draw.sample(range(layers), draw.randint(0, layers // 2)))),
        lambda: Glm4MoeConfig(**scaled, **random_groups(draw), head_dim=own_head_dim, attention_bias=bias,
                              partial_rotary_factor=2 * draw.randint(1, own_head_dim // 2) / own_head_dim,
                              moe_intermediate_size=draw.randint(5, 30), norm_topk_prob=draw.random() < 0.5,
                              n_shared_experts=draw.randint(1, 3), routed_scaling_factor=draw.choice([1.0, 2.5]),
                              first_k_dense_replace=draw.randint(0, layers), use_qk_norm=draw.random() < 0.5)])()


def random_cases(count, seed):
    draw = random.Random(seed)
    for number in range(count):
        config = random_config(draw)
        yield Case(f"{config.model_type}_{number}", sequence=draw.randint(4, 40), seed=draw.randrange(2**40), config=config)
