#include "parallel/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::parallel {
namespace {

using layout::MeshShape;

MeshShape mesh_of(int pipeline, int replicate, int shard, int tensor) {
    return {{pipeline, replicate, shard, /*context=*/1, tensor}};
}

/// Everything that a block can have: biases and head norms.
model::ModelSpec spec(bool tied = false) {
    model::ModelSpec spec{.name = "all",
                          .vocab_size = 131,
                          .dim = 36,
                          .num_layers = 5,
                          .num_heads = 8,
                          .num_kv_heads = 2,
                          .head_dim = 10,
                          .hidden_dim = 53};
    spec.tied_embeddings = tied;
    spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
    spec.qk_norm = model::QkNorm::Heads;
    return spec;
}

/// "tp:0/2 dp_shard x cp:0/3 + tp/2": cuts as axes:dim/parts, then the gradient's sum as axes/parts.
std::string written(const layout::ParamSpec& parameter) {
    std::string text;
    for (const layout::Cut& cut : parameter.cuts) {
        text += fmt::format("{}:{}/{} ", cut.axes.name(), cut.dim, cut.parts);
    }
    const auto& [axes, parts] = parameter.gradient;
    if (!axes.empty()) text += fmt::format("+ {}/{} ", axes.name(), parts);
    return text.empty() ? "" : text.substr(0, text.size() - 1);
}

/// The name of a parameter in its unit; "output" for the matrix of the head, which may be a tied table.
std::string local_name(const model::Parameter& parameter) {
    if (parameter.is_table && parameter.is_projection) return "output";
    const std::string name = parameter.spec.name.substr(0, parameter.spec.name.rfind('.')),
                      kind = parameter.spec.name.ends_with(".bias") ? " bias" : "";
    return name.substr(name.starts_with("layers.") ? name.find('.', 7) + 1 : 0) + kind;
}

/// The placement of each parameter by its name. Checks that all blocks agree.
std::map<std::string, std::string> placements(const MeshShape& mesh, const std::vector<int>& layers = {5}) {
    std::map<std::string, std::string> found;
    for (const auto& unit : place_parameters(spec(), mesh, layers).units) {
        for (const model::Parameter& parameter : unit) {
            const auto [entry, is_new] = found.insert({local_name(parameter), written(parameter.spec)});
            EXPECT_EQ(entry->second, written(parameter.spec)) << parameter.spec.name;
        }
    }
    EXPECT_EQ(found.size(), 21);
    return found;
}

/// The names of the parameters of a unit whose gradients are summed.
std::set<std::string> summed(const ModelPlacement& placement, size_t unit) {
    std::set<std::string> names;
    for (const int number : summed_parameters(placement, unit))
        names.insert(local_name(placement.units[unit][number]));
    return names;
}

using Names = std::set<std::string>;
const Names kRows = {"tok_embeddings",  "output",          "attention.wq",         "attention.wq bias",
                     "feed_forward.w1", "feed_forward.w3", "feed_forward.w1 bias", "feed_forward.w3 bias"};
const Names kKeysAndValues = {"attention.wk", "attention.wv", "attention.wk bias", "attention.wv bias"};
const Names kColumns = {"attention.wo", "feed_forward.w2"};
const Names kWhole = {"attention_norm", "attention.q_norm",  "attention.k_norm",    "ffn_norm",
                      "norm",           "attention.wo bias", "feed_forward.w2 bias"};

void expect_each(const std::map<std::string, std::string>& found, const Names& names,
                 const std::string& expected) {
    for (const std::string& name : names) EXPECT_EQ(found.at(name), expected) << name;
}

TEST(Place, OneRankCutsNothing) {
    for (const auto& [name, placement] : placements(mesh_of(1, 1, 1, 1))) EXPECT_EQ(placement, "");
}

TEST(Place, ShardsCutRowsOfEverything) {
    for (const auto& [name, placement] : placements(mesh_of(1, 1, 3, 1))) {
        EXPECT_EQ(placement, "dp_shard x cp:0/3");
    }
}

TEST(Place, ReplicasSumEverything) {
    for (const auto& [name, placement] : placements(mesh_of(1, 4, 1, 1))) {
        EXPECT_EQ(placement, "+ dp_replicate/1");
    }
}

TEST(Place, TensorParallelCutsHeadsAndHiddenColumns) {
    const auto found = placements(mesh_of(1, 1, 1, 2));
    expect_each(found, kRows, "tp:0/2");
    expect_each(found, kKeysAndValues, "tp:0/2");
    expect_each(found, kColumns, "tp:1/2");
    expect_each(found, kWhole, "+ tp/1");
}

TEST(Place, FewerKeyHeadsThanRanksAreReplicated) {
    const auto found = placements(mesh_of(1, 1, 1, 4));
    expect_each(found, kRows, "tp:0/4");
    expect_each(found, kKeysAndValues, "tp:0/2 + tp/2");
    expect_each(found, kColumns, "tp:1/4");
    expect_each(found, kWhole, "+ tp/1");
}

TEST(Place, AllAxesCompose) {
    const auto found = placements(mesh_of(2, 2, 3, 4), {3, 2});
    expect_each(found, kRows, "tp:0/4 dp_shard x cp:0/3 + dp_replicate/1");
    expect_each(found, kKeysAndValues, "tp:0/2 dp_shard x cp:0/3 + dp_replicate x tp/2");
    expect_each(found, kColumns, "tp:1/4 dp_shard x cp:0/3 + dp_replicate/1");
    expect_each(found, kWhole, "dp_shard x cp:0/3 + dp_replicate x tp/1");
}

TEST(Place, UnitsRunOnTheirStages) {
    const ModelPlacement placement = place_parameters(spec(), mesh_of(3, 1, 1, 1), {1, 3, 1});
    EXPECT_EQ(placement.unit_stage, (std::vector{0, 0, 1, 1, 1, 2, 2}));
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        for (const model::Parameter& parameter : placement.units[unit]) {
            EXPECT_EQ(parameter.spec.pipeline_ranks, std::vector{placement.unit_stage[unit]});
        }
    }
}

