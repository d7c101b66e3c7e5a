// Random models on random meshes, with random schedules and data: the ranks together compute the gradients of
// one rank, or every rank refuses the setting with a UserError. A draw is a function of its seed and of the
// number of ranks; support/fuzzing.h says how to run many.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "parallel/own_schedule.h"
#include "support/fuzzing.h"
#include "support/tensors.h"
#include "support/world.h"
#include "train/muon.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using parallel::Action;
using parallel::ActionKind;
using parallel::ContextOptions;
using parallel::RankActions;
using parallel::ScheduleShape;
using parallel::StageOrder;

constexpr int kNumDraws = 24;
constexpr double kDoubleTolerance = 1e-10, kFloatTolerance = 1e-4, kWeightsTolerance = 1e-9;
/// A gradient that is zero but for rounding is compared with the largest of all gradients.
constexpr double kMinScale = 1e-3;

class Random {
  public:
    explicit Random(uint64_t seed) : bits_(seed) {}
    int64_t between(int64_t min, int64_t max) {
        return min + static_cast<int64_t>(bits_() % (max - min + 1));
    }
    bool chance(int percent) { return between(1, 100) <= percent; }
    template <class T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[between(0, std::ssize(all) - 1)];
    }

  private:
    std::mt19937_64 bits_;
};

struct Draw {
    TinyRunOptions options;
    int num_ranks = 1;
    bool must_run = true;       // false: it has sizes that may be refused
    bool may_deadlock = false;  // a schedule of its own, which may be refused for that
};

/// Some meshes for experts have mostly shards, of which an inner part may divide experts.
layout::MeshRequest draw_mesh(Random& random, int num_ranks, bool has_experts) {
    layout::MeshRequest mesh{.shard = 1};
    const bool has_shards = has_experts && random.chance(40);
    for (int left = num_ranks, factor = 2; left > 1;) {
        if (left % factor != 0) {
            ++factor;
            continue;
        }
        left /= factor;
        const bool shards = has_shards && random.chance(75);
        *(shards ? &mesh.shard
                 : random.one_of(
                       {&mesh.pipeline, &mesh.replicate, &mesh.shard, &mesh.context, &mesh.tensor})) *= factor;
    }
    return mesh;
}

void draw_heads(Random& random, int tensor, Draw& draw) {
    model::ModelSpec& spec = *draw.options.spec;
    const bool any = random.chance(4);
    do {
        spec.num_kv_heads = random.between(1, 4);
        spec.num_heads = spec.num_kv_heads * random.between(1, 8);
    } while (!any && (spec.num_heads % tensor != 0 ||
                      (spec.num_kv_heads % tensor != 0 && tensor % spec.num_kv_heads != 0)));
    if (any) draw.must_run = false;
}

model::ExpertSpec draw_expert_spec(Random& random) {
    using Score = ops::Router::Score;
    const int64_t num_experts = random.between(1, 9);
    model::ExpertSpec experts = {.router = {.num_experts = num_experts,
                                            .top_k = random.between(1, std::min<int64_t>(num_experts, 8)),
                                            .score = random.one_of({Score::Softmax, Score::Sigmoid}),
                                            .normalize = random.chance(50)},
                                 .hidden_dim = random.between(1, 20),
                                 .period = random.between(1, 2)};
    if (random.chance(30)) experts.dense_layers = {random.between(0, 2)};
    if (random.chance(40)) experts.shared_hidden_dim = random.between(1, 25);
    if (random.chance(30)) experts.router.scale = 2.5;
    return experts;
}

