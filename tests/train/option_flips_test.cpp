// Every option of a run either changes what a step executes (the operations between ranks and the tensors
// that it allocates), or is listed here with the reason why it does not. Within one process, flipping an
// option and flipping it back gives the first step again: nothing is kept under too few options.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "ops/ops_context.h"
#include "parallel/repeated_ops.h"
#include "parallel/schedule.h"
#include "support/allocation_log.h"
#include "support/communicator_double.h"
#include "train/dry_step.h"

namespace argosy::testing {
namespace {

using train::TrainerOptions;

/// The names of all options. A new field breaks these structured bindings; then give it a flip below.
std::set<std::string> names_of_options() {
    TrainerOptions options;
    [[maybe_unused]] const auto& [spec, model, stage_layers, schedule, own_schedule, own_schedule_path,
                                  reshard, recompute, num_microbatches, executor, step] = options;
    [[maybe_unused]] const auto& [precision, casts, tensor, context, seq_len, microbatch_size, seed,
                                  score_threshold, planned_imbalance] = model;
    [[maybe_unused]] const auto& [graphs, take_softmax_sums, observer, launch_observer, records] = executor;
    [[maybe_unused]] const auto& [master, compute, reduce, bf16_gradients] = precision;
    [[maybe_unused]] const auto& [recipe, filter, gather, min_width] = casts;
    [[maybe_unused]] const auto& [overlap_products, gather_logits] = tensor;
    [[maybe_unused]] const auto& [rotation, balance] = context;
    [[maybe_unused]] const auto& [max_norm, weight_decay, decay_all_parameters, groups, unit_grad_norms,
                                  qk_clip, experts, adamw, optimizers] = step;
    [[maybe_unused]] const auto& [bias_update_rate, sequence_loss, step_loss, z_loss, force_balance] =
        experts;
    [[maybe_unused]] const auto& [beta1, beta2, eps, moments, adamw_seed] = adamw;
    return {"spec",
            "master",
            "compute",
            "reduce",
            "bf16_gradients",
            "recipe",
            "filter",
            "min_width",
            "gather",
            "stage_layers",
            "schedule",
            "own_schedule",
            "own_schedule_path",
            "reshard",
            "recompute",
            "graphs",
            "take_softmax_sums",
            "overlap_products",
            "gather_logits",
            "rotation",
            "balance",
            "seq_len",
            "microbatch_size",
            "num_microbatches",
            "seed",
            "observer",
            "launch_observer",
            "records",
            "max_norm",
            "decay_all_parameters",
            "groups",
            "unit_grad_norms",
            "score_threshold",
            "planned_imbalance",
            "qk_clip",
            "bias_update_rate",
            "sequence_loss",
            "step_loss",
            "z_loss",
            "force_balance",
            "beta1",
            "beta2",
            "eps",
            "weight_decay",
            "moments",
            "adamw_seed",
            "optimizers"};
}

struct Executed {
    std::vector<std::vector<comm::RecordedOp>> launches;
    std::vector<int64_t> allocations;
    bool operator==(const Executed&) const = default;
};

/// A step of rank 1, or of the only rank.
Executed executed(const TrainerOptions& options, const layout::MeshShape& shape) {
    auto& memory = AllocationLog::of<c10::DeviceType::Meta>();
    Submissions submissions;
    memory.start();
    const ops::OpsContext tensors;
    train::record_step(options, shape, shape.num_ranks() > 1 ? 1 : 0, submissions.recording);
    return {submissions.log, memory.sizes()};
}

/// What is repeated leaves its tensors, and nothing else.
class NoRecords : public parallel::WorkRecords {
    void run_aside(Work work) override { work(); }
    int record(Work work) override {
        work();
        return 0;
    }
    void repeat(int /*record*/, Work replace) override { replace(); }
};

struct Flip {
    std::string name;
    layout::MeshShape shape;
    std::function<void(TrainerOptions&)> flip;
    std::string reason = "";                                // if it changes nothing: why
    std::function<void(TrainerOptions&)> before = nullptr;  // what the option needs
};

constexpr layout::MeshShape kOne{{1, 1, 1, 1, 1}}, kPipeline{{2, 1, 1, 1, 1}}, kShard{{1, 1, 2, 1, 1}},
    kContext{{1, 1, 1, 2, 1}}, kTensor{{1, 1, 1, 1, 2}};

void give_experts(TrainerOptions& options) {
    options.spec.experts = {.router = {.num_experts = 4, .top_k = 2}, .hidden_dim = 24};
}

TrainerOptions base(const Flip& flip) {
    TrainerOptions options{
        .spec = {.name = "llama3",
                 .vocab_size = 64,
                 .dim = 32,
                 .num_layers = 4,
                 .num_heads = 4,
                 .num_kv_heads = 4,
                 .head_dim = 8,
                 .hidden_dim = 48},
        .model = {.precision = {at::kFloat, at::kBFloat16, at::kFloat}, .seq_len = 16, .microbatch_size = 2},
        .num_microbatches = 4};
    if (flip.shape.degree(layout::Axis::Pipeline) > 1) options.stage_layers = {2, 2};
    if (flip.before) flip.before(options);
    return options;
}

void cast_products(TrainerOptions& options) { options.model.casts.recipe = ops::find_recipe("tensorwise"); }

const std::string kArithmetic = "only numbers in the arithmetic change";

std::vector<Flip> flips() {
    using parallel::ContextOptions;
    return {
        {"spec", kOne, [](auto& o) { o.spec.num_layers = 3; }},
        {"master", kOne, [](auto& o) { o.model.precision.master = at::kBFloat16; }},
        {"compute", kShard, [](auto& o) { o.model.precision.compute = at::kFloat; }},
        {"reduce", kShard, [](auto& o) { o.model.precision.reduce = at::kBFloat16; }},
        {"bf16_gradients", kOne, [](auto& o) { o.model.precision.bf16_gradients = true; }},
        {"recipe", kTensor, [](auto& o) { o.model.casts.recipe = ops::find_recipe("rowwise"); }},
        {"filter", kTensor, [](auto& o) { o.model.casts.filter = {"attention.wk"}; }, "", cast_products},
        {"min_width", kTensor, [](auto& o) { o.model.casts.min_width = 1e6; }, "", cast_products},
        {"gather", kShard, [](auto& o) { o.model.casts.gather = true; }, "", cast_products},
        {"stage_layers", kPipeline,
         [](auto& o) {
             o.stage_layers = {1, 3};
         }},
        {"schedule", kPipeline, [](auto& o) { o.schedule = "GPipe"; }},
        {"own_schedule", kPipeline,
         [](auto& o) {
             o.own_schedule = parallel::schedule("GPipe", {2, 2, 4, parallel::StageOrder::Loop});
         }},
        {"own_schedule_path", kPipeline, [](auto& o) { o.own_schedule_path = "a.csv"; },
         "only messages name it"},
        {"reshard", kShard, [](auto& o) { o.reshard = parallel::Reshard::Never; }},
        {"recompute", kTensor, [](auto& o) { o.recompute = model::RecomputeMode::Full; }},
        {"graphs", kOne, [](auto& o) { o.executor.graphs = true; }, "processors have no graphs"},
        {"take_softmax_sums", kOne,
         [](auto& o) { o.executor.take_softmax_sums = [](int, const ops::SoftmaxSums&) {}; },
         "programs with backward passes do not call it"},
        {"overlap_products", kTensor, [](auto& o) { o.model.tensor.overlap_products = true; }},
        {"gather_logits", kTensor, [](auto& o) { o.model.tensor.gather_logits = true; }},
        {"rotation", kContext, [](auto& o) { o.model.context.rotation = ContextOptions::Rotation::Ring; }},
        {"balance", kContext, [](auto& o) { o.model.context.balance = layout::ContextBalance::None; }},
        {"seq_len", kOne, [](auto& o) { o.model.seq_len = 32; }},
        {"microbatch_size", kOne, [](auto& o) { o.model.microbatch_size = 1; }},
        {"num_microbatches", kOne, [](auto& o) { o.num_microbatches = 2; }},
        {"seed", kOne, [](auto& o) { o.model.seed = 5; }, "only random numbers change"},
        {"observer", kOne, [](auto& o) { o.executor.observer = [](const parallel::UnitOp*) {}; },
         "it only watches"},
        {"launch_observer", kOne, [](auto& o) { o.executor.launch_observer = [](uint64_t) {}; },
         "it only watches"},
        {"records", kOne,
         [](auto& o) {
             static NoRecords records;
             o.executor.records = &records;
         }},
        {"max_norm", kShard, [](auto& o) { o.step.max_norm = std::numeric_limits<double>::infinity(); },
         "the norm is computed and reported in any case; clipping is a factor of the update"},
        {"decay_all_parameters", kOne, [](auto& o) { o.step.decay_all_parameters = true; }, kArithmetic},
        {"groups", kOne,
         [](auto& o) {
             o.step.groups = {{"wq", 2.0}};
         },
         kArithmetic},
        {"unit_grad_norms", kShard, [](auto& o) { o.step.unit_grad_norms = true; }},
        {"score_threshold", kOne, [](auto& o) { o.model.score_threshold = 100; }},
        {"planned_imbalance", layout::resolve({.shard = 2, .expert = 2, .num_experts = 4}, 2),
         [](auto& o) { o.model.planned_imbalance = 1.5; }, "", give_experts},
        {"bias_update_rate", kOne, [](auto& o) { o.step.balance.bias_update_rate = 0.1; }, "", give_experts},
        {"sequence_loss", kTensor, [](auto& o) { o.step.balance.sequence_loss = 0.1; }, "", give_experts},
        {"step_loss", kTensor, [](auto& o) { o.step.balance.step_loss = 0.1; }, "", give_experts},
        {"z_loss", kTensor, [](auto& o) { o.step.balance.z_loss = 0.1; }, "", give_experts},
        {"force_balance", kOne, [](auto& o) { o.step.balance.force_balance = true; }, "", give_experts},
        {"qk_clip", kShard, [](auto& o) { o.step.qk_clip = 100; }},
        {"beta1", kOne, [](auto& o) { o.step.adamw.beta1 = 0.5; }, kArithmetic},
        {"beta2", kOne, [](auto& o) { o.step.adamw.beta2 = 0.5; }, kArithmetic},
        {"eps", kOne, [](auto& o) { o.step.adamw.eps = 1; }, kArithmetic},
        {"weight_decay", kOne, [](auto& o) { o.step.weight_decay = 1; }, kArithmetic},
        {"optimizers", kOne,
         [](auto& o) {
             o.step.optimizers.push_back({[](const auto&) { return true; },
                                          [](auto parameters, comm::Mesh&) {
                                              return std::make_unique<train::AdamW>(
                                                  train::AdamWOptions{.moments = at::kBFloat16},
                                                  std::move(parameters));
                                          }});
         }},
        {"moments", kOne, [](auto& o) { o.step.adamw.moments = at::kBFloat16; }},
        {"adamw_seed", kOne, [](auto& o) { o.step.adamw.seed = 5; }, "the run's seed takes its place"},
    };
}

TEST(OptionFlips, AreThoseOfAllOptions) {
    std::set<std::string> names;
    for (const Flip& flip : flips()) EXPECT_TRUE(names.insert(flip.name).second) << flip.name << " twice";
    EXPECT_EQ(names, names_of_options());
}

TEST(OptionFlips, ChangeWhatAStepExecutesOrSayWhyNot) {
    for (const Flip& flip : flips()) {
        const TrainerOptions options = base(flip);
        TrainerOptions flipped = options;
        flip.flip(flipped);
        const Executed before = executed(options, flip.shape), after = executed(flipped, flip.shape);
        EXPECT_EQ(before == after, !flip.reason.empty()) << flip.name << ": " << flip.reason;
        EXPECT_EQ(executed(options, flip.shape), before) << flip.name << " flipped back";
    }
}

}  // namespace
}  // namespace argosy::testing
