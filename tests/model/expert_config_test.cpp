// config.json of the families with experts: Mixtral, Qwen3-MoE and GLM-4-MoE.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "expect_error.h"
#include "model/model_spec.h"

namespace argosy::model {
namespace {

using nlohmann::json;

ModelSpec spec_of(const json& config) { return parse_hugging_face_config(config.dump(), "a/config.json"); }

ModelSpec spec_with(json config, const json& change) {
    config.merge_patch(change);
    return spec_of(config);
}

/// With all keys that transformers writes for the family alone.
json mixtral_8x7b() {
    return json::parse(R"({
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8, "rms_norm_eps": 1e-05,
        "output_router_logits": false, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0,
        "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false
    })");
}

json qwen3_30b() {
    return json::parse(R"({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": false,
        "attention_dropout": 0.0, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
        "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
        "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936
    })");
}

json glm4_moe() {
    return json::parse(R"({
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": true,
        "attention_dropout": 0.0, "first_k_dense_replace": 2, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 65536,
        "moe_intermediate_size": 1500, "n_group": 4, "n_routed_experts": 160, "n_shared_experts": 2,
        "norm_topk_prob": false, "num_attention_heads": 96, "num_experts_per_tok": 6, "num_hidden_layers": 5,
        "num_key_value_heads": 4, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000.0, "routed_scaling_factor": 2.5, "tie_word_embeddings": false,
        "topk_group": 2, "use_cache": true, "use_qk_norm": true, "vocab_size": 151552
    })");
}

TEST(ExpertConfig, OfGlm) {
    const ModelSpec spec = spec_of(glm4_moe());
    const ExpertSpec expected{.router = {.num_experts = 160,
                                         .top_k = 6,
                                         .score = ops::Router::Score::Sigmoid,
                                         .normalize = false,
                                         .scale = 2.5,
                                         .num_groups = 4,
                                         .top_groups = 2},
                              .hidden_dim = 1500,
                              .shared_hidden_dim = 3000,
                              .dense_layers = {0, 1}};
    EXPECT_EQ(spec.experts, expected);
    EXPECT_EQ(spec.rotary_dim, 32);
    EXPECT_EQ(spec.qk_norm, QkNorm::Heads);
    EXPECT_TRUE(spec.qkv_bias && !spec.output_bias);
    EXPECT_EQ(spec_of(json::parse(hugging_face_config(spec))), spec);
    // As the file of GLM-4.5-Air has it.
    EXPECT_EQ(spec_with(glm4_moe(), {{"first_k_dense_replace", 1},
                                     {"max_position_embeddings", 131072},
                                     {"moe_intermediate_size", 1408},
                                     {"n_group", 1},
                                     {"n_routed_experts", 128},
                                     {"n_shared_experts", 1},
                                     {"norm_topk_prob", true},
                                     {"num_experts_per_tok", 8},
                                     {"num_hidden_layers", 46},
                                     {"num_key_value_heads", 8},
                                     {"num_nextn_predict_layers", 1},
                                     {"partial_rotary_factor", 0.5},
                                     {"rms_norm_eps", 1e-5},
                                     {"routed_scaling_factor", 1.0},
                                     {"topk_group", 1},
                                     {"use_qk_norm", false}}),
              preset("glm4_moe", "106B-A12B"));
    // All layers, or none, have experts.
    for (const int num_dense : {0, 5, 9}) {
        const ModelSpec other = spec_with(glm4_moe(), {{"first_k_dense_replace", num_dense}});
        EXPECT_EQ(other.experts.has_value(), num_dense == 0);
        EXPECT_EQ(spec_of(json::parse(hugging_face_config(other))), other);
    }
    json absent = glm4_moe();
    for (const char* key :
         {"first_k_dense_replace", "moe_intermediate_size", "n_group", "n_routed_experts", "n_shared_experts",
          "norm_topk_prob", "num_experts_per_tok", "num_key_value_heads", "partial_rotary_factor",
          "rms_norm_eps", "rope_theta", "routed_scaling_factor", "topk_group", "use_qk_norm", "head_dim",
          "attention_bias", "max_position_embeddings"})
        absent.erase(key);
    absent["num_attention_heads"] = 32;
    const ModelSpec usual = spec_of(absent);
    const ExpertSpec by_default{
        .router = {.num_experts = 128, .top_k = 8, .score = ops::Router::Score::Sigmoid},
        .hidden_dim = 1408,
        .shared_hidden_dim = 1408,
        .dense_layers = {0}};
    EXPECT_EQ(usual.experts, by_default);
    EXPECT_EQ(usual.num_kv_heads, 8);
    EXPECT_EQ(usual.rotary_dim, 64);
    EXPECT_EQ(usual.qk_norm, QkNorm::None);
    EXPECT_EQ(usual.rope_theta, 10000);
    EXPECT_EQ(usual.norm_eps, 1e-5);
    EXPECT_EQ(usual.max_context, 131072);
}