model::ModelSpec draw_model(Random& random, bool has_experts) {
    model::ModelSpec spec{.name = "drawn",
                          .vocab_size = random.between(9, 67),
                          .dim = random.between(4, 30),
                          .head_dim = 2 * random.between(1, 5),
                          .hidden_dim = random.between(5, 40)};
    spec.rope_theta = 500;
    if (random.chance(20)) spec.rope_scaling = {.type = model::RopeScaling::Type::Linear, .factor = 2};
    spec.tied_embeddings = random.chance(50);
    spec.qkv_bias = random.chance(40);
    spec.output_bias = random.chance(30);
    spec.mlp_bias = random.chance(30);
    spec.qk_norm = random.one_of({model::QkNorm::None, model::QkNorm::Heads, model::QkNorm::Together});
    spec.norms = random.one_of({model::NormPlace::Before, model::NormPlace::After, model::NormPlace::Both});
    spec.norms_add_one = random.chance(30);
    spec.scaled_embeddings = random.chance(30);
    if (random.chance(30)) spec.query_scalar = 3;
    if (!spec.query_scalar && random.chance(30)) spec.rotary_dim = 2 * random.between(1, spec.head_dim / 2);
    if (random.chance(30)) spec.activation = ops::Activation::GeluTanh;
    if (has_experts) spec.experts = draw_expert_spec(random);
    return spec;
}

/// An order in which all actions can run, cut into the ranks' parts. Ranks may still wait for each other for
/// ever, because a channel holds one message: such a schedule is refused.
RankActions draw_schedule(Random& random, const ScheduleShape& shape) {
    enum class Progress { None, Forward, BackwardInput, Done };
    const auto stages = shape.stages();
    std::vector<std::vector<Progress>> progress(
        shape.num_stages, std::vector<Progress>(shape.num_microbatches, Progress::None));
    const auto reached = [&](int stage, int microbatch, Progress wanted) {
        return stage < 0 || stage == shape.num_stages || progress[stage][microbatch] >= wanted;
    };
    RankActions ranks(shape.num_ranks);
    while (true) {
        std::vector<Action> ready;
        for (int stage = 0; stage < shape.num_stages; ++stage) {
            for (int i = 0; i < shape.num_microbatches; ++i) {
                const Progress now = progress[stage][i];
                if (now == Progress::None && reached(stage - 1, i, Progress::Forward)) {
                    ready.push_back({ActionKind::Forward, stage, i});
                }
                if (now == Progress::Forward && reached(stage + 1, i, Progress::BackwardInput)) {
                    ready.push_back({ActionKind::Backward, stage, i});
                    ready.push_back({ActionKind::BackwardInput, stage, i});
                }
                if (now == Progress::BackwardInput) ready.push_back({ActionKind::BackwardWeight, stage, i});
            }
        }
        if (ready.empty()) return ranks;
        const Action chosen = ready[random.between(0, std::ssize(ready) - 1)];
        progress[chosen.stage][chosen.microbatch] = chosen.kind == ActionKind::Forward ? Progress::Forward
                                                    : chosen.kind == ActionKind::BackwardInput
                                                        ? Progress::BackwardInput
                                                        : Progress::Done;
        ranks[stages.rank_of(chosen.stage)].push_back(chosen);
    }
}

/// Draws the schedule, the number of microbatches (returned) and the stages.
int draw_pipeline(Random& random, Draw& draw) {
    Layout& layout = draw.options.layout;
    const int num_ranks = layout.mesh.pipeline;
    const bool own = random.chance(25);
    int per_rank = 1, num_microbatches = static_cast<int>(random.between(1, 6));
    layout.schedule =
        random.one_of({"1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"});
    auto order =
        own ? random.one_of({StageOrder::Loop, StageOrder::V}) : parallel::stage_order(layout.schedule);
    if (order == StageOrder::V) {
        per_rank = 2;
    } else if (own || layout.schedule.starts_with("Interleaved")) {
        per_rank = static_cast<int>(random.between(1, 3));
    }
    if (!own && layout.schedule.starts_with("Interleaved")) {
        num_microbatches = num_ranks * static_cast<int>(random.between(1, 2));
    }
    if (random.chance(3)) {
        num_microbatches = static_cast<int>(random.between(1, 6));
        per_rank = static_cast<int>(random.between(1, 3));
        if (own && per_rank != 2) order = StageOrder::Loop;
        draw.must_run = false;
    }

    const int num_stages = per_rank * num_ranks;
    for (int stage = 0; stage < num_stages; ++stage) {
        const bool inner = stage > 0 && stage + 1 < num_stages;
        layout.stage_layers.push_back(static_cast<int>(random.between(inner ? 1 : 0, 2)));
    }
    if (num_stages == 1) layout.stage_layers = {static_cast<int>(random.between(1, 3))};
    if (random.chance(3)) {
        layout.stage_layers[random.between(0, num_stages - 1)] = 0;
        draw.must_run = false;
    }
    draw.options.spec->num_layers =
        std::accumulate(layout.stage_layers.begin(), layout.stage_layers.end(), int64_t{0});

    if (!own) return num_microbatches;
    draw.may_deadlock = num_ranks > 1;
    layout.own_schedule = draw_schedule(random, {num_stages, num_ranks, num_microbatches, order});
    if (random.chance(10)) {
        auto& actions = layout.own_schedule[random.between(0, num_ranks - 1)];
        actions.erase(actions.begin() + random.between(0, std::ssize(actions) - 1));
        draw.must_run = false;
    }
    return num_microbatches;
}

