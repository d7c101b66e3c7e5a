// Reading config.json in the forms that Hugging Face has written over the years, and the errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "expect_error.h"
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

TEST(HuggingFaceConfig, AMissingNumberOfKeyHeadsIsNotANullOne) {
    struct Case {
        const char* type;
        int64_t missing;
    };
    for (const auto& [type, missing] :
         {Case{"llama", 64}, {"mistral", 8}, {"qwen2", 32}, {"qwen3", 32}, {"olmo2", 64}, {"qwen3_moe", 4}}) {
        json config = llama_8b();
        config["model_type"] = type;
        config["num_attention_heads"] = 64;
        config.erase("attention_bias");
        config["num_key_value_heads"] = nullptr;
        EXPECT_EQ(read(config).num_kv_heads, 64) << type;
        config.erase("num_key_value_heads");
        EXPECT_EQ(read(config).num_kv_heads, missing) << type;
    }
}

struct Refused {
    json change;  // merged into the config; null removes a key
    std::vector<const char*> message;
};

void expect_refused(json config, const Refused& refused) {
    config.merge_patch(refused.change);
    try {
        read(config);
        ADD_FAILURE() << "accepted " << config;
    } catch (const UserError& error) {
        for (const char* part : refused.message) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                << part << ": " << error.what();
        }
    }
}

