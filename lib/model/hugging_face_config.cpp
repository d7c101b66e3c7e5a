// Converts Hugging Face's config.json to a ModelSpec and back. Rotary settings have an older form
// (rope_theta, rope_scaling) and a newer form (rope_parameters): the reader accepts both, and the writer
// writes both. An unsupported setting that would change the model is an error; it is never ignored.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::json;

/// Typed access to one JSON object; every failure names the file and the key.
class Reader {
  public:
    Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

    bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

    template <class T>
    T get(const char* key) const {
        if (!has(key)) throw UserError("{} has no \"{}\"", where_, key);
        try {
            return checked<T>(object_[key]);
        } catch (const json::exception&) {
            throw UserError("{}: \"{}\" is {}, which is not {}", where_, key, object_[key].dump(), kind<T>());
        }
    }

    template <class T>
    T get(const char* key, T otherwise) const {
        return has(key) ? get<T>(key) : otherwise;
    }

    Reader object(const char* key) const {
        if (!object_[key].is_object()) {
            throw UserError("{}: \"{}\" is {}, which is not an object", where_, key, object_[key].dump());
        }
        return Reader(object_[key], fmt::format("{}: {}", where_, key));
    }

    const std::string& where() const { return where_; }

    template <class T>
    void require(const char* key, const T& only) const {
        const T found = get<T>(key, only);
        if (found == only) return;
        throw UserError("{}: \"{}\" is {}, but only {} is supported", where_, key, object_[key].dump(),
                        json(only).dump());
    }

    /// Throws unless every entry of the list is `only`, the one supported value. The list may be absent.
    void require_each(const char* key, const char* only) const {
        if (!has(key)) return;
        for (const json& entry : object_[key]) {
            if (entry == only) continue;
            throw UserError("{}: \"{}\" has {}, but only \"{}\" is supported", where_, key, entry.dump(),
                            only);
        }
    }

  private:
    template <class T>
    static T checked(const json& value) {
        const bool right = std::is_same_v<T, bool>      ? value.is_boolean()
                           : std::is_same_v<T, int64_t> ? value.is_number_integer()
                           : std::is_same_v<T, double>  ? value.is_number()
                                                        : value.is_string();
        if (!right) throw json::type_error::create(302, "wrong type", &value);
        return value.get<T>();
    }

    template <class T>
    static const char* kind() {
        if (std::is_same_v<T, bool>) return "true or false";
        if (std::is_same_v<T, int64_t>) return "a whole number";
        return std::is_same_v<T, double> ? "a number" : "a string";
    }

    const json& object_;
    std::string where_;
};

std::optional<RopeScaling> read_scaling(const Reader& rope) {
    const std::string type = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
    if (type == "default") return std::nullopt;
    if (type != "llama3") rope.require<std::string>(rope.has("rope_type") ? "rope_type" : "type", "llama3");
    return RopeScaling{.factor = rope.get<double>("factor"),
                       .low_frequency_factor = rope.get<double>("low_freq_factor"),
                       .high_frequency_factor = rope.get<double>("high_freq_factor"),
                       .original_context = rope.get<int64_t>("original_max_position_embeddings")};
}

void read_rope(const Reader& config, ModelSpec& spec) {
    spec.rope_theta = config.get<double>("rope_theta", 10000);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        if (!config.has(key)) continue;
        const Reader rope = config.object(key);
        spec.rope_theta = rope.get<double>("rope_theta", spec.rope_theta);
        spec.rope_scaling = read_scaling(rope);
        rope.require("partial_rotary_factor", 1.0);
        // A model with several types of layers has one object of rotary settings per type.
        for (const char* type : {"full_attention", "sliding_attention"}) {
            if (!rope.has(type)) continue;
            throw UserError("{} has a \"{}\"; only one set of frequencies for all layers is supported",
                            rope.where(), type);
        }
    }
}

struct Family {
    const char *name, *model_type, *architecture;
    int64_t max_context;  // transformers' default if config.json has none
};
constexpr Family kFamilies[] = {{"llama3", "llama", "LlamaForCausalLM", 2048},
                                {"qwen2", "qwen2", "Qwen2ForCausalLM", 32768},
                                {"qwen3", "qwen3", "Qwen3ForCausalLM", 32768}};

const Family& read_family(const Reader& config) {
    const auto type = config.get<std::string>("model_type");
    for (const Family& family : kFamilies) {
        if (type == family.model_type) return family;
    }
    throw UserError("{}: \"model_type\" is \"{}\"; supported are llama, qwen2 and qwen3", config.where(),
                    type);
}

