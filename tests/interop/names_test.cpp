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
    for (const MappedTensor& tensor : hugging_face_map(spec).ours) {
        const std::string parameter = tensor.name.substr(6);
        if (parameter.starts_with("layers.") && !parameter.starts_with("layers.11.")) continue;
        ours.push_back(parameter);
        names.push_back(tensor.pieces.at(0).tensor);
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
    const TensorMap map = hugging_face_map(spec);
    std::vector<std::string> places;
    for (const MappedTensor& tensor : map.ours) {
        const Piece& piece = tensor.pieces.at(0);
        const std::string theirs = piece.tensor.substr(piece.tensor.rfind('.', piece.tensor.size() - 8) + 1);
        if (!tensor.name.starts_with("model/layers.1.") ||
            !theirs.starts_with("qkv") && !theirs.starts_with("gate_up"))
            continue;
        const auto& shape = std::ranges::find(map.theirs, piece.tensor, &TensorMap::Theirs::name)->shape;
        EXPECT_EQ(shape[1], tensor.shape[1]);
        places.push_back(fmt::format("{} [{}, {} of {})", piece.tensor.substr(15), piece.their_row,
                                     piece.their_row + piece.num_rows, shape[0]));
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

TEST(Names, OfEachExpert) {
    const auto places = [](const char* name) {
        std::vector<std::string> found;
        const auto spec = tiny_spec(name);
        for (const MappedTensor& tensor : hugging_face_map(spec).ours) {
            if (!tensor.name.starts_with("model/layers.1.moe.")) continue;
            const Piece &first = tensor.pieces.front(), &last = tensor.pieces.back();
            found.push_back(fmt::format("{}: {} ... {} [{}, {}]", tensor.name.substr(19), first.tensor,
                                        last.tensor, last.num_rows, last.num_columns));
            EXPECT_EQ(last.row + last.num_rows, tensor.shape[0]);
        }
        return found;
    };
    const std::string theirs = "model.layers.1.block_sparse_moe.", of = theirs + "experts.";
    EXPECT_EQ(places("mixtral"),
              (std::vector<std::string>{
                  "router.weight: " + theirs + "gate.weight ... " + theirs + "gate.weight [11, 26]",
                  "experts.w1.weight: " + of + "0.w1.weight ... " + of + "10.w1.weight [37, 26]",
                  "experts.w3.weight: " + of + "0.w3.weight ... " + of + "10.w3.weight [37, 26]",
                  "experts.w2.weight: " + of + "0.w2.weight ... " + of + "10.w2.weight [26, 37]"}));
    EXPECT_EQ(places("qwen3_moe")[0],
              "router.weight: model.layers.1.mlp.gate.weight ... "
              "model.layers.1.mlp.gate.weight [3, 26]");
    EXPECT_EQ(places("qwen3_moe")[1],
              "experts.w1.weight: model.layers.1.mlp.experts.0.gate_proj.weight ... "
              "model.layers.1.mlp.experts.2.gate_proj.weight [7, 26]");
    EXPECT_EQ(places("qwen3_moe")[3],
              "experts.w2.weight: model.layers.1.mlp.experts.0.down_proj.weight ... "
              "model.layers.1.mlp.experts.2.down_proj.weight [26, 7]");
}

TEST(Names, FaultsOfExpertsAreListed) {
    const auto spec = tiny_spec("qwen3_moe");
    const std::string of = "model.layers.1.mlp.experts.";
    auto tensors = theirs(spec);
    const auto find = [&](const std::string& name) {
        return std::ranges::find(tensors, name, &TensorInfo::name);
    };
    find(of + "1.up_proj.weight")->shape = {21, 26};
    find(of + "2.down_proj.weight")->type = ElementType::BFloat16;
    tensors.erase(find(of + "0.gate_proj.weight"));
    tensors.push_back({of + "3.gate_proj.weight", ElementType::Float32, {7, 26}});
    tensors.push_back({"model.layers.0.mlp.gate.weight", ElementType::Float32, {3, 26}});
    EXPECT_ERROR(
        open(tensors, spec), UserError, of + "0.gate_proj.weight is missing",
        of + "1.up_proj.weight has shape [21, 26], expected [7, 26]",
        of + "2.down_proj.weight has elements of type bf16, but " + of + "0.down_proj.weight of type f32",
        "\"" + of + "3.gate_proj.weight\" is not a tensor of the model",
        "\"model.layers.0.mlp.gate.weight\" is not a tensor of the model");
}

TEST(Names, OfASharedExpertAndOfBiases) {
    const auto spec = tiny_spec("glm4_moe");
    const std::string of = "model.layers.1.mlp.", bias = of + "gate.e_score_correction_bias";
    EXPECT_EQ(hugging_face_map(spec).at("model/layers.1.moe.shared_experts.w1.weight").pieces[0].tensor,
              of + "shared_experts.gate_proj.weight");
    auto tensors = theirs(spec);
    const auto of_bias = [](const TensorInfo& tensor) { return model::is_router_bias(tensor.name); };
    EXPECT_EQ(std::ranges::count_if(open(tensors, spec)->tensors(), of_bias), 1) << "of one layer of two";
    std::erase_if(tensors, [&](const TensorInfo& tensor) { return tensor.name == bias; });
    EXPECT_EQ(std::ranges::count_if(open(tensors, spec)->tensors(), of_bias), 0) << "means zeros";
    tensors.push_back({"model.layers.2.eh_proj.weight", ElementType::Float32, {3}});
    EXPECT_EQ(open(tensors, spec)->tensors().size(), open(theirs(spec), spec)->tensors().size() - 1)
        << "a layer that predicts further tokens";
    auto others = theirs(tiny_spec("qwen3_moe"));
    others.push_back({bias, ElementType::Float32, {3}});
    EXPECT_ERROR(open(others, tiny_spec("qwen3_moe")), UserError, bias + "\" is not a tensor of the model");
}

/// Slabs that begin and end inside of experts.
TEST(Names, RowsOfSeveralExperts) {
    const auto spec = tiny_spec("qwen3_moe");
    const auto renamed = open(theirs(spec), spec, "model.layers.1.mlp.experts.1.gate_proj.weight");
    const TensorInfo& stack = renamed->at("model/layers.1.moe.experts.w1.weight");
    ASSERT_EQ(stack.shape, (std::vector<int64_t>{21, 26}));
    for (int64_t begin = 0; begin < 21; ++begin) {
        for (int64_t size = 0; begin + size <= 21; ++size) {
            const layout::Slab slab{{begin, 3}, {size, 2}};
            std::vector<std::byte> found(slab.num_elements() * 4), expected;
            renamed->read(stack, slab, found);
            for (int64_t row = begin; row < begin + size; ++row)
                expected.insert(expected.end(), 8, static_cast<std::byte>(row >= 7 && row < 14));
            ASSERT_EQ(found, expected) << begin << " " << size;
        }
    }
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
