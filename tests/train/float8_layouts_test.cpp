// Every layout casts as one rank does. One scale for a matrix is the same on all ranks. Scales of lines and
// blocks are those of a rank's part of a line, but they are powers of two, which round alike unless a number
// is too small for the format. In async tensor parallelism the head computes in pieces, and casts the
// gradient of each piece's logits with a scale of its own.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/pow.h>
#include <gtest/gtest.h>

#include <string>

#include "ops/float8.h"
#include "parallel/tensor_parallel.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

std::vector<Layout> layouts() {
    constexpr parallel::TensorOptions kOverlap{.overlap_products = true};
    if (world().size() == 2) {
        return {{"fsdp2", {.shard = 2}},
                {"ddp2", {.replicate = 2}},
                {"tp2", {.tensor = 2}},
                {.name = "tp2_async", .mesh = {.tensor = 2}, .tensor = kOverlap},
                {"pp2_zbv", {.pipeline = 2}, {1, 1, 1, 0}, "ZBVZeroBubble"},
                {"cp2", {.context = 2}}};
    }
    if (world().size() == 8) return {{"tp2_pp2_cp2", {.pipeline = 2, .context = 2, .tensor = 2}, {2, 1}}};
    return {{.name = "fsdp2_tp2", .mesh = {.shard = 2, .tensor = 2}, .tensor = kOverlap},
            {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 1}},
            {"cp2_tp2", {.context = 2, .tensor = 2}},
            {"fsdp4", {.shard = 4}},
            {"hsdp", {.replicate = 2, .shard = 2}},
            {.name = "hsdp_kept", .mesh = {.replicate = 2, .shard = 2}, .reshard = parallel::Reshard::Never}};
}

/// `kind`: a recipe, or "olmo" or "gemma" for their blocks with a recipe.
TinyRunOptions options_of(const std::string& kind, const Layout& layout = {"one"}) {
    const std::string recipe = kind == "olmo" ? "tensorwise" : kind == "gemma" ? "rowwise" : kind;
    TinyRunOptions options{.layout = layout, .precision = {at::kFloat, at::kFloat, at::kFloat}};
    options.casts.recipe = ops::find_recipe(recipe == "gathered" ? "tensorwise" : recipe);
    options.casts.gather = recipe == "gathered";
    options.spec = model::ModelSpec{.name = "llama3",
                                    .vocab_size = 128,
                                    .dim = 64,
                                    .num_layers = 3,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .head_dim = 32,
                                    .hidden_dim = 128};
    options.seq_len = 128;
    if (recipe == "blockwise") {  // blocks of 128 divide the parts of two ranks
        options.spec->dim = options.spec->hidden_dim = options.spec->vocab_size = 256;
        options.spec->num_kv_heads = 4;
        options.spec->head_dim = 64;
        options.seq_len = 256;
    }
    options.recompute = world().size() == 8 ? model::RecomputeMode::Selective : model::RecomputeMode::Full;
    if (kind == "olmo") {
        options.spec->norms = model::NormPlace::After;
        options.spec->qk_norm = model::QkNorm::Together;
        // In float, sums in another order change numbers of float8, and norms after the halves amplify that.
        options.precision = {at::kDouble, at::kDouble, at::kDouble};
    }
    if (kind == "gemma") {
        options.spec->norms = model::NormPlace::Both;
        options.spec->qk_norm = model::QkNorm::Heads;
        options.spec->norms_add_one = true;
        options.spec->activation = ops::Activation::GeluTanh;
        options.recompute = model::RecomputeMode::Selective;
    }
    return options;
}

/// The distance of all gradients from those expected, relative to their norm.
double distance(const NamedTensors& found, const NamedTensors& expected) {
    double difference = 0, size = 0;
    for (const auto& [name, gradient] : expected) {
        difference += (found.at(name) - gradient).square().sum().item<double>();
        size += gradient.square().sum().item<double>();
    }
    return std::sqrt(difference / size);
}

/// In the model of blockwise, which has 16 times as many numbers, sums in another order make some element
/// another number of float8.
bool is_wide(const TinyRunOptions& options) { return options.spec->dim > 64; }

/// Makes wk larger than wq and wv, so that a scale shows that is not that of all three, which are one matrix.
/// A factor that is a power of two leaves roundings as they are.
void enlarge_wk(parallel::ParallelModel& model) {
    for (const auto& parameter : model.parameters()) {
        if (parameter->spec().name.find(".wk.") == std::string::npos) continue;
        parameter->master().mul_(4);
        parameter->refresh_compute();
    }
    model.refresh_float8();
}