/// Draws which ranks divide the experts, and how they are chosen.
void draw_experts(Random& random, Draw& draw) {
    if (!draw.options.spec->experts) return;
    draw.options.equal_router_rows = random.chance(30);
    layout::MeshRequest& mesh = draw.options.layout.mesh;
    const int tensor = mesh.tensor, near = tensor * mesh.context;
    std::set<int> degrees = {1, tensor};
    for (int inner = 1; inner <= mesh.shard; ++inner)
        if (mesh.shard % inner == 0) degrees.insert(near * inner);
    mesh.expert = *std::next(degrees.begin(), random.between(0, std::ssize(degrees) - 1));
    ops::Router& router = draw.options.spec->experts->router;
    int64_t& count = router.num_experts;
    if (random.chance(4)) {
        draw.must_run = false;
    } else {
        count = mesh.expert * divide_up(count, mesh.expert);
    }
    if (!random.chance(40)) return;
    do {
        router.num_groups = random.between(1, count);
    } while (count % router.num_groups != 0);
    const int64_t min_groups = divide_up(router.top_k, count / router.num_groups);
    router.top_groups = random.between(min_groups, router.num_groups);
}

/// Draws lengths and documents of the samples, and their number.
void draw_data(Random& random, int num_microbatches, Draw& draw) {
    TinyRunOptions& options = draw.options;
    const auto& mesh = options.layout.mesh;
    options.microbatch_size = random.between(1, 3);
    options.global_batch = options.microbatch_size * num_microbatches * mesh.replicate * mesh.shard;
    if (options.global_batch == 1) options.microbatch_size = options.global_batch = 2;  // one has no targets
    int64_t unit = 1;
    if (mesh.context > 1) unit = mesh.context * chunks_per_rank(options.layout.context.balance);
    options.seq_len = unit * random.between(1, std::max<int64_t>(1, 24 / unit));
    if (random.chance(4)) {
        unit = 1;
        options.seq_len = random.between(1, 24);
        draw.must_run = false;
    }
    while ((options.seq_len + 1) % 5 == 0) options.seq_len += unit;  // no sample would have targets
    const int64_t tokens = options.microbatch_size * options.seq_len / mesh.context;
    if (layout::chunk(tokens, mesh.tensor, mesh.tensor - 1).size == 0) draw.must_run = false;
    if (random.chance(60)) {
        options.spec->sliding_window = random.between(1, options.seq_len + 2);
        options.spec->full_layer_period = random.between(0, 3);
        if (random.chance(50)) options.spec->window_rope_theta = 50;
    }
    if (!random.chance(50)) return;
    for (int64_t left = random.between(1, 5); left > 0; --left) {
        options.document_lengths.push_back(random.between(1, options.seq_len));
    }
}

/// Draws how experts are balanced.
void draw_balance(uint64_t seed, Draw& draw) {
    Random random(~seed);  // the other settings of a seed stay
    const auto coefficient = [&] { return random.chance(70) ? 0.01 * random.between(1, 20) : 0; };
    draw.options.balance = {.bias_update_rate = coefficient(),
                            .sequence_loss = coefficient(),
                            .step_loss = coefficient(),
                            .z_loss = coefficient()};
}

