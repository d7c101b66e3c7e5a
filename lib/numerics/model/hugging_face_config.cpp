// Converts Hugging Face's config.json to a ModelSpec and back. Rotary settings have an older form
// (rope_theta, rope_scaling) and a newer form (rope_parameters): the reader accepts both, and the writer
// writes both. An unsupported setting, and a key that the reader does not know, are errors; they are never
// ignored.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "model/config_reader.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::json;
using Reader = ConfigReader;

// The limits are far above any real model, and keep the number of parameters within an int64_t.
constexpr int64_t kMaxLayers = 1 << 16, kMaxWidth = 1 << 20, kMaxTokens = 1 << 30;

/// transformers' default: the paper's value, or the quotient of two such values if both weights are given.
double default_attention_factor(const Reader& rope, double factor) {
    const double numerator = rope.get<double>("mscale", 0),
                 denominator = rope.get<double>("mscale_all_dim", 0);
    const auto with_weight = [&](double weight) {
        return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
    };
    if (numerator == 0 || denominator == 0) return with_weight(1);
    const double quotient = with_weight(numerator) / with_weight(denominator);
    if (!(quotient > 0) || !std::isfinite(quotient)) {
        rope.refuse("mscale",
                    fmt::format("and the attention factor would be {}; it must be above 0", quotient));
    }
    return quotient;
}

RopeScaling read_yarn(const Reader& rope, int64_t max_context) {
    RopeScaling scaling{.type = RopeScaling::Type::Yarn, .factor = rope.above(0, "factor")};
    scaling.original_context = rope.size("original_max_position_embeddings", kMaxTokens, max_context);
    scaling.beta_slow = rope.above(0, "beta_slow", scaling.beta_slow);
    scaling.beta_fast = rope.above(0, "beta_fast", scaling.beta_fast);
    if (scaling.beta_fast < scaling.beta_slow) {
        throw UserError("{}: \"beta_fast\" is {} and \"beta_slow\" is {}; beta_fast must not be smaller",
                        rope.where(), scaling.beta_fast, scaling.beta_slow);
    }
    scaling.truncate = rope.get<bool>("truncate", scaling.truncate);
    const double otherwise = default_attention_factor(rope, scaling.factor);
    scaling.attention_factor = rope.above(0, "attention_factor", otherwise);
    return scaling;
}

RopeScaling read_llama3(const Reader& rope) {
    RopeScaling scaling{.type = RopeScaling::Type::Llama3,
                        .factor = rope.above(0, "factor"),
                        .low_frequency_factor = rope.above(0, "low_freq_factor"),
                        .high_frequency_factor = rope.above(0, "high_freq_factor"),
                        .original_context = rope.size("original_max_position_embeddings", kMaxTokens)};
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
        rope.refuse("high_freq_factor",
                    fmt::format("which is not above \"low_freq_factor\", {}", scaling.low_frequency_factor));
    }
    return scaling;
}

std::optional<RopeScaling> read_scaling(const Reader& rope, int64_t max_context) {
    const char* key = rope.has("rope_type") ? "rope_type" : "type";  // "type" is the older name
    const auto type = rope.get<std::string>(key, "default");
    rope.require("type", type);
    if (type == "default") return std::nullopt;
    if (type == "linear") {
        return RopeScaling{.type = RopeScaling::Type::Linear, .factor = rope.above(0, "factor")};
    }
    if (type == "llama3") return read_llama3(rope);
    if (type == "yarn") return read_yarn(rope, max_context);
    rope.refuse(key, "but only default, linear, llama3 and yarn are supported");
}

/// Reads one of the objects with rotary settings. `theta_is_given` says whether rope_theta has a value that
/// the object must agree with.
void read_rope_object(const Reader& rope, const AcceptedKeys& accepted, bool& theta_is_given,
                      ModelSpec& spec) {
    // A model with several types of layers has one object of rotary settings per type.
    for (const char* type : {"full_attention", "sliding_attention"}) {
        if (!rope.has(type)) continue;
        throw UserError("{} has a \"{}\"; only one set of frequencies for all layers is supported",
                        rope.where(), type);
    }
    const double theta = rope.above(0, "rope_theta", spec.rope_theta);
    if (theta_is_given && theta != spec.rope_theta) {
        rope.refuse("rope_theta", fmt::format("but it is {} elsewhere in the file", spec.rope_theta));
    }
    theta_is_given = theta_is_given || rope.has("rope_theta");
    spec.rope_theta = theta;
    spec.rope_scaling = read_scaling(rope, spec.max_context);
    rope.require("partial_rotary_factor", 1.0);
    rope.refuse_unknown("", accepted);
}