TEST(HuggingFaceConfig, RefusesWithFileKeyAndValue) {
    const std::vector<Refused> cases = {
        {{{"hidden_size", nullptr}}, {"config.json", "has no \"hidden_size\""}},
        {{{"model_type", nullptr}}, {"has no \"model_type\""}},
        {{{"model_type", "mamba"}}, {"\"mamba\"", "llama, mistral, qwen2, qwen3, olmo2, olmo3, gemma3_text"}},
        {{{"hidden_size", "wide"}}, {"\"hidden_size\" is \"wide\"", "not a whole number"}},
        {{{"num_hidden_layers", 2.5}}, {"\"num_hidden_layers\" is 2.5", "not a whole number"}},
        {{{"rms_norm_eps", "small"}}, {"\"rms_norm_eps\"", "not a number"}},
        {{{"tie_word_embeddings", 1}}, {"\"tie_word_embeddings\" is 1", "not true or false"}},
        {{{"hidden_act", "gelu"}}, {"\"hidden_act\" is \"gelu\"", "only \"silu\""}},
        {{{"model_type", "qwen2"}}, {"\"attention_bias\" is false", "only true"}},
        {{{"model_type", "qwen3"}, {"mlp_bias", true}}, {"\"mlp_bias\" is true", "only false"}},
        {{{"architectures", {"LlamaForSequenceClassification"}}},
         {"\"architectures\" has \"LlamaForSequenceClassification\"", "only \"LlamaForCausalLM\""}},
        {{{"architectures", {"LlamaModel"}}}, {"\"LlamaModel\""}},
        {{{"is_encoder_decoder", true}}, {"\"is_encoder_decoder\" is true", "only false"}},
        {{{"add_cross_attention", true}}, {"\"add_cross_attention\" is true"}},
        {{{"pruned_heads", {{"1", {0}}}}}, {"\"pruned_heads\" is an object"}},
        {{{"use_sliding_window", true}}, {"\"use_sliding_window\" is true"}},
        {{{"layer_types", {"full_attention", "sliding_attention"}}},
         {"\"layer_types\" has \"sliding_attention\"", "only \"full_attention\""}},
        {{{"layer_types", {"full_attention"}}},
         {"\"layer_types\" has 1 entries", "must have 32, one for each layer"}},
        {{{"attention_dropout", 0.1}}, {"\"attention_dropout\" is 0.1", "model.accept_config_keys"}},
        {{{"num_local_experts", 8}}, {"\"num_local_experts\" is 8", "only 0"}},
        {{{"num_experts", 60}}, {"\"num_experts\" is 60"}},
        {{{"model_type", "deepseek_v3"}}, {"\"deepseek_v3\""}},
        {{{"model_type", "mistral"}, {"sliding_window", 0}}, {"\"sliding_window\" is 0"}},
        {{{"model_type", "mistral"}, {"attention_bias", true}}, {"\"attention_bias\" is true"}},
        {{{"model_type", "mistral"}, {"layer_types", {"full_attention"}}}, {"only \"sliding_attention\""}},
        {{{"num_attention_heads", 0}}, {"\"num_attention_heads\" is 0"}},
        {{{"num_key_value_heads", 5}},
         {"\"num_attention_heads\" is 32 and \"num_key_value_heads\" is 5", "evenly"}},
        {{{"vocab_size", 0}}, {"\"vocab_size\" is 0", "from 1 to"}},
        {{{"hidden_size", -4}}, {"\"hidden_size\" is -4"}},
        {{{"intermediate_size", 0}}, {"\"intermediate_size\" is 0"}},
        {{{"num_attention_heads", 5}, {"num_key_value_heads", 5}},
         {"has no \"head_dim\"", "\"num_attention_heads\", 5", "\"hidden_size\", 4096"}},
        {{{"head_dim", 1 << 16}}, {"\"head_dim\", 65536", "more than"}},
        {{{"rms_norm_eps", 0.0}}, {"\"rms_norm_eps\" is 0.0", "not above 0"}},
        {{{"rms_norm_eps", -1e-5}}, {"\"rms_norm_eps\" is -1e-05", "not above 0"}},
        {{{"rope_theta", 0}}, {"\"rope_theta\" is 0", "not above 0"}},
        {{{"rope_theta", -1e4}}, {"\"rope_theta\" is -10000.0"}},
        {{{"rope_theta", 5e-324}}, {"\"rope_theta\" 5e-324", "radians"}},
        {{{"head_dim", 33}}, {"\"head_dim\" is 33", "even"}},
        {{{"rope_scaling", {{"type", "ntk"}, {"factor", 2.0}}}},
         {"\"rope_scaling.type\" is \"ntk\"", "only default, linear, llama3 and yarn"}},
        {{{"rope_scaling", {{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2.0}}}},
         {"\"rope_scaling.type\" is \"linear\"", "only \"yarn\""}},
        {{{"rope_scaling", {{"type", "linear"}, {"factor", 0.0}}}},
         {"\"rope_scaling.factor\" is 0.0", "not above 0"}},
        {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"low_freq_factor", 1.0}}}},
         {"config.json: \"rope_scaling\" has keys", "\"rope_scaling.low_freq_factor\""}},
        {{{"partial_rotary_factor", 0.5}}, {"\"partial_rotary_factor\" is 0.5", "only 1.0"}},
        {{{"quantization_config", {{"bits", 4}}}}, {"quantization_config", "not supported"}},
        {{{"max_position_embeddings", 0}}, {"\"max_position_embeddings\" is 0", "from 1 to"}},
        {{{"num_hidden_layers", 1LL << 40}}, {"\"num_hidden_layers\" is 1099511627776", "from 1 to 65536"}},
        {{{"compression_config", {{"format", "pack"}}}}, {"compression_config", "not supported"}},
        {{{"rope_parameters", {{"rope_type", "yarn"}}}}, {"has no \"rope_parameters.factor\""}},
        {{{"rope_theta", 1}, {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}},
         {"\"rope_theta\" is 1", "yarn"}},
        {{{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}, {"rope_scaling", "\"dynamic\""}},
        {{{"rope_scaling", {{"rope_type", "longrope"}}}}, {"rope_scaling", "\"longrope\""}},
        {{{"rope_scaling", {{"type", "mrope"}}}}, {"rope_scaling", "\"mrope\""}},
        {{{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}},
         {"rope_parameters", "\"full_attention\""}},
        {{{"rope_scaling", {{"rope_type", "llama3"}}}}, {"has no \"rope_scaling.factor\""}},
        {{{"rope_scaling", "yarn"}}, {"\"rope_scaling\" is \"yarn\"", "not an object"}},
    };
    for (const Refused& refused : cases) expect_refused(llama_8b(), refused);
}

