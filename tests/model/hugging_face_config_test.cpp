// Reading config.json in the forms that Hugging Face has written over the years, and the errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::json;

/// A temporary folder with a config.json.
class Folder {
  public:
    explicit Folder(const std::string& text)
        : path_(std::filesystem::temp_directory_path() / ("argosy_config_" + std::to_string(getpid()))) {
        std::filesystem::create_directories(path_);
        std::ofstream(path_ / "config.json") << text;
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

ModelSpec read(const json& config) { return read_hugging_face_config(Folder(config.dump()).path()); }

json llama_8b() {
    return {{"model_type", "llama"},      {"vocab_size", 128256},        {"hidden_size", 4096},
            {"num_hidden_layers", 32},    {"num_attention_heads", 32},   {"num_key_value_heads", 8},
            {"intermediate_size", 14336}, {"rms_norm_eps", 1e-5},        {"hidden_act", "silu"},
            {"attention_bias", false},    {"tie_word_embeddings", false}};
}

json llama3_rope() {
    return {{"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
}

TEST(HuggingFaceConfig, OldAndNewRotaryKeysGiveThePreset) {
    json old_form = llama_8b(), older_form, new_form = old_form;
    old_form["rope_theta"] = 500000.0;
    old_form["rope_scaling"] = llama3_rope();
    older_form = old_form;
    old_form["rope_scaling"]["rope_type"] = "llama3";
    older_form["rope_scaling"]["type"] = "llama3";
    new_form["rope_parameters"] = llama3_rope();
    new_form["rope_parameters"]["rope_type"] = "llama3";
    new_form["rope_parameters"]["rope_theta"] = 500000.0;
    for (const json& config : {old_form, older_form, new_form}) {
        EXPECT_EQ(differences(read(config), preset("llama3", "8B")), std::vector<std::string>{});
    }
}

TEST(HuggingFaceConfig, QwenFamilies) {
    const json qwen2 = {
        {"model_type", "qwen2"},      {"vocab_size", 151936},      {"hidden_size", 896},
        {"num_hidden_layers", 24},    {"num_attention_heads", 14}, {"num_key_value_heads", 2},
        {"intermediate_size", 4864},  {"rms_norm_eps", 1e-6},      {"hidden_act", "silu"},
        {"rope_theta", 1000000.0},    {"rope_scaling", nullptr},   {"tie_word_embeddings", true},
        {"use_sliding_window", false}};
    EXPECT_EQ(differences(read(qwen2), preset("qwen2", "0.5B")), std::vector<std::string>{});
    const json qwen3 = {{"model_type", "qwen3"},
                        {"vocab_size", 151936},
                        {"hidden_size", 1024},
                        {"num_hidden_layers", 28},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 8},
                        {"intermediate_size", 3072},
                        {"rms_norm_eps", 1e-6},
                        {"head_dim", 128},
                        {"attention_bias", false},
                        {"tie_word_embeddings", true},
                        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
    EXPECT_EQ(differences(read(qwen3), preset("qwen3", "0.6B")), std::vector<std::string>{});
}

TEST(HuggingFaceConfig, AbsentKeysHaveHuggingFacesDefaults) {
    json config = llama_8b();
    for (const char* key : {"num_key_value_heads", "rms_norm_eps", "hidden_act", "tie_word_embeddings"}) {
        config.erase(key);
    }
    const ModelSpec spec = read(config);
    EXPECT_EQ(spec.num_kv_heads, 32);
    EXPECT_EQ(spec.head_dim, 128);
    EXPECT_EQ(spec.norm_eps, 1e-6);
    EXPECT_EQ(spec.rope_theta, 10000);
    EXPECT_EQ(spec.max_context, 2048);
    config["model_type"] = "qwen2";
    config.erase("attention_bias");
    EXPECT_EQ(read(config).max_context, 32768);
    EXPECT_FALSE(spec.rope_scaling.has_value());
    EXPECT_FALSE(spec.tied_embeddings);
}

struct Refused {
    json change;  // merged into the config; null removes a key
    std::vector<const char*> message;
};

TEST(HuggingFaceConfig, RefusesWithFileKeyAndValue) {
    const std::vector<Refused> cases = {
        {{{"hidden_size", nullptr}}, {"config.json", "has no \"hidden_size\""}},
        {{{"model_type", nullptr}}, {"has no \"model_type\""}},
        {{{"model_type", "mamba"}}, {"\"mamba\"", "llama, qwen2 and qwen3"}},
        {{{"hidden_size", "wide"}}, {"\"hidden_size\" is \"wide\"", "not a whole number"}},
        {{{"num_hidden_layers", 2.5}}, {"\"num_hidden_layers\" is 2.5", "not a whole number"}},
        {{{"rms_norm_eps", "small"}}, {"\"rms_norm_eps\"", "not a number"}},
        {{{"tie_word_embeddings", 1}}, {"\"tie_word_embeddings\" is 1", "not true or false"}},
        {{{"hidden_act", "gelu"}}, {"\"hidden_act\" is \"gelu\"", "only \"silu\""}},
        {{{"attention_bias", true}}, {"\"attention_bias\" is true", "only false"}},
        {{{"mlp_bias", true}}, {"\"mlp_bias\" is true"}},
        {{{"use_sliding_window", true}}, {"\"use_sliding_window\" is true"}},
        {{{"layer_types", {"full_attention", "sliding_attention"}}},
         {"\"layer_types\" has \"sliding_attention\"", "only \"full_attention\""}},
        {{{"num_local_experts", 8}}, {"\"num_local_experts\" is 8", "only 0"}},
        {{{"num_experts", 60}}, {"\"num_experts\" is 60"}},
        {{{"model_type", "mixtral"}}, {"\"mixtral\""}},
        {{{"model_type", "qwen3_moe"}}, {"\"qwen3_moe\""}},
        {{{"model_type", "mistral"}, {"sliding_window", 4096}}, {"\"mistral\""}},
        {{{"model_type", "qwen3"}, {"attention_bias", true}}, {"\"attention_bias\" is true", "only false"}},
        {{{"num_attention_heads", 0}}, {"\"num_attention_heads\" is 0"}},
        {{{"num_key_value_heads", 5}}, {"32 query heads", "5 key/value heads"}},
        {{{"vocab_size", 0}}, {"vocab_size is 0"}},
        {{{"head_dim", 33}}, {"head_dim is 33"}},
        {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
         {"rope_scaling", "\"linear\"", "\"llama3\""}},
        {{{"partial_rotary_factor", 0.5}}, {"\"partial_rotary_factor\" is 0.5", "only 1.0"}},
        {{{"quantization_config", {{"bits", 4}}}}, {"quantization_config", "not supported"}},
        {{{"max_position_embeddings", 0}}, {"max_position_embeddings is 0", "at least 1"}},
        {{{"num_hidden_layers", 1LL << 40}}, {"num_layers is 1099511627776", "at most"}},
        {{{"compression_config", {{"format", "pack"}}}}, {"compression_config", "not supported"}},
        {{{"rope_parameters", {{"rope_type", "yarn"}}}}, {"rope_parameters", "\"yarn\""}},
        {{{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}, {"rope_scaling", "\"dynamic\""}},
        {{{"rope_scaling", {{"rope_type", "longrope"}}}}, {"rope_scaling", "\"longrope\""}},
        {{{"rope_scaling", {{"type", "mrope"}}}}, {"rope_scaling", "\"mrope\""}},
        {{{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}},
         {"rope_parameters", "\"full_attention\""}},
        {{{"rope_scaling", {{"rope_type", "llama3"}}}}, {"rope_scaling", "has no \"factor\""}},
        {{{"rope_scaling", "yarn"}}, {"\"rope_scaling\" is \"yarn\"", "not an object"}},
    };
    for (const Refused& refused : cases) {
        json config = llama_8b();
        config.merge_patch(refused.change);
        try {
            read(config);
            ADD_FAILURE() << "accepted " << refused.change;
        } catch (const UserError& error) {
            for (const char* part : refused.message) {
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                    << part << ": " << error.what();
            }
        }
    }
}

/// All presets, from the message that lists them: "there are llama3: 1B 3B; qwen2: 3B".
std::vector<ModelSpec> every_preset() {
    std::string known;
    try {
        preset("none", "none");
    } catch (const UserError& error) {
        known = error.what();
    }
    std::istringstream words(known.substr(known.find("there are ") + std::strlen("there are ")));
    std::vector<ModelSpec> specs;
    std::string family;
    for (std::string word; words >> word;) {
        if (word.back() == ':') {
            family = word.substr(0, word.size() - 1);
        } else {
            specs.push_back(preset(family, word.substr(0, word.find(';'))));
        }
    }
    return specs;
}

TEST(HuggingFaceConfig, AWrittenConfigReadsBack) {
    const std::vector<ModelSpec> specs = every_preset();
    EXPECT_EQ(specs.size(), 19u);
    for (ModelSpec spec : specs) {
        spec.norm_eps = 1.1e-6;  // no other key's default
        spec.rope_theta = 0.1 + 1e5;
        spec.max_context = 4097;
        for (const char* dtype : {"", "bfloat16"}) {
            EXPECT_EQ(parse_hugging_face_config(hugging_face_config(spec, dtype), "here"), spec) << spec.name;
        }
    }
}

TEST(HuggingFaceConfig, OldAndNewReadersFindTheirKeys) {
    const json plain = json::parse(hugging_face_config(preset("qwen3", "0.6B")));
    EXPECT_EQ(plain["rope_theta"], 1e6);
    EXPECT_TRUE(plain["rope_scaling"].is_null());
    EXPECT_EQ(plain["rope_parameters"], (json{{"rope_type", "default"}, {"rope_theta", 1e6}}));
    EXPECT_EQ(plain["architectures"], json::array({"Qwen3ForCausalLM"}));
    EXPECT_FALSE(plain.contains("dtype"));
    EXPECT_EQ(plain["max_position_embeddings"], 40960);

    const json scaled = json::parse(hugging_face_config(preset("llama3", "8B"), "float16"));
    EXPECT_EQ(scaled["rope_scaling"]["rope_type"], "llama3");
    EXPECT_EQ(scaled["rope_scaling"]["original_max_position_embeddings"], 8192);
    json with_theta = scaled["rope_scaling"];
    with_theta["rope_theta"] = 5e5;
    EXPECT_EQ(scaled["rope_parameters"], with_theta);
    EXPECT_EQ(scaled["max_position_embeddings"], 131072);
    EXPECT_EQ(scaled["dtype"], "float16");
    EXPECT_EQ(scaled["torch_dtype"], "float16");
}

TEST(HuggingFaceConfig, AnUnknownArchitectureIsNotWritten) {
    ModelSpec spec = preset("llama3", "8B");
    spec.qk_norm = true;
    EXPECT_THROW(hugging_face_config(spec), UserError);
}

TEST(HuggingFaceConfig, RefusesFilesThatAreNoConfig) {
    EXPECT_THROW(read_hugging_face_config("/no/such/folder"), UserError);
    EXPECT_THROW(read_hugging_face_config(Folder("{\"model_type\": ").path()), UserError);
    EXPECT_THROW(read_hugging_face_config(Folder("[1, 2]").path()), UserError);
    EXPECT_THROW(read_hugging_face_config(Folder("").path()), UserError);
}

}  // namespace
}  // namespace argosy::model
