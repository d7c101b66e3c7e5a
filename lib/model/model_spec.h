// Architectures as data: a ModelSpec describes any model of the Llama family. Presets and Hugging Face's
// config.json are the two sources of a ModelSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace argosy::model {

/// Llama 3 divides the low rotary frequencies by `factor`, for contexts longer than `original_context`.
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

    /// Hugging Face's max_position_embeddings: the maximum sequence length that the weights support. No layer
    /// reads the value.
    int64_t max_context = 8192;
    bool operator==(const ModelSpec&) const = default;
};

/// Returns a preset. Throws UserError, which lists the known presets, if there is no such preset.
ModelSpec preset(const std::string& name, const std::string& flavor);

/// Reads `folder`/config.json. Throws UserError if the file is missing or malformed, or if its architecture
/// is unsupported.
ModelSpec read_hugging_face_config(const std::string& folder);

/// Parses the text of a config.json; `path` names the file in messages. Throws UserError like
/// read_hugging_face_config().
ModelSpec parse_hugging_face_config(const std::string& text, const std::string& path);

/// Returns the text of a config.json that reads back as `spec`. The text has the keys of current and of older
/// versions of transformers, and `dtype` ("float32", "bfloat16", "float16") unless `dtype` is empty. Throws
/// UserError if no architecture of Hugging Face fits the model.
std::string hugging_face_config(const ModelSpec& spec, const std::string& dtype = "");

/// Throws UserError for impossible sizes (num_kv_heads that does not divide num_heads, odd head_dim, ...).
void validate(const ModelSpec& spec);

/// Returns a line "key: value of a against value of b" for each difference. max_context is not compared. An
/// empty list means that `a` and `b` are the same model.
std::vector<std::string> differences(const ModelSpec& a, const ModelSpec& b);

/// Returns the radians per position for each of the head_dim / 2 rotary pairs.
std::vector<double> rope_frequencies(const ModelSpec& spec);

}  // namespace argosy::model