TEST(HuggingFaceConfig, RefusesImpossibleRotations) {
    json llama3 = llama_8b(), yarn = llama_8b();
    llama3["rope_scaling"] = llama3_rope();
    llama3["rope_scaling"]["rope_type"] = "llama3";
    yarn["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
    const auto in_rope = [](const char* key, const json& value) {
        return json{{"rope_scaling", {{key, value}}}};
    };
    for (const Refused& refused : std::vector<Refused>{
             {in_rope("factor", -8), {"\"rope_scaling.factor\" is -8", "not above 0"}},
             {in_rope("low_freq_factor", 0), {"\"rope_scaling.low_freq_factor\" is 0", "not above 0"}},
             {in_rope("high_freq_factor", 1.0),
              {"\"rope_scaling.high_freq_factor\" is 1.0", "\"low_freq_factor\", 1"}},
             {in_rope("original_max_position_embeddings", 0),
              {"\"rope_scaling.original_max_position_embeddings\" is 0", "from 1 to"}},
             {in_rope("beta_fast", 16), {"\"rope_scaling.beta_fast\""}},
         }) {
        expect_refused(llama3, refused);
    }
    for (const Refused& refused : std::vector<Refused>{
             {in_rope("factor", 0), {"\"rope_scaling.factor\" is 0"}},
             {in_rope("beta_slow", 0), {"\"rope_scaling.beta_slow\" is 0"}},
             {in_rope("beta_fast", 0.5), {"\"rope_scaling.beta_fast\" is 0.5 and \"beta_slow\" is 1"}},
             {in_rope("attention_factor", 0.0), {"\"rope_scaling.attention_factor\" is 0.0", "not above 0"}},
             {in_rope("truncate", "no"), {"\"rope_scaling.truncate\" is \"no\"", "not true or false"}},
             {{{"rope_scaling", {{"mscale", 1.0}, {"mscale_all_dim", -100.0}}}},
              {"\"rope_scaling.mscale\" is 1.0", "attention factor would be"}},
             {in_rope("original_max_position_embeddings", -1),
              {"\"rope_scaling.original_max_position_embeddings\" is -1"}},
         }) {
        expect_refused(yarn, refused);
    }
}

TEST(HuggingFaceConfig, TwoDescriptionsOfTheRotationAgree) {
    json config = llama_8b();
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
    config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 1e6}};
    EXPECT_EQ(read(config).rope_theta, 1e6);
    EXPECT_EQ(read(config).rope_scaling, (RopeScaling{.type = RopeScaling::Type::Linear, .factor = 2}));
    const std::vector<const char*> differ = {"config.json", "\"rope_scaling\" and \"rope_parameters\""};
    expect_refused(config, {{{"rope_parameters", {{"factor", 4}}}}, differ});
    expect_refused(config, {{{"rope_parameters", {{"rope_type", "default"}, {"factor", nullptr}}}}, differ});
    expect_refused(config,
                   {{{"rope_theta", 5e5}}, {"\"rope_parameters.rope_theta\" is 1000000.0", "500000"}});
    config["rope_scaling"] = nullptr;
    expect_refused(config, {json::object(), differ});
}

