// Converts a ModelSpec to Hugging Face's config.json, with the older and the newer form of rotary settings.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "model/families.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::json;

/// Whether the architecture that has the model's name has these parts.
bool has_architecture(const ModelSpec& spec) {
    const bool alike = spec.qkv_bias == spec.output_bias;
    if (spec.name == "mistral") return !spec.qkv_bias && !spec.output_bias && !spec.mlp_bias && !spec.qk_norm;
    if (spec.sliding_window) return false;
    if (spec.name == "llama3") return alike && !spec.qk_norm;
    if (spec.name == "qwen2") return spec.qkv_bias && !spec.output_bias && !spec.mlp_bias && !spec.qk_norm;
    return alike && !spec.mlp_bias && spec.qk_norm;  // qwen3
}

const Family& family_of(const ModelSpec& spec) {
    const auto family = std::ranges::find(kFamilies, spec.name, &Family::name);
    if (family != std::end(kFamilies) && has_architecture(spec)) return *family;
    throw UserError(
        "Hugging Face has no architecture for a model '{}' with qkv_bias {}, output_bias {}, mlp_bias {}, "
        "qk_norm {}, sliding_window {}; llama3 has qkv_bias and output_bias or neither, and no qk_norm; "
        "qwen2 has qkv_bias alone; qwen3 has qk_norm, qkv_bias and output_bias or neither, and no mlp_bias; "
        "mistral has no biases and no qk_norm, and alone a sliding_window",
        spec.name, spec.qkv_bias, spec.output_bias, spec.mlp_bias, spec.qk_norm,
        spec.sliding_window ? "set" : "none");
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

void write_rope(const ModelSpec& spec, json& config) {
    config["rope_theta"] = spec.rope_theta;
    config["rope_scaling"] = scaling_json(spec);
    config["rope_parameters"] = spec.rope_scaling ? scaling_json(spec) : json{{"rope_type", "default"}};
    config["rope_parameters"]["rope_theta"] = spec.rope_theta;
}

void write_family(const ModelSpec& spec, json& config) {
    if (spec.name == "qwen2") {
        config["use_sliding_window"] = false;  // qwen2 always has biases: config.json has no key for them
    } else if (spec.name == "mistral") {
        config["sliding_window"] = spec.sliding_window ? json(*spec.sliding_window) : json(nullptr);
    } else {
        config["attention_bias"] = spec.qkv_bias;
    }
    if (spec.name == "llama3") config["mlp_bias"] = spec.mlp_bias;
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
                   {"hidden_act", "silu"},
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
    write_family(spec, config);
    write_rope(spec, config);
    if (!dtype.empty()) config["dtype"] = config["torch_dtype"] = dtype;
    return config.dump(2) + "\n";
}

}  // namespace argosy::model
