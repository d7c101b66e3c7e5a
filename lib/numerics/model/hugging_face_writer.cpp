// Converts a ModelSpec to Hugging Face's config.json, with the older and the newer form of rotary settings.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "model/families.h"
#include "model/hugging_face_fields.h"

namespace argosy::model {
namespace {

using nlohmann::json;

bool fits(bool value, Has has) { return has == Has::Perhaps || value == (has == Has::Always); }

/// The first setting of the model that no model of the family has; empty: none.
std::string other_setting(const ModelSpec& spec, const Family& family) {
    const bool one_key = family.output_bias == Has::Perhaps;
    const bool of_layers = family.full_layer_period > 0;
    if (!fits(spec.qkv_bias, family.qkv_bias)) return fmt::format("qkv_bias {}", spec.qkv_bias);
    if (!fits(spec.output_bias, family.output_bias) || (one_key && spec.output_bias != spec.qkv_bias))
        return fmt::format("qkv_bias {} and output_bias {}", spec.qkv_bias, spec.output_bias);
    if (!fits(spec.mlp_bias, family.mlp_bias)) return fmt::format("mlp_bias {}", spec.mlp_bias);
    if (spec.qk_norm != family.qk_norm) return "these norms of q and k";
    if (spec.norms != family.norms) return "norms at this place";
    if (spec.sliding_window && family.window == Has::Never) return "a sliding_window";
    if (spec.full_layer_period > 0 && !of_layers) return "layers without the window among others with it";
    if (spec.window_rope_theta != window_rope_theta_of(spec, spec.window_rope_theta.value_or(0)))
        return "this window_rope_theta";
    const bool gemma = spec.norms_add_one && spec.scaled_embeddings && spec.query_scalar &&
                       spec.activation == ops::Activation::GeluTanh;
    const bool like_others = !spec.norms_add_one && !spec.scaled_embeddings && !spec.query_scalar &&
                             spec.activation == ops::Activation::Silu;
    if (family.is_gemma ? !gemma : !like_others)
        return "these norms_add_one, scaled_embeddings, query_scalar and activation";
    if (spec.name == "olmo2" && spec.rope_scaling && spec.rope_scaling->type != RopeScaling::Type::Linear)
        return "scaled frequencies of another type than linear";
    return "";
}

const Family& family_of(const ModelSpec& spec) {
    const auto family = std::ranges::find(kFamilies, spec.name, &Family::name);
    if (family == std::end(kFamilies))
        throw UserError("Hugging Face has no architecture that is called '{}' here", spec.name);
    const std::string other = other_setting(spec, *family);
    if (other.empty()) return *family;
    throw UserError("Hugging Face's {} has no models with {}", family->architecture, other);
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
    }
    return nullptr;
}

void write_rope(const ModelSpec& spec, bool of_gemma, json& config) {
    config["rope_theta"] = spec.rope_theta;
    config["rope_scaling"] = scaling_json(spec);
    // transformers 4 reads exactly two keys of OLMo 2.
    if (spec.name == "olmo2" && spec.rope_scaling)
        config["rope_scaling"] = {{"type", "linear"}, {"factor", spec.rope_scaling->factor}};
    config["rope_parameters"] = spec.rope_scaling ? scaling_json(spec) : json{{"rope_type", "default"}};
    config["rope_parameters"]["rope_theta"] = spec.rope_theta;
    if (!of_gemma) return;
    const double base = spec.window_rope_theta.value_or(spec.rope_theta);
    config["rope_local_base_freq"] = base;
    config["rope_parameters"] = {{kFull, config["rope_parameters"]},
                                 {kWindowed, {{"rope_type", "default"}, {"rope_theta", base}}}};
}

void write_layers(const ModelSpec& spec, const Family& family, json& config) {
    if (family.is_gemma) {
        config["hidden_activation"] = "gelu_pytorch_tanh";
        config["query_pre_attn_scalar"] = *spec.query_scalar;
    } else {
        config["hidden_act"] = "silu";
    }
    if (spec.name == "qwen2") config["use_sliding_window"] = false;
    if (family.qkv_bias == Has::Perhaps) config["attention_bias"] = spec.qkv_bias;
    if (family.mlp_bias == Has::Perhaps) config["mlp_bias"] = spec.mlp_bias;
    if (family.window == Has::Never) return;
    config["sliding_window"] = spec.sliding_window ? json(*spec.sliding_window) : json(nullptr);
    if (family.full_layer_period == 0) return;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        config["layer_types"].push_back(layer_spec(spec, layer).window ? kWindowed : kFull);
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
                   {"eos_token_id", nullptr}};
    write_layers(spec, family, config);
    write_rope(spec, family.is_gemma, config);
    if (!dtype.empty()) config["dtype"] = config["torch_dtype"] = dtype;
    return config.dump(2) + "\n";
}

}  // namespace argosy::model