TEST(HuggingFaceConfig, UnknownKeysAreRefusedUntilTheyAreAccepted) {
    json config = llama_8b();
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"mscale", 1}};
    config["use_qk_norm"] = true;
    config["logits_scaling"] = 8;
    config["sliding_window"] = 4096;  // no key of LlamaConfig
    config["embedding_multiplier"] = nullptr;
    const std::string text = config.dump();
    const auto message = [&](const AcceptedKeys& accepted) -> std::string {
        try {
            parse_hugging_face_config(text, "here", accepted);
        } catch (const UserError& error) {
            return error.what();
        }
        return "";
    };
    AcceptedKeys accepted;
    EXPECT_NE(message(accepted).find("here: \"rope_scaling\" has keys"), std::string::npos)
        << message(accepted);
    accepted.names = {"rope_scaling.mscale", "logits_scaling"};
    for (const char* part :
         {"\"sliding_window\", \"use_qk_norm\";", "--accept-config-key", "accept_config_keys"})
        EXPECT_NE(message(accepted).find(part), std::string::npos) << message(accepted);
    for (const char* part : {"logits_scaling", "embedding_multiplier"})
        EXPECT_EQ(message(accepted).find(part), std::string::npos) << message(accepted);
    accepted.names.insert(accepted.names.end(), {"sliding_window", "use_qk_norm"});
    EXPECT_EQ(message(accepted), "");
    EXPECT_EQ(message({.all = true}), "");
}

// The keys that transformers 4.57.6 writes: LlamaConfig().to_dict() and so on, and values of other versions.
TEST(HuggingFaceConfig, KeysOfTransformersAreKnown) {
    json config = json::parse(R"({
        "_name_or_path": "", "add_cross_attention": false, "architectures": null, "attention_bias": false,
        "attention_dropout": 0.0, "bad_words_ids": null, "begin_suppress_tokens": null, "bos_token_id": 1,
        "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null, "decoder_start_token_id": null,
        "diversity_penalty": 0.0, "do_sample": false, "dtype": "bfloat16", "early_stopping": false,
        "encoder_no_repeat_ngram_size": 0, "eos_token_id": [2, 3], "exponential_decay_length_penalty": null,
        "finetuning_task": null, "forced_bos_token_id": null, "forced_eos_token_id": null, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 4096, "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "initializer_range": 0.02, "intermediate_size": 11008, "is_decoder": false, "is_encoder_decoder": false,
        "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20,
        "max_position_embeddings": 2048, "min_length": 0, "mlp_bias": false, "model_type": "llama",
        "no_repeat_ngram_size": 0, "num_attention_heads": 32, "num_beam_groups": 1, "num_beams": 1,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "num_return_sequences": 1, "output_attentions": false,
        "output_hidden_states": false, "output_scores": false, "pad_token_id": 0, "prefix": null,
        "pretraining_tp": 1, "problem_type": null, "pruned_heads": {}, "remove_invalid_values": false,
        "repetition_penalty": 1.0, "return_dict": true, "return_dict_in_generate": false, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 10000.0, "sep_token_id": null, "suppress_tokens": null,
        "task_specific_params": null, "temperature": 1.0, "tf_legacy_loss": false, "tie_encoder_decoder": false,
        "tie_word_embeddings": false, "tokenizer_class": null, "top_k": 50, "top_p": 1.0,
        "torch_dtype": "float16", "torchscript": false, "transformers_version": "4.57.6", "typical_p": 1.0,
        "use_bfloat16": false, "use_cache": true, "vocab_size": 32000, "partial_rotary_factor": 1,
        "_attn_implementation_autoset": true, "quantization_config": null
    })");
    EXPECT_EQ(read(config).num_kv_heads, 32);
    for (const char* family : {"qwen2", "qwen3"}) {
        config.merge_patch({{"model_type", family},
                            {"attention_bias", nullptr},
                            {"pretraining_tp", nullptr},
                            {"use_sliding_window", false},
                            {"sliding_window", 4096},
                            {"max_window_layers", 28},
                            {"layer_types", std::vector<std::string>(32, "full_attention")}});
        EXPECT_EQ(read(config).name, family);
    }
}