/// Those of the second step: the weights were updated once. Those of the first step in a wide model, and in
/// OLMo's, whose first updates are as large as its weights.
NamedTensors gradients_of(const TinyRunOptions& options, comm::Communicator& ranks) {
    TinyRun run(options, ranks);
    enlarge_wk(run.trainer().model());
    if (!is_wide(options) && options.spec->norms != model::NormPlace::After) run.train(0);
    run.forward_backward(1);
    return run.gradients();
}

// A rank whose part of the output has 16 rows does not cast it if another one's has 17.
TEST(Float8Parts, OfUnevenSizesAreCastOnNoRank) {
    if (world().size() != 2) GTEST_SKIP() << "one pair of ranks is enough";
    const Layout layouts[] = {{"one"}, {"tp2", {.tensor = 2}}};
    std::vector<NamedTensors> found;
    for (const Layout& layout : layouts) {
        TinyRunOptions options = options_of("tensorwise", layout);
        options.spec->vocab_size = 33;
        found.push_back(gradients_of(options, layout.name == "one" ? self() : world()));
    }
    EXPECT_LT(distance(found[1], found[0]), 1e-5);
}

// A single row's scale has the shape of a matrix's, which is not gathered.
TEST(Float8Rows, OneOnEachRankHasItsScale) {
    const int num_ranks = world().size();
    if (num_ranks > 4) GTEST_SKIP() << "one scale does not hold the magnitudes of so many ranks";
    comm::Mesh mesh(layout::resolve({.shard = 1, .tensor = num_ranks}, num_ranks), world());
    const at::Tensor weight = at::eye(32);
    const at::Tensor rows = at::pow(8, at::arange(num_ranks, at::kFloat)).unsqueeze(1).expand({-1, 32});
    for (const char* recipe : {"rowwise", "tensorwise"}) {
        for (const bool overlap : {false, true}) {
            const auto axis = parallel::make_tensor_axis({.overlap_products = overlap}, mesh, num_ranks);
            const at::Tensor y = axis->column(rows.narrow(0, world().rank(), 1),
                                              ops::Stack::of(weight, *ops::find_recipe(recipe)), {});
            EXPECT_TRUE(y.allclose(rows)) << recipe << (overlap ? ", overlapped" : "") << ": " << y.sum();
        }
    }
}

// Pieces that cut a rank's block would put rows of two ranks, which are not adjacent, into one block.
TEST(Float8Blocks, AreWholeInTheRowsOfEachRankInAPiece) {
    const int num_ranks = world().size();
    comm::Mesh mesh(layout::resolve({.shard = 1, .tensor = num_ranks}, num_ranks), world());
    parallel::ProductCasts casts;
    casts.recipe = ops::find_recipe("mxfp8_cublas");
    bool overlaps = false;
    for (const int64_t rows : {16, 32, 48, 64, 96, 512}) {
        const auto axis =
            parallel::make_tensor_axis({.overlap_products = true}, mesh, num_ranks * rows, casts);
        const std::vector<layout::Range> pieces = axis->pieces(rows);
        for (const layout::Range& piece : pieces)
            EXPECT_TRUE(pieces.size() == 1 || piece.size % 32 == 0) << piece.size << " of " << rows;
        overlaps |= pieces.size() > 1;
    }
    EXPECT_TRUE(overlaps);
}

TEST(Float8Weights, ThatAreKeptHaveTheBitsOfACastInEachProduct) {
    if (world().size() != 2) GTEST_SKIP() << "one rank is enough";
    const NamedTensors kept = gradients_of(options_of("gathered"), self()),
                       cast = gradients_of(options_of("tensorwise"), self());
    EXPECT_EQ(largest_difference(kept, cast).relative, 0) << largest_difference(kept, cast).name;
}

class Float8Layouts : public ::testing::TestWithParam<std::string> {};

TEST_P(Float8Layouts, HaveOneRanksGradients) {
    const NamedTensors expected = gradients_of(options_of(GetParam()), self());
    TinyRunOptions without_casts = options_of(GetParam());
    without_casts.casts = {};
    const double of_casts = distance(expected, gradients_of(without_casts, self()));
    EXPECT_GT(of_casts, 0.01);
    for (const Layout& layout : layouts()) {
        const bool pieces =
            layout.tensor.overlap_products &&
            options_of(GetParam()).casts.recipe->weight_gradient.left.scaling == ops::Scaling::Matrix;
        EXPECT_LT(distance(gradients_of(options_of(GetParam(), layout), world()), expected),
                  // Each piece of the head has its own scales, which norms after the halves amplify.
                  pieces                   ? (GetParam() == "olmo" ? 0.28 * of_casts : 1e-2)
                  : is_wide(without_casts) ? 1e-3
                                           : 1e-5)
            << layout.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Float8Layouts,
                         ::testing::Values("tensorwise", "rowwise", "rowwise_with_gw_hp", "blockwise",
                                           "mxfp8_cublas", "gathered", "olmo", "gemma"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace argosy::testing