TEST(Place, StageUnitsCountTheEmbeddingAsALayer) {
    const auto stages = stage_units(place_parameters(spec(), mesh_of(3, 1, 1, 1), {2, 3, 0}));
    ASSERT_EQ(stages.size(), 3);
    EXPECT_EQ(stages[0].num_layers, 3);
    EXPECT_EQ(stages[1].num_layers, 3);
    EXPECT_EQ(stages[2].num_layers, 0);
    for (int stage = 0; stage < 3; ++stage) {
        EXPECT_EQ(stages[stage].has_embedding, stage == 0);
        EXPECT_EQ(stages[stage].has_head, stage == 2);
    }
}

using Units = std::vector<std::set<int>>;

/// The summed units of each stage.
Units summed_units(const model::ModelSpec& spec, const MeshShape& mesh, const std::vector<int>& layers) {
    Units units;
    for (const StageUnits& stage : stage_units(place_parameters(spec, mesh, layers))) {
        std::set<int>& numbers = units.emplace_back();
        for (int unit = 0; unit < std::ssize(stage.sets); ++unit) {
            if (stage.sets[unit].at(0).summed) numbers.insert(unit);
        }
    }
    return units;
}

TEST(Place, UnitsHaveSumsOverReplicasAndTheTensorAxis) {
    EXPECT_EQ(summed_units(spec(), mesh_of(1, 1, 4, 1), {5}), Units{{}});
    // All but the embedding have norms.
    EXPECT_EQ(summed_units(spec(), mesh_of(1, 1, 1, 4), {5}), (Units{{1, 2, 3, 4, 5, 6}}));
    const std::set<int> all = {0, 1, 2, 3, 4, 5, 6};
    for (const auto& mesh : {mesh_of(1, 2, 1, 1), mesh_of(1, 2, 3, 1), mesh_of(1, 2, 1, 2)}) {
        EXPECT_EQ(summed_units(spec(), mesh, {5}), Units{all});
    }
    EXPECT_EQ(summed_units(spec(), mesh_of(3, 2, 2, 1), {2, 3, 0}), (Units{{0, 1, 2}, {0, 1, 2}, {0}}));
}

TEST(Place, TheTensorAxisSumsNormsBiasesOfRowsAndSharedKeyHeads) {
    const ModelPlacement placement = place_parameters(spec(), mesh_of(1, 1, 2, 4), {5});
    EXPECT_EQ(summed(placement, 0), Names{});
    Names expected = kWhole;
    expected.insert(kKeysAndValues.begin(), kKeysAndValues.end());
    expected.erase("norm");
    EXPECT_EQ(summed(placement, 1), expected);
    EXPECT_EQ(summed(placement, 6), Names{"norm"});
    EXPECT_EQ(summed(place_parameters(spec(), mesh_of(1, 2, 2, 4), {5}), 6), (Names{"norm", "output"}));
}