TEST(HuggingFaceConfig, AWindowThatNoLayerOfQwenHas) {
    json config = llama_8b();  // 32 layers
    for (const char* family : {"qwen2", "qwen3"}) {
        config.merge_patch({{"model_type", family},
                            {"attention_bias", nullptr},
                            {"use_sliding_window", true},
                            {"sliding_window", 4096}});
        for (const int from : {32, 33}) {
            config["max_window_layers"] = from;
            EXPECT_EQ(read(config).sliding_window, std::nullopt);
        }
        config["max_window_layers"] = 31;
        EXPECT_ERROR(read(config), UserError, "\"use_sliding_window\" is true");
        config.erase("max_window_layers");
        EXPECT_ERROR(read(config), UserError, "\"use_sliding_window\" is true");
        config["num_hidden_layers"] = 28;
        EXPECT_EQ(read(config).sliding_window, std::nullopt) << "transformers' default of max_window_layers";
        config["num_hidden_layers"] = 32;
    }
}

TEST(HuggingFaceConfig, WindowOfMistral) {
    json config = llama_8b();
    config["model_type"] = "mistral";
    EXPECT_EQ(read(config).sliding_window, 4096) << "transformers' default";
    config["sliding_window"] = 100;
    const ModelSpec spec = read(config);
    EXPECT_EQ(spec.sliding_window, 100);
    EXPECT_EQ(read(json::parse(hugging_face_config(spec))), spec);
    config["sliding_window"] = nullptr;
    EXPECT_EQ(read(config).sliding_window, std::nullopt);
    EXPECT_EQ(differences(spec, read(config)), std::vector<std::string>{"sliding_window: 100 against none"});
}

TEST(HuggingFaceConfig, LayersOfOlmo) {
    json config = llama_8b();
    config["model_type"] = "olmo2";
    config.erase("rms_norm_eps");
    const ModelSpec olmo2 = read(config);
    EXPECT_EQ(olmo2.norms, NormPlace::After);
    EXPECT_EQ(olmo2.qk_norm, QkNorm::Together);
    EXPECT_EQ(olmo2.norm_eps, 1e-5);
    EXPECT_EQ(layer_spec(olmo2, 0), LayerSpec());
    config["model_type"] = "olmo3";
    ModelSpec olmo3 = read(config);
    const LayerSpec windowed{.window = 4096};
    for (const int64_t layer : {0, 1, 2, 4, 30}) EXPECT_EQ(layer_spec(olmo3, layer), windowed) << layer;
    for (const int64_t layer : {3, 7, 31}) EXPECT_EQ(layer_spec(olmo3, layer), LayerSpec()) << layer;
    // Only the layers without the window scale their frequencies.
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
    olmo3 = read(config);
    EXPECT_TRUE(layer_spec(olmo3, 0).rotates_as_windowed);
    EXPECT_FALSE(layer_spec(olmo3, 3).rotates_as_windowed);
    EXPECT_EQ(window_rope_frequencies(olmo3)[1], 2 * rope_frequencies(olmo3)[1]);

    config["layer_types"] = std::vector<std::string>(32, "sliding_attention");
    EXPECT_EQ(read(config).full_layer_period, 0);
    for (int layer = 1; layer < 32; layer += 2) config["layer_types"][layer] = "full_attention";
    EXPECT_EQ(read(config).full_layer_period, 2);
    config["layer_types"][31] = "sliding_attention";
    EXPECT_ERROR(read(config), UserError, "\"layer_types\"", "\"sliding_attention\" for layer 31",
                 "every n-th");
    config["layer_types"] = std::vector<std::string>(32, "full_attention");
    config["sliding_window"] = nullptr;
    EXPECT_EQ(read(config).sliding_window, std::nullopt);
    EXPECT_EQ(read(json::parse(hugging_face_config(read(config)))), read(config));
    config["layer_types"].push_back("full_attention");
    EXPECT_ERROR(read(config), UserError, "33 entries");
}