TEST(ExpertConfig, OfPublishedModelsIsThePreset) {
    EXPECT_EQ(differences(spec_of(mixtral_8x7b()), preset("mixtral", "8x7B")), std::vector<std::string>{});
    EXPECT_EQ(differences(spec_of(qwen3_30b()), preset("qwen3_moe", "30B-A3B")), std::vector<std::string>{});
}

TEST(ExpertConfig, AbsentKeysHaveTransformersDefaults) {
    json mixtral = mixtral_8x7b(), qwen = qwen3_30b();
    for (const char* key : {"num_experts_per_tok", "num_local_experts", "router_jitter_noise", "rope_theta",
                            "output_router_logits", "sliding_window", "num_key_value_heads", "rms_norm_eps"})
        mixtral.erase(key);
    EXPECT_EQ(differences(spec_of(mixtral), preset("mixtral", "8x7B")), std::vector<std::string>{});
    mixtral.erase("max_position_embeddings");
    EXPECT_EQ(spec_of(mixtral).max_context, 131072);
    for (const char* key : {"num_experts_per_tok", "num_experts", "moe_intermediate_size", "head_dim",
                            "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob", "num_key_value_heads",
                            "max_position_embeddings", "rope_theta"})
        qwen.erase(key);
    const ModelSpec spec = spec_of(qwen);
    const ExpertSpec expected{.router = {.num_experts = 128, .top_k = 8, .normalize = false},
                              .hidden_dim = 768};
    EXPECT_EQ(spec.experts, expected);
    EXPECT_EQ(spec.head_dim, 64);
    EXPECT_EQ(spec.num_kv_heads, 4);
    EXPECT_EQ(spec.max_context, 32768);
    EXPECT_EQ(spec.rope_theta, 10000);
}

TEST(ExpertConfig, WhichLayersHaveExperts) {
    const json change = {{"num_hidden_layers", 7}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {6, 3}}};
    const ModelSpec spec = spec_with(qwen3_30b(), change);
    EXPECT_EQ(spec.experts->dense_layers, (std::vector<int64_t>{3, 6}));
    std::vector<int64_t> found;
    for (int64_t layer = 0; layer < 7; ++layer)
        if (layer_spec(spec, layer).has_experts) found.push_back(layer);
    EXPECT_EQ(found, (std::vector<int64_t>{1, 5}));
    EXPECT_EQ(spec_of(json::parse(hugging_face_config(spec))), spec);
    // A model of which no layer has experts is a dense one.
    for (const json& none : {json{{"num_experts", 0}}, json{{"decoder_sparse_step", 8}},
                             json{{"decoder_sparse_step", 3}, {"mlp_only_layers", {2, 5}}}}) {
        json config = qwen3_30b();
        config.merge_patch(change);
        const ModelSpec dense = spec_with(config, none);
        EXPECT_EQ(dense.experts, std::nullopt) << none;
        EXPECT_EQ(spec_of(json::parse(hugging_face_config(dense))), dense);
    }
}

TEST(ExpertConfig, WindowAndBiases) {
    const ModelSpec windowed = spec_with(mixtral_8x7b(), {{"sliding_window", 100}});
    EXPECT_EQ(windowed.sliding_window, 100);
    EXPECT_EQ(spec_of(json::parse(hugging_face_config(windowed))), windowed);
    const ModelSpec biased = spec_with(qwen3_30b(), {{"attention_bias", true}});
    EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
    EXPECT_EQ(spec_of(json::parse(hugging_face_config(biased))), biased);
}