void refuse_unsupported(const Reader& config, const ModelSpec& spec) {
    config.require<std::string>("hidden_act", "silu");
    config.require("attention_bias", spec.qkv_bias);
    config.require("mlp_bias", false);
    config.require("use_sliding_window", false);
    config.require("partial_rotary_factor", 1.0);
    config.require_each("layer_types", "full_attention");
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        config.require<int64_t>(key, 0);  // a mixture of experts
    }
    for (const char* key : {"quantization_config", "compression_config"}) {
        if (!config.has(key)) continue;
        throw UserError("{} has a \"{}\"; quantized weights are not supported, convert them to bf16 first",
                        config.where(), key);
    }
}

ModelSpec from_json(const Reader& config) {
    ModelSpec spec;
    const Family& family = read_family(config);
    spec.name = family.name;
    spec.vocab_size = config.get<int64_t>("vocab_size");
    spec.dim = config.get<int64_t>("hidden_size");
    spec.num_layers = config.get<int64_t>("num_hidden_layers");
    spec.num_heads = config.get<int64_t>("num_attention_heads");
    spec.num_kv_heads = config.get<int64_t>("num_key_value_heads", spec.num_heads);
    if (spec.num_heads < 1) {
        throw UserError("{}: \"num_attention_heads\" is {}", config.where(), spec.num_heads);
    }
    spec.head_dim = config.get<int64_t>("head_dim", spec.name == "qwen3" ? 128 : spec.dim / spec.num_heads);
    spec.hidden_dim = config.get<int64_t>("intermediate_size");
    spec.norm_eps = config.get<double>("rms_norm_eps", 1e-6);
    spec.max_context = config.get<int64_t>("max_position_embeddings", family.max_context);
    spec.tied_embeddings = config.get<bool>("tie_word_embeddings", false);
    spec.qkv_bias = spec.name == "qwen2";
    spec.qk_norm = spec.name == "qwen3";
    read_rope(config, spec);
    refuse_unsupported(config, spec);
    return spec;
}

const Family& family_of(const ModelSpec& spec) {
    for (const Family& family : kFamilies) {
        const bool biased = spec.name == "qwen2", normed = spec.name == "qwen3";
        if (spec.name == family.name && spec.qkv_bias == biased && spec.qk_norm == normed) return family;
    }
    throw UserError(
        "Hugging Face has no architecture for model '{}' {} biases of q, k and v and {} norms of q and k; "
        "supported are llama3 with neither, qwen2 with biases and qwen3 with norms",
        spec.name, spec.qkv_bias ? "with" : "without", spec.qk_norm ? "with" : "without");
}

json scaling_json(const ModelSpec& spec) {
    if (!spec.rope_scaling) return nullptr;
    return {{"rope_type", "llama3"},
            {"factor", spec.rope_scaling->factor},
            {"low_freq_factor", spec.rope_scaling->low_frequency_factor},
            {"high_freq_factor", spec.rope_scaling->high_frequency_factor},
            {"original_max_position_embeddings", spec.rope_scaling->original_context}};
}

void write_rope(const ModelSpec& spec, json& config) {
    config["rope_theta"] = spec.rope_theta;
    config["rope_scaling"] = scaling_json(spec);
    config["rope_parameters"] = spec.rope_scaling ? scaling_json(spec) : json{{"rope_type", "default"}};
    config["rope_parameters"]["rope_theta"] = spec.rope_theta;
}

void write_family(const Family& family, json& config) {
    if (family.name == std::string("qwen2")) {
        config["use_sliding_window"] = false;  // qwen2 always has biases: config.json has no key for them
    } else {
        config["attention_bias"] = false;
    }
    if (family.name == std::string("llama3")) config["mlp_bias"] = false;
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
    write_family(family, config);
    write_rope(spec, config);
    if (!dtype.empty()) config["dtype"] = config["torch_dtype"] = dtype;
    return config.dump(2) + "\n";
}

ModelSpec parse_hugging_face_config(const std::string& text, const std::string& path) {
    const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) throw UserError("{} is not a JSON object", path);
    ModelSpec spec = from_json(Reader(parsed, path));
    validate(spec);
    return spec;
}

ModelSpec read_hugging_face_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    std::ifstream file(path);
    if (!file)
        throw UserError("cannot open {}; model.hf_assets_path must be a folder with a config.json", path);
    return parse_hugging_face_config({std::istreambuf_iterator<char>(file), {}}, path);
}

}  // namespace argosy::model