// The keys of transformers 4 and of transformers 5.
TEST(HuggingFaceConfig, Gemma3) {
    json config = {{"model_type", "gemma3_text"},   {"vocab_size", 262144},
                   {"hidden_size", 1152},           {"num_hidden_layers", 26},
                   {"num_attention_heads", 4},      {"num_key_value_heads", 1},
                   {"intermediate_size", 6912},     {"sliding_window", 512},
                   {"sliding_window_pattern", 6},   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"query_pre_attn_scalar", 256},  {"attn_logit_softcapping", nullptr},
                   {"rope_local_base_freq", 10000}, {"rope_theta", 1000000}};
    EXPECT_EQ(differences(read(config), preset("gemma3", "1B")), std::vector<std::string>{});
    for (const char* key : {"sliding_window_pattern", "rope_local_base_freq", "rope_theta"})
        config.erase(key);
    EXPECT_EQ(differences(read(config), preset("gemma3", "1B")), std::vector<std::string>{})
        << "the defaults";
    config["rope_parameters"] = {
        {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7000.0}}}};
    const ModelSpec newer = read(config);
    EXPECT_EQ(newer.window_rope_theta, 7000);
    EXPECT_EQ(newer.rope_theta, 1e6);
    EXPECT_EQ(newer.rope_scaling->factor, 8);
    EXPECT_EQ(read(json::parse(hugging_face_config(newer))), newer);
    config["rope_local_base_freq"] = 8000;
    EXPECT_ERROR(read(config), UserError, "\"rope_local_base_freq\" is 8000", "7000");
    config.erase("rope_local_base_freq");
    config["rope_parameters"]["sliding_attention"]["factor"] = 2;
    EXPECT_ERROR(read(config), UserError, "\"rope_parameters.sliding_attention\" has keys", "factor");
    config.erase("rope_parameters");
    config["final_logit_softcapping"] = 30.0;
    EXPECT_ERROR(read(config), UserError, "\"final_logit_softcapping\" is 30");
    config["final_logit_softcapping"] = nullptr;
    config["hidden_activation"] = "gelu";
    EXPECT_ERROR(read(config), UserError, "\"hidden_activation\" is \"gelu\"", "gelu_pytorch_tanh");
    ModelSpec spec = preset("gemma3", "1B");
    spec.scaled_embeddings = false;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "Gemma3ForCausalLM", "scaled_embeddings");
}