Draw draw(uint64_t seed, int max_ranks, bool has_experts) {
    using Rotation = ContextOptions::Rotation;
    using layout::ContextBalance;
    Random random(seed);
    Draw draw;
    draw.num_ranks = random.chance(60) ? max_ranks : static_cast<int>(random.between(1, max_ranks));
    TinyRunOptions& options = draw.options;
    options.spec = draw_model(random, has_experts);
    options.layout.mesh = draw_mesh(random, draw.num_ranks, has_experts);
    options.layout.reshard = random.one_of({parallel::Reshard::EveryPass, parallel::Reshard::Never});
    options.layout.context = {random.one_of({Rotation::AllGather, Rotation::Ring}),
                              random.one_of({ContextBalance::HeadTail, ContextBalance::None})};
    using model::RecomputeMode;
    options.recompute = random.one_of({RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full});
    draw_heads(random, options.layout.mesh.tensor, draw);
    draw_experts(random, draw);
    draw_data(random, draw_pipeline(random, draw), draw);
    if (random.chance(25)) options.precision = {at::kFloat, at::kFloat, at::kFloat};
    options.layout.tensor = {.overlap_products = random.chance(30), .gather_logits = random.chance(20)};
    options.seed = seed;
    if (has_experts) draw_balance(seed, draw);
    if (options.spec->qk_norm == model::QkNorm::None && random.chance(50)) options.qk_clip = 0.1;
    if (!random.chance(50)) return draw;
    options.optimizers = {train::muon({.by_head = random.chance(50)})};
    if (!random.chance(50)) return draw;
    // one or two large matrices, which tensor ranks share
    options.spec->hidden_dim = random.between(6000, 9000);
    const auto* layer = random.one_of({"layers.0.", "layers.1."});
    const auto* name = random.one_of({"w1.weight", "w2.weight", "w3.weight"});
    options.optimizers[0].takes = [=](const layout::ParamSpec& spec) {
        return spec.name.starts_with(layer) && spec.name.ends_with(name);
    };
    return draw;
}

std::string written(const RankActions& ranks) {
    std::string text;
    for (const auto& actions : ranks) {
        for (const Action& action : actions) text += parallel::cell(action) + " ";
        text += "| ";
    }
    return text;
}

std::string described(uint64_t seed, const Draw& draw) {
    const TinyRunOptions& options = draw.options;
    const auto& [name, mesh, stage_layers, schedule, reshard, context, own, tensor] = options.layout;
    return fmt::format(
        "seed {}: pp {} ddp {} fsdp {} cp {} tp {} ep {}; {} stages of {} {}; reshard {}, rotation {}, balance {}, "
        "overlap {}, all logits {}, recompute {}, {}, equal router rows {}; {} samples of {} in microbatches of {}, documents of "
        "{}; {}",
        seed, mesh.pipeline, mesh.replicate, mesh.shard, mesh.context, mesh.tensor, mesh.expert, schedule,
        fmt::join(stage_layers, " "), written(own), static_cast<int>(reshard),
        static_cast<int>(context.rotation), static_cast<int>(context.balance), tensor.overlap_products,
        tensor.gather_logits, static_cast<int>(options.recompute), toString(options.precision.master), options.equal_router_rows,
        options.global_batch, options.seq_len, options.microbatch_size,
        fmt::join(options.document_lengths, " "),
        fmt::join(model::differences(model::ModelSpec(), *options.spec), ", "));
}

/// The run of the draw, or the UserError's message.
std::pair<std::unique_ptr<TinyRun>, std::string> make_run(const TinyRunOptions& options,
                                                          comm::Communicator& ranks) {
    try {
        return {std::make_unique<TinyRun>(options, ranks), ""};
    } catch (const UserError& refusal) {
        return {nullptr, refusal.what()};
    }
}

double largest_element(const NamedTensors& tensors) {
    double largest = 0;
    for (const auto& [name, tensor] : tensors) largest = std::max(largest, tensor.abs().max().item<double>());
    return largest;
}

