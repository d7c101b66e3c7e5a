// What the log says of a run whose products cast their operands.
#include "setup/converters.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

#include "setup/options.h"
#include "train/trainer.h"

namespace argosy::setup {
namespace {

constexpr cublas::Target kHopper{90, 130000}, kBlackwell{100, 130000}, kNone{};

std::string ways(const char* recipe, const cublas::Target& target, int64_t num_tokens = 4096,
                 ops::Accumulation accumulation = ops::Accumulation::Native) {
    return ways_of_products(*ops::find_recipe(recipe, accumulation), {{64, 32}, {32, 64}}, at::kBFloat16,
                            num_tokens, target);
}

TEST(WaysOfProducts, NameTheKindsAndTheReasons) {
    EXPECT_EQ(ways("tensorwise", kHopper), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(
        ways("tensorwise", kHopper, 40),
        "weight gradients emulated in bf16, because 16 does not divide 40 terms of a sum; outputs, input "
        "gradients in float8");
    EXPECT_EQ(ways("rowwise_with_gw_hp", kHopper), "outputs, input gradients in float8");
    EXPECT_EQ(ways("rowwise", kBlackwell),
              "outputs, input gradients, weight gradients in float8, scaled afterwards, because cuBLASLt has "
              "scales of rows only for compute capability 9.0, from version 12.9 on");
    EXPECT_EQ(ways("mxfp8_cublas", kBlackwell), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(
        ways("blockwise", {89, 130000}),
        "outputs, input gradients, weight gradients emulated in bf16, because cuBLASLt has E8M0 scales of "
        "blocks only from compute capability 10.0 and version 12.8 on");
    EXPECT_EQ(ways("blockwise", kHopper), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(ways("blockwise", kBlackwell), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(ways("mxfp8_cublas", kNone),
              "outputs, input gradients, weight gradients emulated in bf16, because there is no GPU");
}

TEST(WaysOfProducts, AreEmulatedIfTheConfigSaysSo) {
    for (const cublas::Target& target : {kHopper, kNone}) {
        EXPECT_EQ(ways("tensorwise", target, 4096, ops::Accumulation::Float32),
                  "outputs, input gradients, weight gradients emulated in bf16, because "
                  "quantize.linear.float8.emulate is true");
    }
    config::JobConfig config;
    config.model.converters = {config::Converter::Float8};
    config.float8.emulate = true;
    EXPECT_EQ(product_casts(config, 128).recipe, ops::find_recipe("tensorwise", ops::Accumulation::Float32));
}

config::JobConfig small_qwen(std::vector<std::string> filter, config::Float8Recipe recipe) {
    config::JobConfig config;
    config.model.name = "qwen2", config.model.flavor = "0.5B";
    config.model.converters = {config::Converter::Float8};
    config.float8.recipe_name = recipe, config.float8.filter_fqns = std::move(filter);
    return config;
}

/// The layers of the second transformer block of Qwen2.5 0.5B, and the head, whose products cast.
std::set<std::string> cast_layers(std::vector<std::string> filter, config::Float8Recipe recipe, int tp = 1) {
    config::JobConfig config = small_qwen(std::move(filter), recipe);
    config.parallelism.tensor_parallel_degree = tp;
    const layout::MeshShape mesh{{1, 1, 1, /*context=*/1, tp}};
    const train::TrainerOptions options = trainer_options(config, choose_model(config.model), mesh);
    std::set<std::string> names;
    for (const auto& unit : train::place_parameters(options, mesh).units) {
        const auto recipes = parallel::recipes_of(unit, options.model.casts, mesh);
        for (size_t i = 0; i < unit.size(); ++i) {
            const std::string name = parallel::layer_name(unit[i]);
            if (recipes[i] == nullptr) continue;
            if (name == "output") names.insert(name);
            if (name.starts_with("layers.1.")) names.insert(name.substr(9));
        }
    }
    return names;
}

TEST(NarrowLayers, AreKeptIfTheFilterSaysSo) {
    using enum config::Float8Recipe;
    using Names = std::set<std::string>;
    const Names wide = {"feed_forward.w1", "feed_forward.w2", "feed_forward.w3", "output"};
    Names all = wide;
    for (const char* name : {"wq", "wk", "wv", "wo"}) all.insert(std::string("attention.") + name);
    EXPECT_EQ(cast_layers({}, Tensorwise), all);
    Names with_qkv = all;
    with_qkv.erase("attention.wo");
    // Widths of q, k and v, o, gate and up, down, and the head: 504, 448, 820, 757, 891.
    EXPECT_EQ(cast_layers({"auto_filter_small_kn"}, RowwiseWithWeightGradient), with_qkv);
    with_qkv.erase("output");
    EXPECT_EQ(cast_layers({"auto_filter_small_kn", "output"}, RowwiseWithWeightGradient), with_qkv);
    EXPECT_EQ(cast_layers({"auto_filter_small_kn"}, Rowwise), wide);
    EXPECT_EQ(cast_layers({"auto_filter_small_kn"}, Blockwise), wide);
    EXPECT_EQ(cast_layers({"auto_filter_small_kn"}, Tensorwise), all);
    EXPECT_EQ(cast_layers({"auto_filter_small_kn"}, RowwiseWithWeightGradient, 2), wide)
        << "the width is that of a rank's part: 351 of q, k and v";
}

/// What log_product_casts() logs for a job of one rank.
std::string log_of(const config::JobConfig& config, const cublas::Target& target) {
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    spdlog::set_pattern("%v");
    const layout::MeshShape mesh{{1, 1, 1, 1, 1}};
    log_product_casts(config, trainer_options(config, choose_model(config.model), mesh), mesh, target);
    spdlog::set_default_logger(before);
    return log.str();
}

TEST(TheLog, CountsMatricesAndNamesThoseThatAreKept) {
    constexpr auto kRecipe = config::Float8Recipe::Tensorwise;
    EXPECT_EQ(log_of(small_qwen({}, kRecipe), kNone),
              "tensorwise: the products of 169 matrices cast their operands to eight bits; outputs, input "
              "gradients, weight gradients emulated in bf16, because there is no GPU\n")
        << "24 blocks of 7 matrices, and the head";
    EXPECT_EQ(
        log_of(small_qwen({"attention.wo", "attention.w0", "layers.3.feed_forward.w2"}, kRecipe), kHopper),
        "filter_fqns has no effect: no layer's name has 'attention.w0' in it\n"
        "tensorwise: the products of 144 matrices cast their operands to eight bits, those of "
        "attention.wo, feed_forward.w2 do not; outputs, input gradients, weight gradients in float8\n");
}

TEST(TheLog, NamesExperts) {
    config::JobConfig config = small_qwen({"moe.router"}, config::Float8Recipe::Tensorwise);
    config.model.name = "qwen3_moe", config.model.flavor = "debugmodel";
    EXPECT_EQ(log_of(config, kNone),
              "tensorwise: the products of 17 matrices cast their operands to eight bits, those of "
              "moe.experts.w1, moe.experts.w2, moe.experts.w3, moe.router do not; outputs, input gradients, "
              "weight gradients emulated in bf16, because there is no GPU\n")
        << "4 blocks of 4 matrices, and the head";
}

TEST(TheNameInRecords, IsThatOfTheRecipeIfAMatrixIsCast) {
    const layout::MeshShape mesh{{1, 1, 1, 1, 1}};
    const auto name_with = [&](const char* flavor, std::vector<std::string> filter) {
        config::JobConfig config = small_qwen(std::move(filter), config::Float8Recipe::Rowwise);
        config.model.name = "llama3", config.model.flavor = flavor;
        return product_casts_name(config, trainer_options(config, choose_model(config.model), mesh), mesh);
    };
    EXPECT_EQ(name_with("debugmodel", {"output"}), "float8 rowwise");
    EXPECT_EQ(name_with("debugmodel", {"auto_filter_small_kn"}), "");
    EXPECT_EQ(name_with("8B", {"auto_filter_small_kn"}), "float8 rowwise");
}

TEST(Casts, OfNoMatrixAreRefused) {
    const layout::MeshShape mesh{{1, 1, 1, 1, 1}};
    constexpr auto kRecipe = config::Float8Recipe::Tensorwise;
    const config::JobConfig all_kept = small_qwen({"attention", "feed_forward", "output"}, kRecipe);
    EXPECT_ERROR(trainer_options(all_kept, choose_model(all_kept.model), mesh), UserError,
                 "tensorwise casts the products of no matrix: filter_fqns keeps attention.wk, attention.wo");
    for (const char* filter : {"output", "auto_filter_small_kn"}) {
        const config::JobConfig config = small_qwen({filter}, kRecipe);
        model::ModelSpec odd = choose_model(config.model);
        odd.dim -= 8;
        EXPECT_ERROR(trainer_options(config, odd, mesh), UserError,
                     "16 does not divide the sides of a rank's part of attention.wk");
    }
}

TEST(Blocks, DivideMatricesAndTokens) {
    using enum config::Float8Recipe;
    using Names = std::set<std::string>;
    EXPECT_EQ(cast_layers({}, Blockwise), cast_layers({}, Tensorwise));
    // 128 divides neither the 64 rows of wk and wv, nor the 448 columns of wo, nor 75968 rows of the output.
    EXPECT_EQ(cast_layers({}, Blockwise, 2),
              (Names{"feed_forward.w1", "feed_forward.w2", "feed_forward.w3"}));
    config::JobConfig config;
    config.model.converters = {config::Converter::Float8};
    config.float8.recipe_name = Blockwise;
    EXPECT_EQ(product_casts(config, 128).recipe, ops::find_recipe("blockwise"));
    EXPECT_ERROR(product_casts(config, 96), UserError,
                 "blockwise casts blocks of 128 tokens, but a rank has 96");
    config.model.converters = {config::Converter::Mx};
    config.mx.filter_fqns = {"auto_filter_small_kn"};
    EXPECT_ERROR(product_casts(config, 128), UserError, "mxfp8_cublas was not measured: name the layers");
}

}  // namespace
}  // namespace argosy::setup