// transformers 4.57.6 gave the attention factor.
TEST(HuggingFaceConfig, Phi3) {
    json config = {{"model_type", "phi3"},    {"vocab_size", 32064},       {"hidden_size", 3072},
                   {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"intermediate_size", 8192},
                   {"sliding_window", 2047},  {"resid_pdrop", 0.0},        {"embd_pdrop", 0.0},
                   {"attention_dropout", 0.0}};
    EXPECT_EQ(read(config), preset("phi3", "mini-4k"));
    config.erase("sliding_window");
    EXPECT_EQ(read(config).sliding_window, std::nullopt) << "the default";
    config["resid_pdrop"] = 0.1;
    EXPECT_ERROR(read(config), UserError, "\"resid_pdrop\" is 0.1");
    config.erase("resid_pdrop");

    config["partial_rotary_factor"] = 0.1;  // 9 of 96 elements
    EXPECT_ERROR(read(config), UserError, "\"partial_rotary_factor\" is 0.1", "even", "96");
    config["partial_rotary_factor"] = 1.5;
    EXPECT_ERROR(read(config), UserError, "\"partial_rotary_factor\" is 1.5");
    config["partial_rotary_factor"] = 0.0625;
    EXPECT_EQ(read(config).rotary_dim, 6);
    config["max_position_embeddings"] = 131072;
    config["rope_scaling"] = {{"type", "su"}, {"short_factor", {1, 1.5, 2}}, {"long_factor", {3, 4, 5}}};
    const ModelSpec spec = read(config);
    EXPECT_EQ(spec.rope_scaling->original_context, 4096);
    EXPECT_EQ(spec.rope_scaling->long_factors, (std::vector<double>{3, 4, 5}));
    EXPECT_DOUBLE_EQ(spec.rope_scaling->attention_factor, 1.1902380714238083);
    EXPECT_EQ(read(json::parse(hugging_face_config(spec))), spec);
    json newer = config;
    newer["rope_parameters"] = {
        {"rope_type", "longrope"},         {"short_factor", {1, 1.5, 2}},
        {"long_factor", {3, 4, 5}},        {"rope_theta", 10000.0},
        {"partial_rotary_factor", 0.0625}, {"original_max_position_embeddings", 4096}};
    for (const char* key : {"rope_scaling", "partial_rotary_factor"}) newer.erase(key);
    EXPECT_EQ(read(newer), spec);
    newer["rope_parameters"]["attention_factor"] = 2;
    EXPECT_ERROR(read(newer), UserError, "attention_factor\" is 2", "1.19");
    newer["rope_parameters"].erase("attention_factor");
    newer["partial_rotary_factor"] = 1.0;
    EXPECT_ERROR(read(newer), UserError, "has 3 numbers", "48");

    config["rope_scaling"]["short_factor"] = {1, 2};
    EXPECT_ERROR(read(config), UserError, "\"rope_scaling.short_factor\" has 2 numbers", "3");
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
    EXPECT_ERROR(read(config), UserError, "\"linear\"", "default and longrope");
    ModelSpec changed = spec;
    changed.max_context = 8192;
    EXPECT_ERROR(hugging_face_config(changed), UserError, "Phi3ForCausalLM", "attention factor");
    changed = preset("llama3", "8B");
    changed.rotary_dim = 64;
    EXPECT_ERROR(hugging_face_config(changed), UserError, "LlamaForCausalLM", "rotary_dim: 0 against 64");
}

TEST(HuggingFaceConfig, BiasesByFamily) {
    json config = llama_8b();
    config.merge_patch({{"attention_bias", true}, {"mlp_bias", true}});
    const ModelSpec llama = read(config);
    EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
    config.merge_patch({{"model_type", "qwen2"}, {"mlp_bias", nullptr}});
    const ModelSpec qwen2 = read(config);
    EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.mlp_bias);
    config["model_type"] = "qwen3";
    const ModelSpec qwen3 = read(config);
    EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias && !qwen3.mlp_bias && qwen3.qk_norm == QkNorm::Heads);
}

