// The families of models as Hugging Face's config.json names them: what their models have, and transformers'
// defaults for keys that a file may leave out. Only the sources that read and write the file use this header.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "model/model_spec.h"

namespace argosy::model {

/// Which models of a family have something.
enum class Has {
    Never,
    Always,  // config.json has no key for it
    Perhaps,
};

/// Whose keys say what experts there are: all layers of Mixtral have them, Qwen's choose layers, GLM's all
/// but the first ones, with sigmoid scores, groups and a shared expert.
enum class ExpertKeys { None, Mixtral, Qwen, Glm };

struct Family {
    const char *name, *model_type, *architecture;
    const char* other_keys = "";  // keys of the family's configuration that not every family has
    Has qkv_bias = Has::Perhaps, output_bias = Has::Perhaps;  // one key for both
    Has mlp_bias = Has::Never, window = Has::Never;
    QkNorm qk_norm = QkNorm::None;
    NormPlace norms = NormPlace::Before;
    bool is_gemma = false;          // the settings that no other family has
    bool is_phi = false;            // likewise: Longrope
    int64_t full_layer_period = 0;  // of a model with the window; above 0: the file may list types of layers
    ExpertKeys experts = ExpertKeys::None;
    // Defaults.
    int64_t max_context = 2048;
    int64_t num_kv_heads = 0;  // if the key is missing; null, or a 0 here: as many as query heads
    int64_t head_dim = 0;      // 0: the width divided by the number of heads
    std::optional<double> rotated_share = {};  // of a head; none: always all of it
    double norm_eps = 1e-6, rope_theta = 10000;
    bool tied_embeddings = false;
    std::optional<int64_t> sliding_window = 4096;
};
inline constexpr const char* kQwenKeys = " sliding_window max_window_layers use_sliding_window";
inline constexpr Family kFamilies[] = {
    {.name = "llama3",
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .other_keys = " pretraining_tp",
     .mlp_bias = Has::Perhaps},
    {.name = "mistral",
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .other_keys = " sliding_window",
     .qkv_bias = Has::Never,
     .output_bias = Has::Never,
     .window = Has::Perhaps,
     .max_context = 131072,
     .num_kv_heads = 8},
    {.name = "qwen2",
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .other_keys = kQwenKeys,
     .qkv_bias = Has::Always,
     .output_bias = Has::Never,
     .max_context = 32768,
     .num_kv_heads = 32},
    {.name = "qwen3",
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .other_keys = kQwenKeys,
     .qk_norm = QkNorm::Heads,
     .max_context = 32768,
     .num_kv_heads = 32,
     .head_dim = 128},
    {.name = "olmo2",
     .model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .qk_norm = QkNorm::Together,
     .norms = NormPlace::After,
     .norm_eps = 1e-5},
    {.name = "olmo3",
     .model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .other_keys = " sliding_window",
     .window = Has::Always,
     .qk_norm = QkNorm::Together,
     .norms = NormPlace::After,
     .full_layer_period = 4,
     .norm_eps = 1e-5},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .other_keys = " attn_logit_softcapping final_logit_softcapping hidden_activation query_pre_attn_scalar "
                   "rope_local_base_freq sliding_window sliding_window_pattern _sliding_window_pattern "
                   "use_bidirectional_attention",
     .window = Has::Always,
     .qk_norm = QkNorm::Heads,
     .norms = NormPlace::Both,
     .is_gemma = true,
     .full_layer_period = 6,
     .max_context = 131072,
     .num_kv_heads = 4,
     .head_dim = 256,
     .rope_theta = 1e6,
     .tied_embeddings = true},
    {.name = "phi3",
     .model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .other_keys = " embd_pdrop original_max_position_embeddings resid_pdrop sliding_window",
     .qkv_bias = Has::Never,
     .output_bias = Has::Never,
     .window = Has::Perhaps,
     .is_phi = true,
     .max_context = 4096,
     .rotated_share = 1,
     .norm_eps = 1e-5,
     .sliding_window = std::nullopt},
    {.name = "mixtral",
     .model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .other_keys = " num_experts_per_tok output_router_logits router_aux_loss_coef router_jitter_noise "
                   "sliding_window",
     .qkv_bias = Has::Never,
     .output_bias = Has::Never,
     .window = Has::Perhaps,
     .experts = ExpertKeys::Mixtral,
     .max_context = 131072,
     .num_kv_heads = 8,
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .sliding_window = std::nullopt},
    {.name = "qwen3_moe",
     .model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .other_keys = " decoder_sparse_step max_window_layers mlp_only_layers moe_intermediate_size "
                   "norm_topk_prob num_experts_per_tok output_router_logits router_aux_loss_coef "
                   "sliding_window",
     .qk_norm = QkNorm::Heads,
     .experts = ExpertKeys::Qwen,
     .max_context = 32768,
     .num_kv_heads = 4},
    {.name = "glm4_moe",
     .model_type = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .other_keys = " first_k_dense_replace moe_intermediate_size n_group n_shared_experts norm_topk_prob "
                   "num_experts_per_tok num_nextn_predict_layers routed_scaling_factor topk_group "
                   "use_qk_norm",
     .output_bias = Has::Never,
     .experts = ExpertKeys::Glm,
     .max_context = 131072,
     .num_kv_heads = 8,
     .rotated_share = 0.5,
     .norm_eps = 1e-5},
};

/// A model of the family with its settings and defaults, without sizes.
inline ModelSpec model_of(const Family& family) {
    ModelSpec spec{.name = family.name};
    spec.max_context = family.max_context;
    spec.norm_eps = family.norm_eps;
    spec.rope_theta = family.rope_theta;
    spec.tied_embeddings = family.tied_embeddings;
    spec.qkv_bias = family.qkv_bias == Has::Always;
    spec.qk_norm = family.qk_norm;
    spec.norms = family.norms;
    if (!family.is_gemma) return spec;
    spec.norms_add_one = spec.scaled_embeddings = true;
    spec.activation = ops::Activation::GeluTanh;
    spec.query_scalar = 256;
    return spec;
}

/// The key of the number of experts. REQUIRES: the family has experts.
inline const char* num_experts_key(const Family& family) {
    if (family.experts == ExpertKeys::Glm) return "n_routed_experts";
    return family.experts == ExpertKeys::Qwen ? "num_experts" : "num_local_experts";
}

/// transformers' rule for the attention factor of Longrope.
inline double longrope_attention_factor(int64_t max_context, int64_t original_context) {
    const auto original = static_cast<double>(original_context);
    const double factor = static_cast<double>(max_context) / original;
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

inline constexpr double kGemmaWindowBase = 10000;  // the default

/// The rotary base of layers with the window. OLMo 3 scales the frequencies of its other layers only;
/// `own_base` is that of Gemma 3.
inline std::optional<double> window_rope_theta_of(const ModelSpec& spec, double own_base) {
    if (!spec.sliding_window) return std::nullopt;
    if (spec.name == "gemma3") return own_base;
    return spec.name == "olmo3" && spec.rope_scaling ? std::optional(spec.rope_theta) : std::nullopt;
}

}  // namespace argosy::model