/// Throws if a rotation cannot be computed for every position.
void check_frequencies(const Reader& config, const ModelSpec& spec) {
    const bool yarn = spec.rope_scaling && spec.rope_scaling->type == RopeScaling::Type::Yarn;
    if (yarn && spec.rope_theta <= 1) {
        throw UserError("{}: \"rope_theta\" is {}, but yarn needs a value above 1", config.where(),
                        spec.rope_theta);
    }
    for (const double frequency : rope_frequencies(spec)) {
        if (std::isfinite(frequency * static_cast<double>(kMaxTokens))) continue;
        throw UserError("{}: \"rope_theta\" {} and the factor of its scaling give a rotation by {} radians",
                        config.where(), spec.rope_theta, frequency);
    }
}

void read_rope(const Reader& config, const AcceptedKeys& accepted, ModelSpec& spec) {
    bool theta_is_given = config.has("rope_theta");
    spec.rope_theta = config.above(0, "rope_theta", 10000);
    const bool older = config.mentions("rope_scaling"), newer = config.mentions("rope_parameters");
    if (config.has("rope_scaling")) {
        read_rope_object(config.object("rope_scaling"), accepted, theta_is_given, spec);
    }
    const std::optional<RopeScaling> of_older = std::exchange(spec.rope_scaling, {});
    if (config.has("rope_parameters")) {
        read_rope_object(config.object("rope_parameters"), accepted, theta_is_given, spec);
    }
    if (older && newer && of_older != spec.rope_scaling) {
        throw UserError(
            "{}: \"rope_scaling\" and \"rope_parameters\" describe different frequencies; versions of "
            "transformers read one or the other, so remove the wrong one",
            config.where());
    }
    if (!newer) spec.rope_scaling = of_older;
    check_frequencies(config, spec);
}

struct Family {
    const char *name, *model_type, *architecture;
    int64_t max_context;      // transformers' default if config.json has none
    const char* unused_keys;  // keys of the family's configuration that do not change the model
};
constexpr const char* kQwenKeys = " sliding_window max_window_layers use_sliding_window";
constexpr Family kFamilies[] = {{"llama3", "llama", "LlamaForCausalLM", 2048, " pretraining_tp"},
                                {"mistral", "mistral", "MistralForCausalLM", 131072, ""},
                                {"qwen2", "qwen2", "Qwen2ForCausalLM", 32768, kQwenKeys},
                                {"qwen3", "qwen3", "Qwen3ForCausalLM", 32768, kQwenKeys}};

// Keys of PretrainedConfig and of every family's configuration that do not change the model: they are about
// training and generation with transformers, its files, and other tasks than the prediction of tokens.
constexpr const char* kUnusedKeys =
    "_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path "
    "bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward "
    "cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype "
    "early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty "
    "finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label "
    "initializer_range is_decoder label2id length_penalty max_length min_length name_or_path "
    "no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences "
    "output_attentions output_hidden_states output_scores pad_token_id prefix problem_type "
    "remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id "
    "suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder "
    "tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p "
    "use_bfloat16 use_cache";

const Family& read_family(const Reader& config) {
    const auto type = config.get<std::string>("model_type");
    for (const Family& family : kFamilies) {
        if (type != family.model_type) continue;
        config.require_each("architectures", family.architecture);
        return family;
    }
    throw UserError("{}: \"model_type\" is \"{}\"; supported are llama, mistral, qwen2 and qwen3",
                    config.where(), type);
}

void read_biases(const Reader& config, ModelSpec& spec) {
    if (spec.name == "qwen2") {
        spec.qkv_bias = true;
        config.require("attention_bias", true);
    } else if (spec.name == "mistral") {
        config.require("attention_bias", false);
    } else {
        spec.qkv_bias = spec.output_bias = config.get<bool>("attention_bias", false);
    }
    if (spec.name == "llama3") {
        spec.mlp_bias = config.get<bool>("mlp_bias", false);
    } else {
        config.require("mlp_bias", false);
    }
}

/// transformers gives Mistral a window of 4096 if the key is missing, and none if it is null.
void read_window(const Reader& config, ModelSpec& spec) {
    if (spec.name != "mistral" || (config.mentions("sliding_window") && !config.has("sliding_window")))
        return;
    spec.sliding_window = config.size("sliding_window", kMaxTokens, 4096);
}

/// transformers gives each query head a key head if the key is null, and in Llama also if it is missing.
int64_t default_kv_heads(const Reader& config, const ModelSpec& spec) {
    if (spec.name == "llama3" || config.mentions("num_key_value_heads")) return spec.num_heads;
    return spec.name == "mistral" ? 8 : 32;
}