// transformers 4.57.6 gave the attention factors.
TEST(HuggingFaceConfig, DefaultsOfYarn) {
    json config = llama_8b();
    json& rope = config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
    config["max_position_embeddings"] = 1000;
    RopeScaling expected{.type = RopeScaling::Type::Yarn, .factor = 4, .original_context = 1000};
    expected.attention_factor = 1.138629436111989;
    EXPECT_EQ(read(config).rope_scaling, expected);
    rope["mscale"] = 0.707;  // no effect without mscale_all_dim
    EXPECT_EQ(read(config).rope_scaling, expected);
    rope["mscale_all_dim"] = 1.5;
    EXPECT_DOUBLE_EQ(read(config).rope_scaling->attention_factor, 0.9089915353640435);
    rope["attention_factor"] = 1.5;
    EXPECT_EQ(read(config).rope_scaling->attention_factor, 1.5);
    rope = {{"rope_type", "yarn"}, {"factor", 0.5}};
    EXPECT_EQ(read(config).rope_scaling->attention_factor, 1);
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
    std::vector<ModelSpec> specs = every_preset();
    EXPECT_EQ(specs.size(), 50u);
    ModelSpec linear = specs[0], yarn = specs[0];
    linear.rope_scaling = {.type = RopeScaling::Type::Linear, .factor = 2.5};
    linear.qkv_bias = linear.output_bias = linear.mlp_bias = true;
    yarn.rope_scaling = {.type = RopeScaling::Type::Yarn,
                         .factor = 3.5,
                         .original_context = 77,
                         .beta_slow = 1.5,
                         .beta_fast = 16.5,
                         .truncate = false,
                         .attention_factor = 1.1};
    yarn.mlp_bias = true;
    ModelSpec longrope = preset("phi3", "4");
    longrope.head_dim = 126;
    longrope.dim = longrope.num_heads * longrope.head_dim;
    longrope.rotary_dim = 122;  // transformers would round 126 * (122 / 126.) down
    longrope.rope_scaling = {.type = RopeScaling::Type::Longrope, .original_context = 5000};
    longrope.rope_scaling->short_factors = std::vector<double>(61, 1.1);
    longrope.rope_scaling->long_factors = std::vector<double>(61, 2.5);
    specs.insert(specs.end(), {linear, yarn, longrope});
    for (ModelSpec spec : specs) {
        spec.norm_eps = 1.1e-6;  // no other key's default
        spec.rope_theta = 0.1 + 1e5;
        spec.max_context = 4097;
        if (spec.name == "olmo3") spec.window_rope_theta = spec.rope_theta;
        if (spec.rope_scaling && spec.rope_scaling->type == RopeScaling::Type::Longrope) {
            spec.rope_scaling->original_context = spec.max_context;
            EXPECT_EQ(spec.rope_scaling->attention_factor, 1);
        }
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

TEST(HuggingFaceConfig, KeysOfGemmaForOldAndNewReaders) {
    const json config = json::parse(hugging_face_config(preset("gemma3", "4B")));
    EXPECT_EQ(config["sliding_window_pattern"], 6);
    EXPECT_EQ(config["layer_types"].size(), 34);
    EXPECT_EQ(config["layer_types"][5], "full_attention");
    EXPECT_EQ(config["rope_theta"], 1e6);
    EXPECT_EQ(config["rope_local_base_freq"], 1e4);
    EXPECT_EQ(config["rope_scaling"], (json{{"rope_type", "linear"}, {"factor", 8.0}}));
    EXPECT_EQ(config["rope_parameters"]["full_attention"],
              (json{{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}));
    EXPECT_EQ(config["rope_parameters"]["sliding_attention"],
              (json{{"rope_type", "default"}, {"rope_theta", 1e4}}));
    EXPECT_TRUE(config["pad_token_id"].is_null());
}

TEST(HuggingFaceConfig, AnUnknownArchitectureIsNotWritten) {
    ModelSpec spec = preset("llama3", "8B");
    spec.qk_norm = QkNorm::Heads;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "LlamaForCausalLM",
                 "qk_norm: none against of each head");
    spec = preset("olmo2", "1B");
    spec.full_layer_period = 2;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "Olmo2ForCausalLM", "full_layer_period: 0 against 2");
}

TEST(HuggingFaceConfig, RefusesFilesThatAreNoConfig) {
    EXPECT_THROW(read_hugging_face_config("/no/such/folder"), UserError);
    const auto message = [](const std::string& text) -> std::string {
        try {
            parse_hugging_face_config(text, "a/config.json");
        } catch (const UserError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(message("[1, 2]"), "a/config.json is not a JSON object");
    const auto expect_parts = [&](const std::string& text, const std::vector<std::string>& parts) {
        for (const std::string& part : parts) {
            EXPECT_NE(message(text).find(part), std::string::npos) << part << " in " << message(text);
        }
    };
    expect_parts("{\"model_type\": ", {"a/config.json: bad JSON at byte 15", "unexpected end of input"});
    expect_parts("{\n\"model_type\": \"\xff\xfe\"}",
                 {"a/config.json: bad JSON at line 2, byte 16", "ill-formed UTF-8 byte"});
    expect_parts(R"({"rope_theta": 1e400})", {"a/config.json: bad JSON at byte", "number overflow", "1e400"});
    EXPECT_NE(message("").find("unexpected end of input"), std::string::npos) << message("");
}

}  // namespace
}  // namespace argosy::model
