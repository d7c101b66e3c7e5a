#include "model/model_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/units.h"

namespace argosy::model {
namespace {

struct Published {
    const char *name, *flavor;
    int64_t num_parameters;
};
// The exact numbers of parameters of the published checkpoints (8.03B, 70.6B, 494M ...).
constexpr Published kPublished[] = {
    {"llama3", "1B", 1'235'814'400},
    {"llama3", "3B", 3'212'749'824},
    {"llama3", "8B", 8'030'261'248},
    {"llama3", "70B", 70'553'706'496},
    {"llama3", "405B", 405'853'388'800},
    {"qwen2", "0.5B", 494'032'768},
    {"qwen2", "1.5B", 1'543'714'304},
    {"qwen2", "3B", 3'085'938'688},
    {"qwen2", "7B", 7'615'616'512},
    {"qwen2", "14B", 14'770'033'664},
    {"qwen3", "0.6B", 596'049'920},
    {"qwen3", "1.7B", 1'720'574'976},
    {"qwen3", "4B", 4'022'468'096},
    {"qwen3", "8B", 8'190'735'360},
    {"qwen3", "14B", 14'768'307'200},
    {"qwen3", "32B", 32'762'123'264},
    {"llama2", "7B", 6'738'415'616},
    {"llama2", "13B", 13'015'864'320},
    {"llama2", "70B", 68'976'648'192},
    {"tinyllama", "1.1B", 1'100'048'384},
    {"llama3", "8B-8k", 8'030'261'248},
    {"phi3", "mini-4k", 3'821'079'552},
    {"phi3", "medium-4k", 13'960'238'080},
    {"phi3", "4", 14'659'507'200},
    {"mixtral", "8x7B", 46'702'792'704},
    {"qwen3_moe", "30B-A3B", 30'532'122'624},
    {"qwen3_moe", "235B-A22B", 235'093'634'560},
    {"glm4_moe", "106B-A12B", 106'852'245'504},
};

TEST(Preset, HasThePublishedNumberOfParameters) {
    for (const Published& model : kPublished) {
        const ModelSpec spec = preset(model.name, model.flavor);
        EXPECT_EQ(num_parameters(spec), model.num_parameters) << model.name << " " << model.flavor;
    }
}

/// The parameters by which a token is multiplied, and its row of the table.
double active_parameters(const ModelSpec& spec) {
    double count = static_cast<double>(spec.dim);
    for (const auto& unit : unit_parameters(spec)) {
        for (const Parameter& each : unit)
            count += each.multiplied * static_cast<double>(layout::num_elements(each.spec.shape));
    }
    return count;
}

// The published figures, 12.9, 3.3 and 22.2 billion, count the whole table of the embedding.
TEST(Preset, HasThePublishedNumberOfActiveParameters) {
    const auto in_billions = [](const char* name, const char* flavor) {
        const ModelSpec spec = preset(name, flavor);
        const auto table = static_cast<double>((spec.vocab_size - 1) * spec.dim);
        return (active_parameters(spec) + table) / 1e9;
    };
    EXPECT_NEAR(in_billions("mixtral", "8x7B"), 12.88, 0.005);
    EXPECT_NEAR(in_billions("qwen3_moe", "30B-A3B"), 3.35, 0.005);
    EXPECT_NEAR(in_billions("qwen3_moe", "235B-A22B"), 22.19, 0.005);
    // GLM's 12 billion leave out the embedding and the head.
    EXPECT_NEAR(in_billions("glm4_moe", "106B-A12B") - 2 * 151552 * 4096 / 1e9, 12.18, 0.005);
}

TEST(Preset, OwnSizes) {
    EXPECT_EQ(preset("llama3", "256x6x16").num_layers, 6);
    EXPECT_EQ(preset("llama3", "4096x12x32").num_heads, 32);
}

void expect_message(const auto& call, std::initializer_list<const char*> parts) {
    try {
        call();
        FAIL() << "accepted";
    } catch (const UserError& error) {
        const std::string message = error.what();
        for (const char* part : parts)
            EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
    }
}

TEST(Preset, AnUnknownOneNamesTheKnown) {
    expect_message([] { preset("llama3", "9B"); }, {"llama3", "9B", "debugmodel", "405B", "qwen3: 0.6B"});
    expect_message([] { preset("gpt2", "8B"); }, {"gpt2", "llama3:", "qwen2:"});
}

TEST(Differences, NamesEachKeyWithBothValues) {
    const ModelSpec a = preset("llama3", "8B");
    EXPECT_TRUE(differences(a, a).empty());
    ModelSpec b = a;
    b.dim = 2048;
    b.rope_scaling->factor = 32;
    b.qk_norm = QkNorm::Heads;
    const std::vector<std::string> found = differences(a, b);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0], "dim: 4096 against 2048");
    EXPECT_NE(found[1].find("rope_scaling: llama3, factor 8"), std::string::npos) << found[1];
    EXPECT_EQ(found[2], "qk_norm: none against of each head");
}

/// The frequencies of a head of 16 elements, scaled.
std::vector<double> scaled_frequencies(const RopeScaling& scaling) {
    ModelSpec spec = preset("llama3", "debugmodel");
    spec.head_dim = 16;
    spec.rope_theta = 500;
    spec.rope_scaling = scaling;
    return rope_frequencies(spec);
}

void expect_frequencies(const RopeScaling& scaling, const std::vector<double>& expected) {
    const std::vector<double> found = scaled_frequencies(scaling);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-14) << i;
}

// transformers 4.57.6 computed the numbers, in fp64.
TEST(RopeFrequencies, OfYarn) {
    RopeScaling scaling{.type = RopeScaling::Type::Yarn, .factor = 4, .original_context = 96};
    expect_frequencies(
        scaling, {1, 0.37363892948425081, 0.13217140793007051, 0.042546545670390692, 0.011180339887498949,
                  0.0051414279714894484, 0.0023643540225079395, 0.0010872796380204908});
    scaling.beta_fast = 16;
    scaling.beta_slow = 2;
    scaling.truncate = false;
    expect_frequencies(
        scaling, {1, 0.32809613420471651, 0.090284487871078248, 0.024312311811651825, 0.011180339887498949,
                  0.0051414279714894484, 0.0023643540225079395, 0.0010872796380204908});
}

// The blend begins and ends at the first pair, so that its distance would be 0. transformers computes the
// same.
TEST(RopeFrequencies, OfYarnWithoutARangeToBlend) {
    std::vector<double> expected = scaled_frequencies({.type = RopeScaling::Type::Linear, .factor = 4});
    expected[0] = 1;
    expect_frequencies({.type = RopeScaling::Type::Yarn, .factor = 4, .original_context = 6}, expected);
}

TEST(RopeFrequencies, OfLongropeInPartOfAHead) {
    ModelSpec spec = preset("phi3", "4");
    spec.rotary_dim = 4;
    spec.rope_theta = 100;
    EXPECT_EQ(rope_frequencies(spec), (std::vector<double>{1, 0.1}));
    spec.rope_scaling = {.type = RopeScaling::Type::Longrope, .original_context = 50};
    spec.rope_scaling->short_factors = {1, 2};
    spec.rope_scaling->long_factors = {4, 5};
    EXPECT_EQ(rope_frequencies(spec, 50), (std::vector<double>{1, 0.1 / 2}));
    EXPECT_EQ(rope_frequencies(spec, 51), (std::vector<double>{1.0 / 4, 0.1 / 5}));
}

TEST(RopeFrequencies, OfLinearScaling) {
    const std::vector<double> plain = scaled_frequencies({.type = RopeScaling::Type::Linear, .factor = 1}),
                              scaled = scaled_frequencies({.type = RopeScaling::Type::Linear, .factor = 2.5});
    EXPECT_EQ(plain[0], 1);
    EXPECT_NEAR(plain[4], 1 / std::sqrt(500.0), 1e-15);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 2.5);
}

// The numbers come from an implementation of the published formula in another language.
TEST(RopeFrequencies, OfLlama3Scaling) {
    const std::vector<double> large = rope_frequencies(preset("llama3", "8B"));
    ASSERT_EQ(large.size(), 64U);
    for (const auto& [i, expected] :
         std::initializer_list<std::pair<int, double>>{{0, 1.0},
                                                       {1, 0.8146172338565447},
                                                       {28, 0.0032114459947525913},  // as they were
                                                       {29, 0.002166570763503359},
                                                       {30, 0.0013718935677611381},
                                                       {32, 0.0005248461609929547},  // between
                                                       {40, 3.428102195952591e-05},
                                                       {63, 3.068925988914511e-07}}) {  // an eighth
        EXPECT_NEAR(large[i], expected, 1e-13 * expected) << i;
    }
    const std::vector<double> small = rope_frequencies(preset("llama3", "1B"));
    ASSERT_EQ(small.size(), 32U);
    for (const auto& [i, expected] :
         std::initializer_list<std::pair<int, double>>{{13, 0.004839421345719893},
                                                       {15, 0.001290547928209264},
                                                       {16, 0.00042955679655936815},
                                                       {17, 9.70828780262767e-05},
                                                       {31, 9.418306725434909e-08}}) {
        EXPECT_NEAR(small[i], expected, 1e-13 * expected) << i;
    }
}

TEST(RopeFrequencies, WithoutScaling) {
    const std::vector<double> found = rope_frequencies(preset("qwen3", "8B"));
    EXPECT_DOUBLE_EQ(found[0], 1);
    EXPECT_NEAR(found[32], 0.001, 1e-16);
    EXPECT_NEAR(found[63], 1.2409377607517195e-06, 1e-19);
}

TEST(UnitParameters, NameEachOnceAndTieTheTable) {
    const auto units = unit_parameters(preset("qwen2", "0.5B"));
    ASSERT_EQ(units.size(), 26U);
    EXPECT_EQ(units[0][0].spec.name, "tok_embeddings.weight");
    EXPECT_EQ(units[25][1].spec.name, "tok_embeddings.weight");
    EXPECT_TRUE(units[25][1].is_table && units[25][1].is_projection);
    std::vector<std::string> names;
    for (const Parameter& parameter : units[3]) names.push_back(parameter.spec.name);
    EXPECT_NE(std::find(names.begin(), names.end(), "layers.2.attention.wk.bias"), names.end());
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(UnitParameters, HaveKindsForOptimizers) {
    using enum layout::ParameterKind;
    for (const bool tied : {false, true}) {
        ModelSpec spec = preset("qwen3", "0.6B");
        spec.tied_embeddings = tied;
        const auto units = unit_parameters(spec);
        EXPECT_EQ(units.front()[0].spec.kind, Embedding);
        EXPECT_EQ(units.back()[0].spec.kind, Vector);
        EXPECT_EQ(units.back()[1].spec.kind, tied ? Embedding : Head);
        for (const Parameter& parameter : units[1])
            EXPECT_EQ(parameter.spec.kind, parameter.spec.shape.size() == 1 ? Vector : Matrix)
                << parameter.spec.name;
    }
    const auto units = unit_parameters(preset("mixtral", "8x7B"));
    const auto is_router = [](const Parameter& parameter) { return parameter.spec.kind == Router; };
    EXPECT_EQ(std::ranges::count_if(units[1], is_router), 1);
}

}  // namespace
}  // namespace argosy::model
