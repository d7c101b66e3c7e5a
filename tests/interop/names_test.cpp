#include "interop/names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "expect_error.h"
#include "interop/conversions.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::TensorInfo;

/// Tensors that are all zeros, but for those of `ones`.
class Fake : public checkpoint::TensorSource {
  public:
    explicit Fake(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    void read(const TensorInfo& tensor, const layout::Slab&, std::span<std::byte> out) const override {
        std::ranges::fill(out, static_cast<std::byte>(tensor.name == ones));
    }
    const std::string& place() const override { return place_; }
    std::string ones;

  private:
    std::string place_ = "somewhere";
    std::vector<TensorInfo> tensors_;
};

std::vector<TensorInfo> theirs(const model::ModelSpec& spec) {
    return hugging_face_tensors(spec, ElementType::Float32);
}

auto open(std::vector<TensorInfo> tensors, const model::ModelSpec& spec, const std::string& ones = "") {
    auto fake = std::make_unique<Fake>(std::move(tensors));
    fake->ones = ones;
    return with_checkpoint_names(std::move(fake), spec);
}

TEST(Names, AreHuggingFaces) {
    std::vector<std::string> ours, names;
    auto spec = tiny_spec("qwen3");
    spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
    spec.num_layers = 12;
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        if (parameter.name.starts_with("layers.") && !parameter.name.starts_with("layers.11.")) continue;
        ours.push_back(parameter.name);
        names.push_back(hugging_face_place(parameter, spec).name);
    }
    const std::string layer = "model.layers.11.";
    EXPECT_EQ(names, (std::vector<std::string>{"model.embed_tokens.weight",
                                               layer + "input_layernorm.weight",
                                               layer + "self_attn.q_proj.weight",
                                               layer + "self_attn.k_proj.weight",
                                               layer + "self_attn.v_proj.weight",
                                               layer + "self_attn.o_proj.weight",
                                               layer + "post_attention_layernorm.weight",
                                               layer + "mlp.gate_proj.weight",
                                               layer + "mlp.up_proj.weight",
                                               layer + "mlp.down_proj.weight",
                                               layer + "self_attn.q_proj.bias",
                                               layer + "self_attn.k_proj.bias",
                                               layer + "self_attn.v_proj.bias",
                                               layer + "self_attn.o_proj.bias",
                                               layer + "self_attn.q_norm.weight",
                                               layer + "self_attn.k_norm.weight",
                                               layer + "mlp.gate_proj.bias",
                                               layer + "mlp.up_proj.bias",
                                               layer + "mlp.down_proj.bias",
                                               "model.norm.weight",
                                               "lm_head.weight"}));
    EXPECT_EQ(ours[7], "layers.11.feed_forward.w1.weight");
    EXPECT_EQ(ours[8], "layers.11.feed_forward.w3.weight");
    EXPECT_EQ(ours[9], "layers.11.feed_forward.w2.weight");
}

TEST(Names, RowsOfFusedMatrices) {
    const auto spec = tiny_spec("phi3");
    std::vector<std::string> places;
    for (const layout::ParamSpec& parameter : model::model_parameters(spec)) {
        const HuggingFacePlace place = hugging_face_place(parameter, spec);
        if (!place.name.starts_with("model.layers.1.") || place.shape == parameter.shape) continue;
        EXPECT_EQ(place.shape[1], parameter.shape[1]);
        places.push_back(fmt::format("{} [{}, {} of {})", place.name.substr(15), place.first_row,
                                     place.first_row + parameter.shape[0], place.shape[0]));
    }
    EXPECT_EQ(places,
              (std::vector<std::string>{
                  "self_attn.qkv_proj.weight [0, 60 of 100)", "self_attn.qkv_proj.weight [60, 80 of 100)",
                  "self_attn.qkv_proj.weight [80, 100 of 100)", "mlp.gate_up_proj.weight [0, 37 of 74)",
                  "mlp.gate_up_proj.weight [37, 74 of 74)"}));
    auto tensors = theirs(spec);
    std::erase_if(tensors,
                  [](const auto& tensor) { return tensor.name.ends_with("1.mlp.gate_up_proj.weight"); });
    std::ranges::find(tensors, "model.layers.0.self_attn.qkv_proj.weight", &TensorInfo::name)->shape = {60,
                                                                                                        26};
    EXPECT_ERROR(open(tensors, spec), UserError,
                 "model.layers.0.self_attn.qkv_proj.weight has shape [60, 26], expected [100, 26]",
                 "model.layers.1.mlp.gate_up_proj.weight is missing");
}

