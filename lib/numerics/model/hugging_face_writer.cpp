// Converts a ModelSpec to Hugging Face's config.json, with the older and the newer form of rotary settings.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "model/families.h"
#include "model/hugging_face_fields.h"

namespace argosy::model {
namespace {

using nlohmann::json;

const Family& family_of(const ModelSpec& spec) {
    const auto family = std::ranges::find(kFamilies, spec.name, &Family::name);
    if (family != std::end(kFamilies)) return *family;
    throw UserError("Hugging Face has no architecture that is called '{}' here", spec.name);
}

json scaling_json(const ModelSpec& spec) {
    if (!spec.rope_scaling) return nullptr;
    const RopeScaling& scaling = *spec.rope_scaling;
    switch (scaling.type) {
        case RopeScaling::Type::Linear:
            return {{"rope_type", "linear"}, {"factor", scaling.factor}};
        case RopeScaling::Type::Llama3:
            return {{"rope_type", "llama3"},
                    {"factor", scaling.factor},
                    {"low_freq_factor", scaling.low_frequency_factor},
                    {"high_freq_factor", scaling.high_frequency_factor},
                    {"original_max_position_embeddings", scaling.original_context}};
        case RopeScaling::Type::Yarn:
            return {{"rope_type", "yarn"},
                    {"factor", scaling.factor},
                    {"original_max_position_embeddings", scaling.original_context},
                    {"beta_fast", scaling.beta_fast},
                    {"beta_slow", scaling.beta_slow},
                    {"truncate", scaling.truncate},
                    {"attention_factor", scaling.attention_factor}};
        case RopeScaling::Type::Longrope:
            return {{"rope_type", "longrope"},
                    {"short_factor", scaling.short_factors},
                    {"long_factor", scaling.long_factors},
                    {"original_max_position_embeddings", scaling.original_context}};
    }
    return nullptr;
}

void write_rotated_share(const ModelSpec& spec, json& config) {
    const auto head_dim = static_cast<double>(spec.head_dim);
    const int64_t rotated = rotary_dim(spec);
    double share = static_cast<double>(rotated) / head_dim;
    if (static_cast<int64_t>(head_dim * share) < rotated) share = std::nextafter(share, 1);
    config["partial_rotary_factor"] = config["rope_parameters"]["partial_rotary_factor"] = share;
}

/// transformers 4 reads exactly these three keys of Longrope.
void write_longrope(const ModelSpec& spec, json& config) {
    if (spec.head_dim * spec.num_heads != spec.dim) {
        throw UserError(
            "transformers has longrope only for heads of hidden_size / num_attention_heads elements, "
            "not of {}",
            spec.head_dim);
    }
    const RopeScaling& scaling = *spec.rope_scaling;
    config["original_max_position_embeddings"] = scaling.original_context;
    config["rope_scaling"] = {
        {"type", "longrope"}, {"short_factor", scaling.short_factors}, {"long_factor", scaling.long_factors}};
}

void write_rope(const ModelSpec& spec, const Family& family, json& config) {
    config["rope_theta"] = spec.rope_theta;
    config["rope_scaling"] = scaling_json(spec);
    // transformers 4 reads exactly these two keys of OLMo 2.
    if (spec.name == "olmo2" && spec.rope_scaling)
        config["rope_scaling"] = {{"type", "linear"}, {"factor", spec.rope_scaling->factor}};
    config["rope_parameters"] = spec.rope_scaling ? scaling_json(spec) : json{{"rope_type", "default"}};
    config["rope_parameters"]["rope_theta"] = spec.rope_theta;
    if (family.rotated_share) write_rotated_share(spec, config);
    if (family.is_phi && spec.rope_scaling) write_longrope(spec, config);
    if (!family.is_gemma) return;
    const double base = spec.window_rope_theta.value_or(spec.rope_theta);
    config["rope_local_base_freq"] = base;
    config["rope_parameters"] = {{kFull, config["rope_parameters"]},
                                 {kWindowed, {{"rope_type", "default"}, {"rope_theta", base}}}};
}

void write_layers(const ModelSpec& spec, const Family& family, json& config) {
    if (family.is_gemma) {
        config["hidden_activation"] = "gelu_pytorch_tanh";
        config["query_pre_attn_scalar"] = spec.query_scalar.value_or(spec.head_dim);
        // The first versions of transformers with Gemma 3 know this key and no types of layers.
        const bool all_windowed = spec.full_layer_period == 0;
        config["sliding_window_pattern"] = all_windowed ? spec.num_layers + 1 : spec.full_layer_period;
    } else {
        config["hidden_act"] = "silu";
    }
    if (spec.name == "qwen2") config["use_sliding_window"] = false;
    if (family.experts == ExpertKeys::Glm) config["use_qk_norm"] = spec.qk_norm != QkNorm::None;
    if (family.qkv_bias == Has::Perhaps) config["attention_bias"] = spec.qkv_bias;
    if (family.mlp_bias == Has::Perhaps) config["mlp_bias"] = spec.mlp_bias;
    if (family.window == Has::Never) return;
    config["sliding_window"] = spec.sliding_window ? json(*spec.sliding_window) : json(nullptr);
    if (family.full_layer_period == 0) return;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        config["layer_types"].push_back(layer_spec(spec, layer).window ? kWindowed : kFull);
}

void write_glm_experts(const ModelSpec& spec, json& config) {
    if (!spec.experts) {
        config["first_k_dense_replace"] = spec.num_layers;
        return;
    }
    const ExpertSpec& experts = *spec.experts;
    const ops::Router& router = experts.router;
    config["n_routed_experts"] = router.num_experts;
    config["num_experts_per_tok"] = router.top_k;
    config["moe_intermediate_size"] = experts.hidden_dim;
    config["n_shared_experts"] = std::max<int64_t>(1, experts.shared_hidden_dim / experts.hidden_dim);
    config["first_k_dense_replace"] = experts.dense_layers.size();
    config["num_nextn_predict_layers"] = 0;
    config["norm_topk_prob"] = router.normalize;
    config["routed_scaling_factor"] = router.scale;
    config["n_group"] = router.num_groups;
    config["topk_group"] = router.top_groups;
}

void write_experts(const ModelSpec& spec, const Family& family, json& config) {
    if (family.experts == ExpertKeys::None) return;
    if (family.experts == ExpertKeys::Glm) return write_glm_experts(spec, config);
    const ExpertSpec experts = spec.experts.value_or(ExpertSpec{});
    config[num_experts_key(family)] = experts.router.num_experts;
    if (!spec.experts) return;
    config["num_experts_per_tok"] = experts.router.top_k;
    if (family.experts == ExpertKeys::Mixtral) return;
    config["moe_intermediate_size"] = experts.hidden_dim;
    config["norm_topk_prob"] = experts.router.normalize;
    config["decoder_sparse_step"] = experts.period;
    config["mlp_only_layers"] = experts.dense_layers;
}

}  // namespace

std::string hugging_face_config(const ModelSpec& spec, const std::string& dtype) {
    const Family& family = family_of(spec);
    json config = {{"architectures", {family.architecture}},
                   {"model_type", family.model_type},
                   {"vocab_size", spec.vocab_size},
                   {"hidden_size", spec.dim},
                   {"num_hidden_layers", spec.num_layers},
                   {"num_attention_heads", spec.num_heads},
                   {"num_key_value_heads", spec.num_kv_heads},
                   {"head_dim", spec.head_dim},
                   {"intermediate_size", spec.hidden_dim},
                   {"rms_norm_eps", spec.norm_eps},
                   {"tie_word_embeddings", spec.tied_embeddings},
                   {"max_position_embeddings", spec.max_context},
                   {"attention_dropout", 0.0},
                   {"initializer_range", 0.02},
                   {"use_cache", true},
                   // Without these keys, older versions of transformers use the tokens 1 and 2, which have
                   // other meanings in this vocabulary.
                   {"bos_token_id", nullptr},
                   {"eos_token_id", nullptr},
                   // The embedding of a padding token gets no gradient there, and families have defaults.
                   {"pad_token_id", nullptr}};
    write_layers(spec, family, config);
    write_experts(spec, family, config);
    write_rope(spec, family, config);
    if (!dtype.empty()) config["dtype"] = config["torch_dtype"] = dtype;
    const std::string text = config.dump(2) + "\n";
    // A setting that no model of the family has is not in the text, or cannot be read.
    const ModelSpec read = parse_hugging_face_config(text, "the description of the model");
    if (read == spec) return text;
    throw UserError("Hugging Face's {} has no such model: {}", family.architecture,
                    fmt::join(differences(read, spec), ", "));
}

}  // namespace argosy::model
