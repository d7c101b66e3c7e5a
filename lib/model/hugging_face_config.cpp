// Hugging Face's config.json as a ModelSpec. Rotary settings are read in their older form (rope_theta,
// rope_scaling) and their newer one (rope_parameters). A setting that would change the model and is not
// supported is refused, not ignored.
#include <fmt/format.h>

#include <fstream>
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

    template <class T>
    void require(const char* key, const T& only) const {
        const T found = get<T>(key, only);
        if (found == only) return;
        throw UserError("{}: \"{}\" is {}, but only {} is supported", where_, key, object_[key].dump(),
                        json(only).dump());
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
    }
}

std::string family(const Reader& config) {
    const auto type = config.get<std::string>("model_type");
    if (type == "llama") return "llama3";
    if (type != "qwen2" && type != "qwen3") {
        throw UserError("config.json: \"model_type\" is \"{}\"; supported are llama, qwen2 and qwen3", type);
    }
    return type;
}

ModelSpec from_json(const Reader& config) {
    ModelSpec spec;
    spec.name = family(config);
    spec.vocab_size = config.get<int64_t>("vocab_size");
    spec.dim = config.get<int64_t>("hidden_size");
    spec.num_layers = config.get<int64_t>("num_hidden_layers");
    spec.num_heads = config.get<int64_t>("num_attention_heads");
    spec.num_kv_heads = config.get<int64_t>("num_key_value_heads", spec.num_heads);
    if (spec.num_heads < 1) throw UserError("config.json: \"num_attention_heads\" is {}", spec.num_heads);
    spec.head_dim = config.get<int64_t>("head_dim", spec.name == "qwen3" ? 128 : spec.dim / spec.num_heads);
    spec.hidden_dim = config.get<int64_t>("intermediate_size");
    spec.norm_eps = config.get<double>("rms_norm_eps", 1e-6);
    spec.tied_embeddings = config.get<bool>("tie_word_embeddings", false);
    spec.qkv_bias = spec.name == "qwen2";
    spec.qk_norm = spec.name == "qwen3";
    read_rope(config, spec);
    config.require<std::string>("hidden_act", "silu");
    config.require("attention_bias", spec.qkv_bias);
    config.require("mlp_bias", false);
    config.require("use_sliding_window", false);
    return spec;
}

}  // namespace

ModelSpec read_hugging_face_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    std::ifstream file(path);
    if (!file)
        throw UserError("cannot open {}; model.hf_assets_path must be a folder with a config.json", path);
    const json parsed = json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) throw UserError("{} is not a JSON object", path);
    ModelSpec spec = from_json(Reader(parsed, path));
    validate(spec);
    return spec;
}

}  // namespace argosy::model
