// Converts Hugging Face's config.json to a ModelSpec. An unsupported setting, and a key that the reader does
// not know, are errors; they are never ignored.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_field.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "model/families.h"
#include "model/hugging_face_fields.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::ordered_json;

/// Throws unless the list has an entry for each layer.
void require_count(const JsonField& field, int64_t num_layers) {
    const size_t count = field.list().size();
    if (std::cmp_equal(count, num_layers)) return;
    field.refuse(fmt::format("has {} entries, but must have {}, one for each layer", count, num_layers));
}

/// Throws unless every entry of the list is `only`, the one supported value, and unless the list has an entry
/// for each layer, if their number is given. The list may be null.
void require_each(const JsonField& field, const char* only, std::optional<int64_t> num_layers = {}) {
    if (field.is_null()) return;
    for (const JsonField& entry : field.list()) {
        if (entry.value() != only)
            field.refuse(fmt::format("has {}, but only \"{}\" is supported", entry.shown(), only));
    }
    if (num_layers) require_count(field, *num_layers);
}

// Keys of every family's configuration that are read.
constexpr const char* kReadKeys =
    "add_cross_attention architectures attention_bias attention_dropout compression_config head_dim "
    "hidden_act hidden_size intermediate_size is_encoder_decoder layer_types max_position_embeddings "
    "mlp_bias model_type n_routed_experts num_attention_heads num_experts num_hidden_layers "
    "num_key_value_heads num_local_experts partial_rotary_factor pruned_heads quantization_config "
    "rms_norm_eps rope_parameters rope_scaling rope_theta tie_word_embeddings use_sliding_window "
    "vocab_size ";
// Keys of PretrainedConfig and of every family's configuration that do not change the model: they are about
// training and generation with transformers, its files, and other tasks than the prediction of tokens.
constexpr const char* kUnusedKeys =
    "_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path auto_map "
    "bad_words_ids begin_suppress_tokens bos_token_id cache_implementation chunk_size_feed_forward "
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

const Family& read_family(const JsonField& config) {
    const std::string& type = config["model_type"].string();
    std::vector<std::string> known;
    for (const Family& family : kFamilies) {
        known.emplace_back(family.model_type);
        if (type != family.model_type) continue;
        require_each(config["architectures"], family.architecture);
        return family;
    }
    throw UserError("{}: \"model_type\" is \"{}\"; supported are {}", config.file(), type,
                    fmt::join(known, ", "));
}

bool read_whether(Has has, const JsonField& field) {
    if (has == Has::Perhaps) return field.boolean(false);
    require(field, has == Has::Always);
    return has == Has::Always;
}

void read_biases(const JsonField& config, const Family& family, ModelSpec& spec) {
    spec.qkv_bias = read_whether(family.qkv_bias, config["attention_bias"]);
    spec.output_bias = family.output_bias == Has::Perhaps && spec.qkv_bias;
    spec.mlp_bias = read_whether(family.mlp_bias, config["mlp_bias"]);
}

/// The number of layers of which the last one has no window; 0 if all have it. UserError unless the types
/// repeat so.
int64_t period_of(const JsonField& types) {
    const std::vector<JsonField> entries = types.list();
    const auto is_full = [](const JsonField& type) { return type.value() == kFull; };
    const auto first = std::ranges::find_if(entries, is_full);
    const int64_t period = first == entries.end() ? 0 : first - entries.begin() + 1;
    for (int64_t layer = 0; layer < std::ssize(entries); ++layer) {
        const bool full = period > 0 && (layer + 1) % period == 0;
        if (entries[layer].value() == (full ? kFull : kWindowed)) continue;
        types.refuse(fmt::format(
            "has {} for layer {}; supported are layers with \"{}\", of which every n-th one has \"{}\"",
            entries[layer].shown(), layer, kWindowed, kFull));
    }
    return period;
}

/// Null is the word of Mistral and Phi-3 for none.
void read_window(const JsonField& config, const Family& family, ModelSpec& spec) {
    const JsonField types = config["layer_types"], window = config["sliding_window"];
    const bool lists_types = family.full_layer_period > 0 && !types.is_null();
    if (lists_types) require_count(types, spec.num_layers);
    int64_t period = family.full_layer_period;
    // The older form of the types of Gemma's layers.
    if (family.is_gemma) period = config["sliding_window_pattern"].whole<int64_t>(1, kMaxLayers + 1, period);
    if (lists_types) period = period_of(types);
    const bool null = window.is_null() && (config.contains("sliding_window") || !family.sliding_window);
    const bool none = family.window == Has::Never || period == 1 || (family.window == Has::Perhaps && null);
    if (!none) spec.sliding_window = size_of(window, kMaxTokens, null ? std::nullopt : family.sliding_window);
    if (!none && period <= spec.num_layers) spec.full_layer_period = period;
    if (!lists_types) require_each(types, none ? kFull : kWindowed, spec.num_layers);
}

/// transformers gives each query head a key head if the key is null, and in some families also if it is
/// missing.
int64_t default_kv_heads(const JsonField& config, const Family& family, const ModelSpec& spec) {
    const bool as_many = family.num_kv_heads == 0 || config.contains("num_key_value_heads");
    return as_many ? spec.num_heads : family.num_kv_heads;
}