TEST(Names, EveryModelIsRenamedWhole) {
    for (const std::string& name : kTinyModels) {
        const auto spec = tiny_spec(name);
        const auto renamed = open(theirs(spec), spec);
        EXPECT_EQ(renamed->tensors(), tiny_tensors(spec, ElementType::Float32, false)) << name;
        check_weights(*renamed, spec);
    }
}

TEST(Names, AllFaultsAreInOneMessage) {
    const auto spec = tiny_spec("llama");
    auto tensors = theirs(spec);
    tensors.erase(tensors.begin());        // the embedding
    tensors[0].shape = {27};               // the first norm
    tensors[1].type = ElementType::Int64;  // q_proj
    tensors.push_back({"model.layers.2.mlp.up_proj.weight", ElementType::Float32, {1}});
    tensors.push_back({"rotary\nfake", ElementType::Float32, {1}});
    EXPECT_ERROR(open(tensors, spec), UserError, "somewhere", "llama3, 2 layers",
                 "model.embed_tokens.weight is missing",
                 "model.layers.0.input_layernorm.weight has shape [27], expected [26]",
                 "model.layers.0.self_attn.q_proj.weight has elements of type i64",
                 "\"model.layers.2.mlp.up_proj.weight\" is not a tensor of the model",
                 "\"rotary\\nfake\" is not a tensor");
    EXPECT_ERROR(open({}, spec), UserError, "is missing", "and 1 more");
}

TEST(Names, RotaryTablesOfOlderExportsArePassedOver) {
    const auto spec = tiny_spec("llama");
    auto tensors = theirs(spec);
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", ElementType::Float32, {5}});
    EXPECT_EQ(open(tensors, spec)->tensors().size(), tensors.size() - 1);
}

TEST(Names, ATiedModelMayHaveAHeadThatEqualsItsTable) {
    const auto spec = tiny_spec("llama_tied");
    auto tensors = theirs(spec);
    tensors.push_back({"lm_head.weight", ElementType::Float32, {61, 26}});
    EXPECT_EQ(open(tensors, spec)->tensors().size(), tensors.size() - 1);
    EXPECT_ERROR(open(tensors, spec, "lm_head.weight"), UserError,
                 "lm_head.weight differs from model.embed_tokens.weight", "ties");
    tensors.back().type = ElementType::BFloat16;
    EXPECT_ERROR(open(tensors, spec), UserError, "lm_head.weight differs");
}

TEST(Names, AnUntiedModelWithoutAHeadIsRefused) {
    auto tensors = theirs(tiny_spec("llama"));
    tensors.pop_back();
    EXPECT_ERROR(open(tensors, tiny_spec("llama")), UserError, "lm_head.weight is missing");
}

TEST(Names, ACheckpointsWeightsAreHeldAgainstItsModel) {
    const auto spec = tiny_spec("qwen2");
    auto tensors = tiny_tensors(spec, ElementType::Float32, true);
    check_weights(Fake(tensors), spec);
    tensors.erase(tensors.begin() + 1);
    tensors.push_back({"model/more", ElementType::Float32, {1}});
    EXPECT_ERROR(check_weights(Fake(tensors), spec), UserError,
                 "model/layers.0.attention_norm.weight is missing", "\"model/more\" is not a tensor");
}

}  // namespace
}  // namespace argosy::interop
