// Architectures as data: every model of the Llama family is a ModelSpec. The presets and Hugging Face's
// config.json are two ways to get one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace argosy::model {

/// Llama 3's stretching of the low rotary frequencies for contexts longer than `original_context`.
struct RopeScaling {
    double factor = 8, low_frequency_factor = 1, high_frequency_factor = 4;
    int64_t original_context = 8192;
    bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
    std::string name;  // family: llama3, qwen2, qwen3
    int64_t vocab_size = 0, dim = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0,
            hidden_dim = 0;
    double norm_eps = 1e-5, rope_theta = 500000;
    std::optional<RopeScaling> rope_scaling;
    bool tied_embeddings = false;  // the head's matrix is the embedding table
    bool qkv_bias = false;
    bool qk_norm = false;  // RMSNorm over each head of q and k before the rotation

    /// max_position_embeddings: the most tokens at once that the weights are for. Nothing is computed from
    /// it.
    int64_t max_context = 8192;
    bool operator==(const ModelSpec&) const = default;
};

/// Throws UserError, naming the known ones, when there is no such preset.
ModelSpec preset(const std::string& name, const std::string& flavor);

/// Throws UserError when `folder`/config.json is missing, malformed or of an architecture that is not
/// supported.
ModelSpec read_hugging_face_config(const std::string& folder);

/// The same of the file's text; `place` is for messages.
ModelSpec parse_hugging_face_config(const std::string& text, const std::string& place);

/// The text of a config.json that reads back as `spec`, with the keys of today's transformers and of older
/// ones; `dtype` ("float32", "bfloat16", "float16") is named where it is given. UserError for a model that
/// Hugging Face has no architecture for.
std::string hugging_face_config(const ModelSpec& spec, const std::string& dtype = "");

/// Sizes that no model can have (heads that do not divide, odd head_dim, ...) throw UserError.
void validate(const ModelSpec& spec);

/// What differs, one "key: a against b" each; empty when the two are the same model, be it for other
/// contexts.
std::vector<std::string> differences(const ModelSpec& a, const ModelSpec& b);

/// Radians per position of each of the head_dim / 2 rotary pairs.
std::vector<double> rope_frequencies(const ModelSpec& spec);

}  // namespace argosy::model