void read_heads(const Reader& config, ModelSpec& spec) {
    spec.num_heads = config.size("num_attention_heads", kMaxWidth);
    spec.num_kv_heads = config.size("num_key_value_heads", kMaxWidth, default_kv_heads(config, spec));
    if (spec.num_heads % spec.num_kv_heads != 0) {
        throw UserError(
            "{}: \"num_attention_heads\" is {} and \"num_key_value_heads\" is {}; query heads share "
            "key/value heads evenly, so the second must divide the first",
            config.where(), spec.num_heads, spec.num_kv_heads);
    }
    const bool divided = !config.has("head_dim") && spec.name != "qwen3";
    if (divided && spec.dim % spec.num_heads != 0) {
        throw UserError(
            "{} has no \"head_dim\", and \"num_attention_heads\", {}, does not divide \"hidden_size\", {}",
            config.where(), spec.num_heads, spec.dim);
    }
    spec.head_dim = config.size("head_dim", kMaxWidth, divided ? spec.dim / spec.num_heads : 128);
    if (spec.num_heads * spec.head_dim > kMaxWidth) {
        throw UserError("{}: \"num_attention_heads\", {}, times \"head_dim\", {}, is more than {}",
                        config.where(), spec.num_heads, spec.head_dim, kMaxWidth);
    }
    if (spec.head_dim % 2 != 0) {
        throw UserError(
            "{}: \"head_dim\" is {}; rotary embedding pairs a head's elements, so it must be even",
            config.where(), spec.head_dim);
    }
}

void refuse_unsupported(const Reader& config, const ModelSpec& spec) {
    config.require<std::string>("hidden_act", "silu");
    // Qwen's layers from max_window_layers on, by default 28, have the window.
    const int64_t full = spec.name.starts_with("qwen") ? config.get<int64_t>("max_window_layers", 28) : 0;
    if (full < spec.num_layers) config.require("use_sliding_window", false);
    config.require("partial_rotary_factor", 1.0);
    config.require_each("layer_types", spec.sliding_window ? "sliding_attention" : "full_attention",
                        spec.num_layers);
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
        config.require<int64_t>(key, 0);  // a mixture of experts
    for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) config.require(key, false);
    if (config.has("pruned_heads") && !config.object("pruned_heads").empty())
        config.refuse("pruned_heads", "but only models with all their heads are supported");
    for (const char* key : {"quantization_config", "compression_config"}) {
        if (!config.has(key)) continue;
        throw UserError("{} has a \"{}\"; quantized weights are not supported, convert them to bf16 first",
                        config.where(), key);
    }
}

ModelSpec from_json(const Reader& config, const AcceptedKeys& accepted) {
    ModelSpec spec;
    const Family& family = read_family(config);
    spec.name = family.name;
    spec.vocab_size = config.size("vocab_size", kMaxTokens);
    spec.dim = config.size("hidden_size", kMaxWidth);
    spec.num_layers = config.size("num_hidden_layers", kMaxLayers);
    read_heads(config, spec);
    spec.hidden_dim = config.size("intermediate_size", kMaxWidth);
    spec.norm_eps = config.above(0, "rms_norm_eps", 1e-6);
    spec.max_context = config.size("max_position_embeddings", kMaxTokens, family.max_context);
    spec.tied_embeddings = config.get<bool>("tie_word_embeddings", false);
    spec.qk_norm = spec.name == "qwen3";
    read_biases(config, spec);
    read_window(config, spec);
    read_rope(config, accepted, spec);
    refuse_unsupported(config, spec);
    config.require("attention_dropout", 0.0, accepted);  // a run would train without it
    config.refuse_unknown(std::string(kUnusedKeys) + family.unused_keys, accepted);
    return spec;
}

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

ModelSpec parse_hugging_face_config(const std::string& text, const std::string& path,
                                    const AcceptedKeys& accepted) {
    const json parsed = parse_json(text, path);
    if (!parsed.is_object()) throw UserError("{} is not a JSON object", path);
    return from_json(Reader(parsed, path), accepted);
}

bool has_hugging_face_config(const std::string& folder) {
    std::error_code ignored;
    return !folder.empty() && std::filesystem::is_regular_file(folder + "/config.json", ignored);
}

ModelSpec read_hugging_face_config(const std::string& folder, const AcceptedKeys& accepted) {
    const std::string path = folder + "/config.json";
    constexpr int64_t kMaxBytes = 16 << 20;
    if (!has_hugging_face_config(folder)) {
        throw UserError(
            "there is no file {}; model.hf_assets_path must be a folder with a config.json, unless "
            "model.name and "
            "model.flavor both say the architecture",
            path);
    }
    return parse_hugging_face_config(read_text(path, kMaxBytes), path, accepted);
}

}  // namespace argosy::model