/// Gives the balancing the state of a run that has made updates, the same on all ranks.
void begin_unbalanced(TinyRun& run) {
    RandomTensors random(5);
    at::Tensor& biases = run.trainer().model().router_biases();
    biases.copy_(random.normal(biases.sizes(), biases.scalar_type()) * 0.02);
    const at::Tensor loads = run.trainer().step().expert_loads();
    if (loads.defined()) loads.copy_(random.normal(loads.sizes(), loads.scalar_type()).abs());
}

/// `totals` are those before the update that the run has made; `expected` those of `one`.
void expect_balance(TinyRun& run, const train::StepTotals& totals, TinyRun& one,
                    const train::StepTotals& expected) {
    const at::Tensor scale = expected.expert_sums.abs().amax(0).clamp_min(1e-12);
    EXPECT_LE(((totals.expert_sums - expected.expert_sums) / scale).abs().max().item<double>(),
              kDoubleTolerance);
    EXPECT_TRUE(identical(run.trainer().model().router_biases(), one.trainer().model().router_biases()));
    const at::Tensor loads = one.trainer().step().expert_loads();
    if (loads.defined()) {
        EXPECT_TRUE(identical(run.trainer().step().expert_loads(), loads));
    }
}

/// The gradients; with Muon the weights, and with experts their balancing, after one update. COLLECTIVE over
/// the ranks of the run.
void expect_gradients_of_one_rank(TinyRun& run, const TinyRunOptions& options) {
    const bool is_double = options.precision.master == at::kDouble;
    const double tolerance = is_double ? kDoubleTolerance : kFloatTolerance;
    TinyRunOptions alone = options;
    alone.layout = {};
    alone.precision = TinyRunOptions().precision;
    alone.recompute = model::RecomputeMode::None;
    alone.microbatch_size = options.global_batch;
    TinyRun one(alone, self());
    const bool has_experts = options.spec->experts.has_value();
    if (has_experts) begin_unbalanced(run), begin_unbalanced(one);
    const train::StepTotals expected = one.forward_backward(0), found = run.forward_backward(0);
    EXPECT_NEAR(found.loss / expected.loss, 1, tolerance);
    EXPECT_NEAR(found.squared_norm / expected.squared_norm, 1, 10 * tolerance);
    if (options.qk_clip && options.spec->num_layers > 0) {
        const at::Tensor difference = found.largest_scores - expected.largest_scores;
        EXPECT_LE((difference / expected.largest_scores.max()).abs().max().item<double>(), tolerance);
    }
    const NamedTensors gradients = run.gradients(), of_one = one.gradients();
    const double min_scale = kMinScale * largest_element(of_one);
    ASSERT_GT(min_scale, 0);
    for (const auto& [name, gradient] : of_one) {
        const double scale = std::max(min_scale, gradient.abs().max().item<double>());
        EXPECT_LE((gradients.at(name) - gradient).abs().max().item<double>() / scale, tolerance) << name;
    }
    if (!is_double || options.spec->num_layers == 0 || (options.optimizers.empty() && !has_experts)) return;
    run.update(found);
    one.update(expected);
    if (has_experts) expect_balance(run, found, one, expected);
    if (options.optimizers.empty()) return;
    NamedTensors weights = one.weights();
    const NamedTensors found_weights = run.weights();
    // AdamW makes an update of a gradient that is only rounding: of queries and keys, if a token sees one key.
    std::erase_if(weights, [&](const auto& each) {
        return of_one.at(each.first).abs().max().template item<double>() < kDoubleTolerance * min_scale;
    });
    const Difference difference = largest_difference(found_weights, weights);
    EXPECT_LE(difference.relative, kWeightsTolerance) << difference.name;
}