TEST(ExpertConfig, RefusesImpossibleValues) {
    const auto refused = [](const json& config, const json& change, std::vector<std::string> parts) {
        try {
            spec_with(config, change);
            ADD_FAILURE() << "accepted " << change;
        } catch (const UserError& error) {
            parts.emplace_back("a/config.json");
            expect_message(error.what(), parts);
        }
    };
    const json mixtral = mixtral_8x7b(), qwen = qwen3_30b();
    refused(mixtral, {{"num_local_experts", 0}}, {"\"num_local_experts\" is 0", "from 1 to"});
    refused(mixtral, {{"num_experts_per_tok", 9}},
            {"\"num_experts_per_tok\" is 9, but \"num_local_experts\" is 8"});
    refused(mixtral, {{"num_local_experts", 1}, {"num_experts_per_tok", nullptr}},
            {"\"num_experts_per_tok\" is 2, but \"num_local_experts\" is 1"});
    refused(mixtral, {{"num_experts_per_tok", 0}}, {"\"num_experts_per_tok\" is 0"});
    refused(mixtral, {{"router_jitter_noise", 0.1}}, {"\"router_jitter_noise\" is 0.1", "only 0.0"});
    refused(mixtral, {{"output_router_logits", true}},
            {"\"output_router_logits\" is true", "loss of the routers of all layers together"});
    refused(mixtral, {{"num_experts", 8}}, {"\"num_experts\" is 8", "only 0"});
    refused(mixtral, {{"mlp_bias", true}}, {"\"mlp_bias\" is true", "only false"});
    refused(mixtral, {{"attention_bias", true}}, {"\"attention_bias\" is true", "only false"});
    refused(mixtral, {{"norm_topk_prob", true}}, {"keys that this program does not know", "norm_topk_prob"});
    refused(mixtral, {{"num_local_experts", 100}}, {"\"num_local_experts\", 100", "14336", "more than"});
    refused(mixtral, {{"sliding_window", 0}}, {"\"sliding_window\" is 0"});
    refused(qwen, {{"num_experts", -1}}, {"\"num_experts\" is -1"});
    refused(qwen, {{"num_experts", 4}}, {"\"num_experts_per_tok\" is 8, but \"num_experts\" is 4"});
    refused(qwen, {{"decoder_sparse_step", 0}}, {"\"decoder_sparse_step\" is 0", "from 1 to"});
    refused(qwen, {{"mlp_only_layers", {48}}}, {"mlp_only_layers", "48", "from 0 to 47"});
    refused(qwen, {{"mlp_only_layers", {-1}}}, {"mlp_only_layers", "-1"});
    refused(qwen, {{"mlp_only_layers", {3, 1, 3}}}, {"\"mlp_only_layers\" has layer 3 twice"});
    refused(qwen, {{"moe_intermediate_size", 0}}, {"\"moe_intermediate_size\" is 0"});
    refused(qwen, {{"norm_topk_prob", 1}}, {"\"norm_topk_prob\" is 1", "not true or false"});
    refused(qwen, {{"output_router_logits", true}}, {"\"output_router_logits\" is true"});
    refused(qwen, {{"mlp_bias", true}}, {"\"mlp_bias\" is true", "only false"});
    refused(qwen, {{"use_sliding_window", true}}, {"\"use_sliding_window\" is true", "only false"});
    refused(qwen, {{"num_local_experts", 8}}, {"\"num_local_experts\" is 8", "only 0"});
    refused(qwen, {{"n_shared_experts", 1}}, {"keys that this program does not know", "n_shared_experts"});
}

TEST(ExpertConfig, RefusesImpossibleGroups) {
    const auto refused = [](const json& change, const std::string& part) {
        EXPECT_ERROR(spec_with(glm4_moe(), change), UserError, "a/config.json", part);
    };
    refused({{"n_group", 3}}, "\"n_group\" is 3, which does not divide \"n_routed_experts\", 160");
    refused({{"topk_group", 5}}, "\"topk_group\" is 5");
    refused({{"n_group", 80}}, "\"topk_group\" is 2, and so many groups have 4 experts, but");
    refused({{"n_shared_experts", 0}}, "\"n_shared_experts\" is 0");
    refused({{"n_routed_experts", 0}}, "\"n_routed_experts\" is 0");
    refused({{"first_k_dense_replace", -1}}, "\"first_k_dense_replace\" is -1");
    refused({{"routed_scaling_factor", 0}}, "\"routed_scaling_factor\" is 0, which is not above 0");
    refused({{"n_group", 160}}, "\"n_group\" is 160, but a group is judged by its two best experts");
    refused({{"num_experts", 8}}, "\"num_experts\" is 8, but only 0");
    refused({{"output_router_logits", true}}, "\"output_router_logits\" is true");
}

TEST(ExpertConfig, AModelThatNoFamilyHasIsNotWritten) {
    ModelSpec spec = preset("mixtral", "8x7B");
    spec.experts->router.normalize = false;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "MixtralForCausalLM", "experts: 2 of 8");
    spec = preset("mixtral", "8x7B");
    spec.experts->hidden_dim = 64;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "experts: 2 of 8 with 14336 columns",
                 "with 64 columns");
    spec = preset("qwen3_moe", "30B-A3B");
    spec.experts->router.score = ops::Router::Score::Sigmoid;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "Qwen3MoeForCausalLM", "sigmoid");
    spec = spec_of(glm4_moe());
    spec.experts->shared_hidden_dim = 0;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "Glm4MoeForCausalLM", "shared 1500 against",
                 "shared 0");
    spec = preset("llama3", "8B");
    spec.experts = preset("mixtral", "8x7B").experts;
    EXPECT_ERROR(hugging_face_config(spec), UserError, "LlamaForCausalLM", "experts: none against 2 of 8");
}

}  // namespace
}  // namespace argosy::model