TEST(Place, ATiedTableIsSummedWithTheEmbeddingAndOnEachOfTwoStagesThatHoldIt) {
    const model::ModelSpec tied = spec(/*tied=*/true);
    const ModelPlacement one = place_parameters(tied, mesh_of(1, 2, 1, 1), {5});
    EXPECT_EQ(summed(one, 0), Names{"tok_embeddings"});
    EXPECT_EQ(summed(one, 6), Names{"norm"});
    const ModelPlacement two = place_parameters(tied, mesh_of(2, 2, 1, 1), {3, 2});
    EXPECT_EQ(summed(two, 0), Names{"tok_embeddings"});
    EXPECT_EQ(summed(two, 6), (Names{"norm", "output"}));
    EXPECT_EQ(summed_units(tied, mesh_of(2, 2, 1, 2), {3, 2}), (Units{{0, 1, 2, 3}, {0, 1, 2}}));
}

TEST(Place, ATiedTableLivesOnBothEndsOfThePipeline) {
    const ModelPlacement pipelined = place_parameters(spec(/*tied=*/true), mesh_of(2, 1, 1, 1), {3, 2});
    const model::Parameter& table = pipelined.units.front().front();
    const model::Parameter& output = pipelined.units.back().back();
    EXPECT_TRUE(output.is_projection);
    EXPECT_EQ(output.spec.name, table.spec.name);
    EXPECT_EQ(table.spec.pipeline_ranks, (std::vector{0, 1}));
    EXPECT_EQ(output.spec.pipeline_ranks, (std::vector{0, 1}));
    EXPECT_EQ(stage_units(pipelined).front().tied_unit, 0);
    EXPECT_EQ(stage_units(pipelined).back().tied_unit, 2);
    const ModelPlacement whole = place_parameters(spec(/*tied=*/true), mesh_of(1, 1, 1, 1), {5});
    EXPECT_EQ(whole.units.front().front().spec.pipeline_ranks, std::vector{0});
    EXPECT_EQ(stage_units(whole).front().tied_unit, -1);
}

TEST(Place, InVATiedTableIsOneParameter) {
    const ModelPlacement placement =
        place_parameters(spec(/*tied=*/true), mesh_of(2, 1, 1, 1), {1, 2, 1, 1}, StageOrder::V);
    std::vector<int> ranks;
    for (size_t unit = 0; unit < placement.units.size(); ++unit) ranks.push_back(placement.rank_of(unit));
    EXPECT_EQ(ranks, (std::vector{0, 0, 1, 1, 1, 0, 0}));
    EXPECT_EQ(placement.units.front().front().spec.pipeline_ranks, std::vector{0});
    EXPECT_EQ(placement.units[2].front().spec.pipeline_ranks, std::vector{1});
}

TEST(Place, RefusesHeadsAndLayersThatDoNotDivide) {
    EXPECT_ERROR(place_parameters(spec(), mesh_of(1, 1, 1, 3), {5}), UserError, "tensor_parallel_degree = 3",
                 "8 attention heads", "divisor of 8");
    model::ModelSpec odd = spec();
    odd.num_heads = 12;
    odd.num_kv_heads = 4;
    EXPECT_ERROR(place_parameters(odd, mesh_of(1, 1, 1, 6), {5}), UserError, "tensor_parallel_degree = 6",
                 "4 key/value heads");
    EXPECT_ERROR(place_parameters(spec(), mesh_of(2, 1, 1, 1), {3, 3}), UserError, "layers_per_stage",
                 "6 layers", "has 5");
}

// Only the first and the last stage have work besides layers.
TEST(Place, RefusesAMiddleStageWithoutLayers) {
    EXPECT_ERROR(place_parameters(spec(), mesh_of(3, 1, 1, 1), {2, 0, 3}), UserError, "layers_per_stage",
                 "stage 1");
    EXPECT_NO_THROW(place_parameters(spec(), mesh_of(3, 1, 1, 1), {0, 5, 0}));
}