void read_heads(const JsonField& config, const Family& family, ModelSpec& spec) {
    spec.num_heads = size_of(config["num_attention_heads"], kMaxWidth);
    spec.num_kv_heads =
        size_of(config["num_key_value_heads"], kMaxWidth, default_kv_heads(config, family, spec));
    if (spec.num_heads % spec.num_kv_heads != 0) {
        throw UserError(
            "{}: \"num_attention_heads\" is {} and \"num_key_value_heads\" is {}; query heads share "
            "key/value heads evenly, so the second must divide the first",
            config.file(), spec.num_heads, spec.num_kv_heads);
    }
    const bool divided = config["head_dim"].is_null() && family.head_dim == 0;
    if (divided && spec.dim % spec.num_heads != 0) {
        throw UserError(
            "{} has no \"head_dim\", and \"num_attention_heads\", {}, does not divide \"hidden_size\", {}",
            config.file(), spec.num_heads, spec.dim);
    }
    spec.head_dim =
        size_of(config["head_dim"], kMaxWidth, divided ? spec.dim / spec.num_heads : family.head_dim);
    if (spec.num_heads * spec.head_dim > kMaxWidth) {
        throw UserError("{}: \"num_attention_heads\", {}, times \"head_dim\", {}, is more than {}",
                        config.file(), spec.num_heads, spec.head_dim, kMaxWidth);
    }
    if (spec.head_dim % 2 != 0) {
        throw UserError(
            "{}: \"head_dim\" is {}; rotary embedding pairs a head's elements, so it must be even",
            config.file(), spec.head_dim);
    }
}

constexpr const char* kGelu = "gelu_pytorch_tanh";

void read_gemma(const JsonField& config, ModelSpec& spec) {
    spec.query_scalar = above_zero(config["query_pre_attn_scalar"], spec.query_scalar);
    require(config["hidden_activation"], kGelu);
    require(config["use_bidirectional_attention"], false);
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
        require(config[key], nullptr);
}

/// In ascending order.
std::vector<int64_t> dense_layers(const JsonField& field, int64_t num_layers) {
    std::vector<int64_t> layers;
    if (field.is_null()) return layers;
    for (const JsonField& entry : field.list()) layers.push_back(entry.whole<int64_t>(0, num_layers - 1));
    std::ranges::sort(layers);
    const auto twice = std::ranges::adjacent_find(layers);
    if (twice != layers.end()) field.refuse(fmt::format("has layer {} twice", *twice));
    return layers;
}

void refuse_router_settings(const JsonField& config) {
    const JsonField noise = config["router_jitter_noise"], adds_loss = config["output_router_logits"];
    if (noise.number(0) != 0)
        noise.refuse("is " + noise.shown() + ", but only 0.0, a router without noise, is supported");
    if (!adds_loss.boolean(false)) return;
    adds_loss.refuse(
        "is true, but only false is supported: transformers would add a loss of the routers of all layers "
        "together, and with pipeline parallelism these layers are on several ranks; the weights and the "
        "logits are the same without it, so set it to false in the file");
}

/// What no other family has.
void read_glm(const JsonField& config, ModelSpec& spec, ExpertSpec& experts) {
    config["num_nextn_predict_layers"].whole<int64_t>(0, kMaxLayers, 0);  // layers after the last: not read
    if (config["use_qk_norm"].boolean(false)) spec.qk_norm = QkNorm::Heads;
    ops::Router& router = experts.router;
    router.score = ops::Router::Score::Sigmoid;
    router.scale = above_zero(config["routed_scaling_factor"], 1);
    router.num_groups = size_of(config["n_group"], router.num_experts, 1);
    router.top_groups = size_of(config["topk_group"], router.num_groups, 1);
    if (router.num_experts % router.num_groups != 0)
        config["n_group"].refuse(fmt::format("is {}, which does not divide \"n_routed_experts\", {}",
                                             router.num_groups, router.num_experts));
    if (router.num_groups > 1 && router.num_experts < 2 * router.num_groups)
        config["n_group"].refuse(fmt::format(
            "is {}, but a group is judged by its two best experts, so {} experts are {} groups at most",
            router.num_groups, router.num_experts, router.num_experts / 2));
    const int64_t reached = router.num_experts / router.num_groups * router.top_groups;
    if (router.top_k > reached)
        config["topk_group"].refuse(
            fmt::format("is {}, and so many groups have {} experts, but \"num_experts_per_tok\" is {}",
                        router.top_groups, reached, router.top_k));
    experts.shared_hidden_dim =
        size_of(config["n_shared_experts"], kMaxWidth / experts.hidden_dim, 1) * experts.hidden_dim;
    const int64_t num_dense = config["first_k_dense_replace"].whole<int64_t>(0, kMaxLayers, 1);
    experts.dense_layers.resize(std::min(num_dense, spec.num_layers));
    std::iota(experts.dense_layers.begin(), experts.dense_layers.end(), 0);
}

