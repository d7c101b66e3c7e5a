// Architectures as data: a ModelSpec describes any model of the Llama family. Presets and Hugging Face's
// config.json are the two sources of a ModelSpec.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/router.h"

namespace argosy::model {

/// Rotary frequencies for a longer context, by the definitions of transformers. Linear divides every
/// frequency by `factor`. Llama3 and Yarn divide only the low frequencies, which turn few times within
/// `original_context`, and blend between low and high ones. Longrope divides each frequency by its own
/// factor: a long one if a sequence is longer than `original_context`. A member that the type does not use
/// has its default.
struct RopeScaling {
    enum class Type { Linear, Llama3, Yarn, Longrope };
    Type type = Type::Llama3;
    double factor = 8;
    double low_frequency_factor = 1, high_frequency_factor = 4;  // Llama3: turns at the ends of the blend
    int64_t original_context = 8192;
    double beta_slow = 1, beta_fast = 32;  // Yarn: turns at the ends of the blend
    bool truncate = true;                  // Yarn: the blend begins and ends at whole pairs of elements
    double attention_factor = 1;           // Yarn and Longrope: multiplies the rotated q and k
    std::vector<double> short_factors = {}, long_factors = {};  // Longrope: one for each rotary pair
    bool operator==(const RopeScaling&) const = default;
};

/// Where the norms of a block's halves stand: x + f(norm(x)), x + norm(f(x)), or one at both places.
enum class NormPlace { Before, After, Both };
/// RMSNorm of q and k before the rotation: of each head alone, or of all heads together.
enum class QkNorm { None, Heads, Together };

/// Experts in place of the MLP of some layers.
struct ExpertSpec {
    ops::Router router;
    int64_t hidden_dim = 0;                  // of each expert
    int64_t shared_hidden_dim = 0;           // of the expert that every token takes beside them; 0: none
    int64_t period = 1;                      // every so many layers, the last one has experts
    std::vector<int64_t> dense_layers = {};  // ascending; these have none even so
    bool operator==(const ExpertSpec&) const = default;
};

struct ModelSpec {
    std::string name;  // architecture: the name of a family (families.h)
    int64_t vocab_size = 0, dim = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0,
            hidden_dim = 0;
    double norm_eps = 1e-5, rope_theta = 500000;
    std::optional<RopeScaling> rope_scaling;
    int64_t rotary_dim = 0;        // so many first elements of a head rotate; 0: all
    bool tied_embeddings = false;  // the head's matrix is the embedding table
    bool qkv_bias = false;         // biases of wq, wk and wv
    bool output_bias = false;      // bias of wo
    bool mlp_bias = false;         // biases of w1, w2 and w3
    QkNorm qk_norm = QkNorm::None;
    NormPlace norms = NormPlace::Before;
    bool norms_add_one = false;                          // norms multiply by 1 + w
    ops::Activation activation = ops::Activation::Silu;  // of the gates
    std::optional<double> query_scalar;  // scores are divided by its root; none: by that of head_dim
    bool scaled_embeddings = false;  // the stream begins as the table's row times sqrt(dim), not with the row
    /// A token attends to at most so many tokens, the last of them itself; none: to all tokens before it.
    std::optional<int64_t> sliding_window;
    int64_t full_layer_period = 0;  // every so many layers, the last one has no window; 0: all have it
    /// The rotary base of layers with the window, whose frequencies are not scaled; none: layers rotate
    /// alike.
    std::optional<double> window_rope_theta;

    std::optional<ExpertSpec> experts;  // of one layer at least; none: all layers have one MLP

    /// Hugging Face's max_position_embeddings: the maximum sequence length that the weights support. No layer
    /// reads the value.
    int64_t max_context = 8192;
    bool operator==(const ModelSpec&) const = default;
};

/// What differs between the layers of a model.
struct LayerSpec {
    std::optional<int64_t> window;  // as ModelSpec::sliding_window
    bool rotates_as_windowed = false;
    bool has_experts = false;
    bool operator==(const LayerSpec&) const = default;
};
LayerSpec layer_spec(const ModelSpec& spec, int64_t layer);

/// Returns a preset. Throws UserError, which lists the known presets, if there is no such preset.
ModelSpec preset(const std::string& name, const std::string& flavor);

/// All presets, in the order of the message of preset().
struct NamedPreset {
    std::string name, flavor;
    ModelSpec spec;
};
std::vector<NamedPreset> presets();

/// The architecture of the presets called `name`, which is ModelSpec::name: llama3 for llama2 and tinyllama.
/// Other names are returned as they are.
std::string architecture_of(const std::string& name);

/// Hugging Face's model_type of an architecture. Other names are returned as they are.
std::string model_type_of(const std::string& architecture);

/// Keys of a config.json that this program does not know, and that the user declares to be without effect on
/// the model. The name of a key in an object is "rope_scaling.KEY".
struct AcceptedKeys {
    std::vector<std::string> names = {};
    bool all = false;  // for a text that this program wrote: its keys were accepted when they were read

    bool has(const std::string& key) const { return all || std::ranges::find(names, key) != names.end(); }
};

/// Whether `folder` has a config.json, which describes a model.
bool has_hugging_face_config(const std::string& folder);

/// Reads `folder`/config.json. Throws UserError, with file and key, if the file is missing or malformed, if
/// its architecture is unsupported, if a value is impossible, or if it has an unknown key that is not
/// accepted.
ModelSpec read_hugging_face_config(const std::string& folder, const AcceptedKeys& accepted = {});

/// Parses the text of a config.json; `path` names the file in messages. Throws UserError like
/// read_hugging_face_config().
ModelSpec parse_hugging_face_config(const std::string& text, const std::string& path,
                                    const AcceptedKeys& accepted = {});

/// Returns the text of a config.json that reads back as `spec`. The text has the keys of current and of older
/// versions of transformers, and `dtype` ("float32", "bfloat16", "float16") unless `dtype` is empty. Throws
/// UserError if no architecture of Hugging Face fits the model.
std::string hugging_face_config(const ModelSpec& spec, const std::string& dtype = "");

/// Returns a line "key: value of a against value of b" for each difference. max_context is not compared. An
/// empty list means that `a` and `b` are the same model.
std::vector<std::string> differences(const ModelSpec& a, const ModelSpec& b);

/// The elements of a head that rotate.
inline int64_t rotary_dim(const ModelSpec& spec) {
    return spec.rotary_dim > 0 ? spec.rotary_dim : spec.head_dim;
}
/// Returns the radians per position for each rotary pair, scaled by rope_scaling. `max_seq_len` decides
/// between the factors of Longrope.
std::vector<double> rope_frequencies(const ModelSpec& spec, int64_t max_seq_len = 0);
/// The same of the layers with the window. REQUIRES: window_rope_theta.
std::vector<double> window_rope_frequencies(const ModelSpec& spec);

}  // namespace argosy::model