TEST(SplitLayers, ByHand) {
    EXPECT_EQ(split_layers(32, 1, 1, 1), std::vector{32});
    EXPECT_EQ(split_layers(32, 4, 0, 0), (std::vector{8, 8, 8, 8}));
    EXPECT_EQ(split_layers(32, 4, 1, 1), (std::vector{8, 9, 8, 7}));
    EXPECT_EQ(split_layers(6, 4, 1, 1), (std::vector{1, 2, 2, 1}));
    EXPECT_EQ(split_layers(7, 3, 0, 0), (std::vector{3, 2, 2}));
    EXPECT_EQ(split_layers(2, 2, 0, 1), (std::vector{2, 0}));
}

struct Split {
    int num_layers, num_stages, first_less, last_less;
};

/// The layers of each stage plus the layers for which the embedding and the head count.
std::vector<int> loads(const Split& split) {
    std::vector<int> loads =
        split_layers(split.num_layers, split.num_stages, split.first_less, split.last_less);
    EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), 0), split.num_layers);
    EXPECT_GE(*std::ranges::min_element(loads), 0);
    loads.front() += split.first_less;
    loads.back() += split.last_less;
    return loads;
}

/// Whether there are fewer layers than stages, or an end would get a negative number of layers.
bool impossible(const Split& split) {
    const int total = split.num_layers + split.first_less + split.last_less;
    return split.num_layers < split.num_stages || total / split.num_stages < split.last_less ||
           (total + split.num_stages - 1) / split.num_stages < split.first_less;
}

TEST(Place, ExpertsAreDividedAndThenShardedOverTheOtherRanks) {
    model::ModelSpec sparse = spec();
    sparse.experts = {.router = {.num_experts = 12, .top_k = 2}, .hidden_dim = 5};
    MeshShape mesh = mesh_of(1, 2, 3, 2);
    const auto stack = [&](layout::AxisSet expert_axes) {
        mesh.expert_axes = expert_axes;
        const auto units = place_parameters(sparse, mesh, {5}).units;
        const auto found =
            std::ranges::find(units[1], "moe.experts.w1", [](const auto& each) { return local_name(each); });
        EXPECT_EQ(found->spec.num_matrices, 12);
        return written(found->spec);
    };
    using enum layout::Axis;
    EXPECT_EQ(stack({}), "dp_shard x cp x tp:0/6 + dp_replicate/1");
    EXPECT_EQ(stack(Tensor), "tp:0/2 dp_shard x cp:0/3 + dp_replicate/1");
    EXPECT_EQ(stack({Shard, Context, Tensor}), "dp_shard x cp x tp:0/6 + dp_replicate/1");
    mesh = mesh_of(1, 2, 6, 2);
    mesh.inner_shards = 2;
    EXPECT_EQ(stack({layout::kInnerShards, Context, Tensor}),
              "dp_shard inner x cp x tp:0/4 dp_shard outer:0/3 + dp_replicate/1");
    sparse.experts->router.num_experts = 9;
    EXPECT_ERROR(stack(Tensor), RunError, "9 experts in 2 parts");
    sparse.experts.reset();
    EXPECT_ERROR(stack(Tensor), RunError, "0 experts in 2 parts");
}

TEST(SplitLayers, IsEvenAtEverySize) {
    int num_refused = 0;
    for (int num_layers = 1; num_layers <= 40; ++num_layers) {
        for (int num_stages = 2; num_stages <= 9; ++num_stages) {
            for (const int first_less : {0, 1, 5}) {
                for (const int last_less : {0, 1, 5}) {
                    const Split split{num_layers, num_stages, first_less, last_less};
                    SCOPED_TRACE(fmt::format("{} layers on {} stages, {} and {} less", num_layers, num_stages,
                                             first_less, last_less));
                    if (impossible(split)) {
                        ++num_refused;
                        EXPECT_ERROR(loads(split), UserError, fmt::format("{} layers", num_layers),
                                     fmt::format("{} pipeline stages", num_stages),
                                     "pipeline_parallel_degree", "layers_per_stage");
                        continue;
                    }
                    const std::vector<int> found = loads(split);
                    EXPECT_TRUE(std::ranges::is_sorted(found, std::greater()));
                    EXPECT_LE(found.front() - found.back(), 1);
                }
            }
        }
    }
    EXPECT_GT(num_refused, 100);
}

}  // namespace
}  // namespace argosy::parallel