void read_experts(const JsonField& config, const Family& family, ModelSpec& spec) {
    const bool is_qwen = family.experts == ExpertKeys::Qwen, is_glm = family.experts == ExpertKeys::Glm;
    const JsonField count = config[num_experts_key(family)], per_token = config["num_experts_per_tok"];
    ExpertSpec experts;
    ops::Router& router = experts.router;
    router.num_experts = count.whole<int64_t>(is_qwen ? 0 : 1, kMaxWidth, is_qwen || is_glm ? 128 : 8);
    if (router.num_experts == 0) return;
    refuse_router_settings(config);
    router.top_k = size_of(per_token, kMaxWidth, is_qwen || is_glm ? 8 : 2);
    if (router.top_k > router.num_experts) {
        throw UserError("{}: \"num_experts_per_tok\" is {}, but \"{}\" is {}", config.file(), router.top_k,
                        num_experts_key(family), router.num_experts);
    }
    experts.hidden_dim = spec.hidden_dim;
    if (is_qwen || is_glm) {
        experts.hidden_dim = size_of(config["moe_intermediate_size"], kMaxWidth, is_glm ? 1408 : 768);
        router.normalize = config["norm_topk_prob"].boolean(is_glm);
    }
    if (is_glm) read_glm(config, spec, experts);
    if (is_qwen) {
        experts.period = size_of(config["decoder_sparse_step"], kMaxLayers, 1);
        experts.dense_layers = dense_layers(config["mlp_only_layers"], spec.num_layers);
    }
    if (router.num_experts > kMaxWidth / experts.hidden_dim) {
        throw UserError("{}: \"{}\", {}, times the width of an expert, {}, is more than {}", config.file(),
                        num_experts_key(family), router.num_experts, experts.hidden_dim, kMaxWidth);
    }
    spec.experts = experts;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        if (layer_spec(spec, layer).has_experts) return;
    spec.experts.reset();
}

void refuse_unsupported(const JsonField& config, const Family& family, const ModelSpec& spec) {
    require(config["hidden_act"], family.is_gemma ? kGelu : "silu");
    // Layers of Qwen 2 and 3 from max_window_layers on, by default 28, have the window.
    const bool has_full_layers = spec.name == "qwen2" || spec.name == "qwen3";
    const int64_t full = has_full_layers ? config["max_window_layers"].whole<int64_t>(0, kMaxTokens, 28) : 0;
    if (full < spec.num_layers) require(config["use_sliding_window"], false);
    for (const std::string key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        const bool is_read = family.experts != ExpertKeys::None && key == num_experts_key(family);
        if (!is_read) require(config[key], 0);
    }
    for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) require(config[key], false);
    const JsonField pruned = config["pruned_heads"];
    if (!pruned.is_null() && !pruned.members().empty())
        pruned.refuse("is " + pruned.shown() + ", but only models with all their heads are supported");
    for (const char* key : {"quantization_config", "compression_config"}) {
        if (config[key].is_null()) continue;
        throw UserError("{} has a \"{}\"; quantized weights are not supported, convert them to bf16 first",
                        config.file(), key);
    }
}

/// A run would train without dropout.
void check_dropout(const JsonField& field, const AcceptedKeys& accepted) {
    if (field.number(0) == 0 || accepted.has(field.key())) return;
    field.refuse(
        fmt::format("is {0}, but only 0.0 is supported; accept the key to go on as if it were so "
                    "(--accept-config-key {1}, in a run's configuration model.accept_config_keys)",
                    field.shown(), field.key()));
}

ModelSpec from_json(const JsonField& config, const AcceptedKeys& accepted) {
    const Family& family = read_family(config);
    ModelSpec spec = model_of(family);
    spec.vocab_size = size_of(config["vocab_size"], kMaxTokens);
    spec.dim = size_of(config["hidden_size"], kMaxWidth);
    spec.num_layers = size_of(config["num_hidden_layers"], kMaxLayers);
    read_heads(config, family, spec);
    spec.hidden_dim = size_of(config["intermediate_size"], kMaxWidth);
    spec.norm_eps = above_zero(config["rms_norm_eps"], spec.norm_eps);
    spec.max_context = size_of(config["max_position_embeddings"], kMaxTokens, spec.max_context);
    spec.tied_embeddings = config["tie_word_embeddings"].boolean(spec.tied_embeddings);
    read_biases(config, family, spec);
    if (family.is_gemma) read_gemma(config, spec);
    if (family.experts != ExpertKeys::None) read_experts(config, family, spec);
    read_window(config, family, spec);
    read_rope(config, family, accepted, spec);
    refuse_unsupported(config, family, spec);
    for (const char* key : {"attention_dropout", "embd_pdrop", "resid_pdrop"})
        check_dropout(config[key], accepted);
    refuse_unknown(config, std::string(kReadKeys) + kUnusedKeys + family.other_keys, accepted);
    return spec;
}

}  // namespace

ModelSpec parse_hugging_face_config(const std::string& text, const std::string& path,
                                    const AcceptedKeys& accepted) {
    const ordered_json parsed = parse_json(text, path);
    if (!parsed.is_object()) throw UserError("{} is not a JSON object", path);
    return from_json(JsonField(parsed, path), accepted);
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