/// COLLECTIVE over the draw's ranks. Returns whether the setting was refused, by all of them.
bool check(const Draw& draw, comm::Communicator& ranks) {
    const auto [run, refusal] = make_run(draw.options, ranks);
    const at::Tensor refusals = at::full({1}, run ? 0 : 1, at::kLong);
    ranks.run({.kind = comm::OpKind::AllReduce, .out = refusals, .in = refusals});
    const auto num_refusals = refusals.item<int64_t>();
    EXPECT_TRUE(num_refusals == 0 || num_refusals == draw.num_ranks) << num_refusals << " ranks refuse";
    const bool deadlocks = draw.may_deadlock && refusal.find("deadlocks") != std::string::npos;
    EXPECT_TRUE(run || !draw.must_run || deadlocks) << refusal;
    if (num_refusals == 0) expect_gradients_of_one_rank(*run, draw.options);
    return num_refusals > 0;
}

/// COLLECTIVE: rank 0's answer, for clocks differ.
bool all_agree(bool own) {
    const at::Tensor answer = at::full({1}, own ? 1 : 0, at::kLong);
    world().run({.kind = comm::OpKind::Broadcast, .out = answer, .peer = 0});
    return answer.item<int64_t>() != 0;
}

/// Counts the draws that ran with divided experts, by what else they have.
class ExpertDraws {
  public:
    void add(const TinyRunOptions& options) {
        const layout::MeshRequest& mesh = options.layout.mesh;
        if (mesh.expert == 1) return;
        const int near = mesh.tensor * mesh.context, parts = mesh.expert > near ? mesh.expert / near : 1;
        const int64_t samples = options.global_batch / mesh.replicate / mesh.shard;
        for (const auto& [name, has] : std::initializer_list<std::pair<const char*, bool>>{
                 {"all", true},
                 {"tp", mesh.tensor > 1},
                 {"cp", mesh.context > 1},
                 {"pp", mesh.pipeline > 1},
                 {"fsdp", mesh.shard > 1},
                 {"hsdp", mesh.replicate > 1},
                 {"an inner part of the shards", parts > 1 && parts < mesh.shard},
                 {"another schedule than 1F1B", mesh.pipeline > 1 && (options.layout.schedule != "1F1B" ||
                                                                      !options.layout.own_schedule.empty())},
                 {"recompute", options.recompute != model::RecomputeMode::None},
                 {"accumulation", samples > options.microbatch_size},
                 {"documents", !options.document_lengths.empty()},
                 {"muon", !options.optimizers.empty()}})
            counts_[name] += has;
    }
    std::string text() const {
        std::string text;
        for (const auto& [name, count] : counts_)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
        return text;
    }

    bool has_all() const { return std::ranges::all_of(counts_, [](const auto& entry) { return entry.second > 0; }); }

  private:
    std::map<std::string, int> counts_;
};

void expect_gradients_of_draws(bool has_experts) {
    const FuzzSeeds seeds(kNumDraws);
    int num_run = 0, num_refused = 0;
    ExpertDraws with_experts;
    for (auto seed = seeds.begin(); all_agree(seed != seeds.end()); ++seed) {
        const Draw drawn = draw(*seed, world().size(), has_experts);
        SCOPED_TRACE(described(*seed, drawn));
        std::vector<int> members(drawn.num_ranks);
        std::iota(members.begin(), members.end(), 0);
        if (world().rank() >= drawn.num_ranks) continue;
        const auto ranks = world().subgroup(members, "world");
        const bool refused = check(drawn, *ranks);
        ++(refused ? num_refused : num_run);
        if (!refused) with_experts.add(drawn.options);
    }
    ::testing::Test::RecordProperty("run", num_run);
    ::testing::Test::RecordProperty("refused", num_refused);
    if (world().rank() == 0) {
        fmt::print("{} settings ran, {} were refused\n", num_run, num_refused);
        if (has_experts) fmt::print("ran with divided experts: {}\n", with_experts.text());
        if (has_experts && world().size() == 8 && num_run + num_refused == kNumDraws)
            EXPECT_TRUE(with_experts.has_all()) << with_experts.text();
        EXPECT_GT(num_run, num_refused);
    }
}

TEST(RandomLayouts, ComputeTheGradientsOfOneRank) { expect_gradients_of_draws(/*has_experts=*/false); }

TEST(RandomLayouts, OfExpertsComputeTheGradientsOfOneRank) { expect_gradients_of_draws(/*has_experts=*/true); }

}  // namespace
}  // namespace argosy::testing
