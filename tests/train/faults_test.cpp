// The comparison of layouts detects the mistakes that trainers really made. Each mistake is made from outside
// of the trainer: a CommunicatorDouble drops or changes what a rank sends, the batch has wrong counts, or the
// linker replaces a call from one room to another (--wrap in CMakeLists.txt).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/attention.h"
#include "ops/rope.h"
#include "parallel/lowering.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

#define REAL(symbol) __asm__("__real_" symbol)
#define WRAPPED(symbol) __asm__("__wrap_" symbol)
#define MERGE "_ZN6argosy3ops15merge_attentionERKNS0_15AttentionOutputES3_"
#define ATTENTION "_ZN6argosy3ops9attentionERKN2at6TensorES4_S4_RKNS0_14AttentionShapeES4_"
#define ROPE "_ZN6argosy3ops10write_ropeERKN2at6TensorES4_RKNS0_9RopeTableES4_"
#define LOWER "_ZN6argosy8parallel5lowerERKSt6vectorINS0_6ActionESaIS2_EERKNS0_15LoweringOptionsE"

namespace argosy::testing {

// The functions, and what runs in their place.
using ops::AttentionOutput, ops::AttentionShape;
using Actions = std::vector<parallel::Action>;
AttentionOutput real_merge(const AttentionOutput& first, const AttentionOutput& second) REAL(MERGE);
AttentionOutput merge(const AttentionOutput& first, const AttentionOutput& second) WRAPPED(MERGE);
AttentionOutput real_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionShape& shape, const at::Tensor& positions) REAL(ATTENTION);
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape, const at::Tensor& positions) WRAPPED(ATTENTION);
void real_rope(const at::Tensor& y, const at::Tensor& x, const ops::RopeTable& table,
               const at::Tensor& positions) REAL(ROPE);
void rope(const at::Tensor& y, const at::Tensor& x, const ops::RopeTable& table, const at::Tensor& positions)
    WRAPPED(ROPE);
parallel::Program real_lower(const Actions& actions, const parallel::LoweringOptions& options) REAL(LOWER);
parallel::Program lower(const Actions& actions, const parallel::LoweringOptions& options) WRAPPED(LOWER);

namespace {

using comm::Op;
using comm::OpKind;
using Ops = std::span<const Op>;

constexpr double kTolerance = 1e-10;

/// A mistake in a run of two ranks. Each function may be empty: that part of the run is right then.
struct Fault {
    CommunicatorDouble::Submit submit = [](comm::Communicator& group, Ops ops) { return group.submit(ops); };
    std::function<void(train::StepBatch& batch, TinyRun& run)> change_batch = {};
    /// The squared norm that this rank adds to the job's.
    std::function<at::Tensor(TinyRun& run)> squared_norm = {};
    std::function<AttentionOutput(const AttentionOutput& first, const AttentionOutput& second)> merge = {};
    std::function<void(AttentionShape& shape, at::Tensor& positions)> change_attention = {};
    std::function<at::Tensor(const at::Tensor& positions)> rope_positions = {};
    std::function<void(parallel::Program& program)> change_program = {};
};

const Fault* active = nullptr;  // the fault of the run of two ranks; null while one rank runs

struct Activated {
    explicit Activated(const Fault& fault) { active = &fault; }
    ~Activated() { active = nullptr; }
};

/// Forward and backward of the first step under the fault.
train::StepTotals faulty_totals(TinyRun& run, const Fault& fault) {
    train::StepBatch batch = run.batch(0);
    if (fault.change_batch) fault.change_batch(batch, run);
    return run.trainer().step().forward_backward(batch);
}

/// How far two ranks under a fault are from one rank after a forward and a backward pass.
struct Comparison {
    double loss, squared_norm;     // relative differences
    NamedTensors found, expected;  // gradients
};

Comparison compare(const std::string& family, const Layout& layout, const Fault& fault) {
    TinyRun one({.family = family, .microbatch_size = TinyRun::kGlobalBatch}, self());
    const train::StepTotals expected = one.forward_backward(0);
    const Activated activated(fault);
    TinyRun* running = nullptr;
    CommunicatorDouble ranks(world(), [&](comm::Communicator& group, Ops ops) {
        // The step's totals: [loss, squared norm].
        const bool is_totals = group.name() == world().name() && ops.size() == 1 && ops[0].in.numel() == 2;
        if (is_totals && fault.squared_norm) ops[0].in[1].copy_(fault.squared_norm(*running));
        return fault.submit(group, ops);
    });
    TinyRun two({.family = family, .layout = layout}, ranks);
    running = &two;
    const train::StepTotals found = faulty_totals(two, fault);
    return {.loss = std::abs(found.loss / expected.loss - 1),
            .squared_norm = std::abs(found.squared_norm / expected.squared_norm - 1),
            .found = two.gradients(),
            .expected = one.gradients()};
}

/// The first result in which they differ; empty if there is no difference.
std::string disagreement(const std::string& family, const Layout& layout, const Fault& fault) {
    const Comparison ranks = compare(family, layout, fault);
    if (!(ranks.loss <= kTolerance)) return fmt::format("loss off by {}", ranks.loss);
    const Difference gradient = largest_difference(ranks.found, ranks.expected);
    if (!(gradient.relative <= kTolerance))
        return fmt::format("{} off by {}", gradient.name, gradient.relative);
    if (!(ranks.squared_norm <= kTolerance)) return fmt::format("squared norm off by {}", ranks.squared_norm);
    return "";
}

/// Two ranks with the stages in V: each stage runs all microbatches before the next one begins. Data of all
/// microbatches are then ready when the first of them moves to the other stage of its rank.
parallel::RankActions stages_in_turn() {
    parallel::RankActions ranks(2);
    const auto add = [&](parallel::ActionKind kind, int stage) {
        auto& actions = ranks[parallel::StageMap(4, 2, parallel::StageOrder::V).rank_of(stage)];
        for (int i = 0; i < TinyRun::kGlobalBatch; ++i) actions.push_back({kind, stage, i});
    };
    for (int stage = 0; stage < 4; ++stage) add(parallel::ActionKind::Forward, stage);
    for (int stage = 3; stage >= 0; --stage) add(parallel::ActionKind::Backward, stage);
    return ranks;
}

const Layout kRing{.name = "ring",
                   .mesh = {.context = 2},
                   .context = {.rotation = parallel::ContextOptions::Rotation::Ring}};
const Layout kContext{"cp", {.context = 2}};
const Layout kZeroBubble{"zbv", {.pipeline = 2}, {1, 1, 2, 1}, "ZBVZeroBubble"};
const Layout kInTurn{.name = "in_turn",
                     .mesh = {.pipeline = 2},
                     .stage_layers = {1, 1, 2, 1},
                     .own_schedule = stages_in_turn()};

std::string first_disagreement(const Fault& fault) {
    for (const char* family : {"llama3", "qwen2", "mistral"}) {
        for (const Layout& layout :
             {Layout{"ddp", {.replicate = 2}}, Layout{"fsdp", {.shard = 2}}, Layout{"tp", {.tensor = 2}},
              Layout{"pp", {.pipeline = 2}, {3, 2}}, kContext, kRing,
              Layout{.name = "tp_async", .mesh = {.tensor = 2}, .tensor = {.overlap_products = true}},
              kInTurn, kZeroBubble}) {
            const std::string found = disagreement(family, layout, fault);
            if (!found.empty()) return fmt::format("{} {}: {}", family, layout.name, found);
        }
    }
    return "";
}

void expect_to_show(const Fault& fault, const std::string& as) {
    const std::string found = first_disagreement(fault);
    EXPECT_NE(found.find(as), std::string::npos) << found << " instead of " << as;
}

/// The fault changes the gradients of these parameters of llama3, and nothing else that the loss shows.
void expect_wrong_gradients(const Layout& layout, const Fault& fault,
                            const std::function<bool(std::string_view name)>& is_wrong) {
    const Comparison ranks = compare("llama3", layout, fault);
    EXPECT_LE(ranks.loss, kTolerance) << layout.name;
    for (const auto& [name, expected] : ranks.expected) {
        const double difference = largest_difference(ranks.found, {{name, expected}}).relative;
        EXPECT_EQ(!(difference <= kTolerance), is_wrong(name))
            << layout.name << ": " << name << " off by " << difference;
    }
}

/// The parameters whose gradients follow from the gradients of the last block's keys: those of its keys,
/// values and norm before them, and all earlier blocks with the embedding.
bool is_before_the_last_keys(std::string_view name) {
    if (name == "norm.weight" || name == "output.weight") return false;
    const std::string last = fmt::format("layers.{}.", tiny_spec("llama3").num_layers - 1);
    if (!name.starts_with(last)) return true;
    name.remove_prefix(last.size());
    return name.starts_with("attention.wk") || name.starts_with("attention.wv") ||
           name.starts_with("attention_norm");
}

TEST(PlantedFaults, NoneShowsNothing) { EXPECT_EQ(first_disagreement({}), ""); }

// The sums of the norms' gradients are the one launch of several all-reduces over the tensor axis; the loss's
// sums over the vocabulary come one by one.
TEST(PlantedFaults, AnOmittedTensorSumShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool norms = group.name() == "tp" && ops.size() > 1 && ops[0].kind == OpKind::AllReduce;
        return norms ? comm::Pending() : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 tp: layers.4.feed_forward.w2.bias");
}

TEST(PlantedFaults, AnOmittedReplicaSumShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        return group.name() == "dp_replicate" ? comm::Pending() : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 ddp: layers.");
}

// The loss as the mean of the ranks' means.
TEST(PlantedFaults, TokensWeightedPerRankShow) {
    const auto change_batch = [](train::StepBatch& batch, TinyRun& run) {
        batch.job_counted_tokens = batch.counted_tokens * run.mesh().degree(layout::kDataAxes);
    };
    expect_to_show({.change_batch = change_batch}, "llama3 ddp: loss off");
}

TEST(PlantedFaults, CopiesThatCountTwiceInTheNormShow) {
    const auto squared_norm = [](TinyRun& run) {
        at::Tensor sum;
        for (const auto& parameter : run.trainer().model().parameters()) {
            const at::Tensor square = parameter->gradient().sum.square().sum();
            sum = sum.defined() ? sum.add_(square) : square;
        }
        return sum;
    };
    expect_to_show({.squared_norm = squared_norm}, "llama3 ddp: squared norm off");
}

// The two stages send each other a tied table's gradients, the one message with a row for each token of the
// vocabulary.
TEST(PlantedFaults, ASkippedTiedGradientShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool is_table = group.name() == "pp" && ops[0].kind == OpKind::Send &&
                              ops[0].in.size(0) == tiny_spec("qwen2").vocab_size;
        if (!is_table) return group.submit(ops);
        return group.submit({.kind = OpKind::Send, .in = at::zeros_like(ops[0].in), .peer = ops[0].peer});
    };
    expect_to_show({.submit = submit}, "qwen2 pp: tok_embeddings.weight off");
}

// Each rank keeps its own partial sums of the activations.
TEST(PlantedFaults, AnOmittedSumOfActivationsShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        if (group.name() != "tp" || ops[0].kind != OpKind::ReduceScatter) return group.submit(ops);
        const int64_t rows = ops[0].out.size(0);
        ops[0].out.copy_(ops[0].in.narrow(0, group.rank() * rows, rows));
        return comm::Pending();
    };
    expect_to_show({.submit = submit}, "llama3 tp: loss off");
}

// The keys' gradients [sequences, tokens, columns] are the one reduction of a tensor with three dims.
TEST(PlantedFaults, AnOmittedSumOfTheKeysGradientsShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool keys =
            group.name() == "cp" && ops[0].kind == OpKind::ReduceScatter && ops[0].in.dim() == 3;
        if (!keys) return group.submit(ops);
        const int64_t sequences = ops[0].out.size(0);
        ops[0].out.copy_(ops[0].in.narrow(0, group.rank() * sequences, sequences));
        return comm::Pending();
    };
    expect_wrong_gradients(kContext, {.submit = submit}, is_before_the_last_keys);
}

/// Submits messages, waits for them, and clears what came.
comm::Pending lose(comm::Communicator& group, Ops ops) {
    group.run(ops);
    for (const Op& op : ops) {
        if (op.kind == OpKind::Receive) op.out.zero_();
    }
    return {};
}

// A microbatch sends keys in each layer's forward pass; in each layer's backward pass it sends keys, then the
// sums of their gradients. The fault loses the first of these sums, the last layer's.
TEST(PlantedFaults, ALostSumOfTheRingShows) {
    const int64_t num_layers = tiny_spec("llama3").num_layers;
    for (const bool is_planted : {true, false}) {
        int64_t number = 0;
        const auto submit = [&](comm::Communicator& group, Ops ops) {
            if (group.name() != "cp" || !comm::is_message(ops[0])) return group.submit(ops);
            const bool is_sum = number++ % (3 * num_layers) == num_layers + 1;
            return is_sum && is_planted ? lose(group, ops) : group.submit(ops);
        };
        expect_wrong_gradients(kRing, {.submit = submit}, [&](std::string_view name) {
            return is_planted && is_before_the_last_keys(name);
        });
        EXPECT_EQ(number, 3 * num_layers * TinyRun::kGlobalBatch);
    }
}

TEST(PlantedFaults, LostKeysOfTheRingShow) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool keys = group.name() == "cp" && comm::is_message(ops[0]);
        return keys ? lose(group, ops) : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 ring: loss off");
}

TEST(PlantedFaults, ALostPartOfAnOverlappedProductShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool part = group.name() == "tp" && comm::is_message(ops[0]);
        return part ? lose(group, ops) : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 tp_async: loss off");
}

TEST(PlantedFaults, ALossThatCountsTwiceOverTheContextAxisShows) {
    const auto change_batch = [](train::StepBatch& batch, TinyRun& run) {
        batch.job_counted_tokens *= run.mesh().degree(layout::Axis::Context);
    };
    expect_to_show({.change_batch = change_batch}, "llama3 cp: loss off");
}

TEST(PlantedFaults, ANormThatCountsTwiceOverTheContextAxisShows) {
    const auto squared_norm = [](TinyRun& run) {
        const at::Tensor squares = parallel::owned_squared_norms(run.trainer().model()).sum();
        return squares * run.mesh().degree(layout::Axis::Context);
    };
    expect_to_show({.squared_norm = squared_norm}, "llama3 cp: squared norm off");
}

TEST(PlantedFaults, AMergeThatAveragesShows) {
    const auto merge = [](const AttentionOutput& first, const AttentionOutput& second) {
        return AttentionOutput{(first.y + second.y) / 2, real_merge(first, second).log_sum_exp};
    };
    expect_to_show({.merge = merge}, "llama3 ring: loss off");
}

/// Whether the queries are a part of a sequence whose keys are all there, as with AllGather.
bool is_part(const AttentionShape& shape) { return shape.q_len < shape.k_len; }

TEST(PlantedFaults, AMaskThatIsOffByOneShows) {
    const auto change = [](AttentionShape& shape, at::Tensor&) { shape.q_offset += is_part(shape); };
    expect_to_show({.change_attention = change}, "llama3 cp: loss off");
}

TEST(PlantedFaults, AWindowThatIsLostShows) {
    const auto change = [](AttentionShape& shape, at::Tensor&) {
        if (is_part(shape)) shape.window = ops::kNoWindow;
    };
    expect_to_show({.change_attention = change}, "mistral cp: loss off");
}

TEST(PlantedFaults, BoundariesOfDocumentsThatAreLostShow) {
    const auto change = [](AttentionShape& shape, at::Tensor& positions) {
        if (is_part(shape)) positions.reset();
    };
    expect_to_show({.change_attention = change}, "mistral cp: loss off");
}

// Each rank counts its own tokens from 0 on.
TEST(PlantedFaults, PositionsOfTheRankInPlaceOfTheSequenceShow) {
    const auto positions = [](const at::Tensor& given) {
        return given.defined() ? at::arange(given.numel(), given.options()).remainder(TinyRun::kSeqLen / 2)
                               : given;
    };
    expect_to_show({.rope_positions = positions}, "llama3 cp: loss off");
}

// The head's weights' half, which zero-bubble schedules run later.
TEST(PlantedFaults, AnOmittedWeightGradientOfTheHeadShows) {
    const auto change = [](parallel::Program& program) {
        const parallel::UnitOp* loss = nullptr;
        for (const parallel::UnitOp& op : program.ops) {
            if (op.kind == parallel::UnitOpKind::LossInput) loss = &op;
        }
        if (loss == nullptr) return;
        const parallel::UnitOp head = *loss;
        std::erase_if(program.ops, [&](const parallel::UnitOp& op) {
            return op.kind == parallel::UnitOpKind::BackwardWeight && op.stage == head.stage &&
                   op.unit == head.unit;
        });
    };
    expect_wrong_gradients(kZeroBubble, {.change_program = change}, [](std::string_view name) {
        return name == "norm.weight" || name == "output.weight";
    });
}

/// The moves of this kind between the stages of the rank: two for the first two microbatches, or none.
std::vector<parallel::UnitOp*> first_moves(parallel::Program& program, parallel::UnitOpKind kind) {
    std::vector<parallel::UnitOp*> moves;
    for (parallel::UnitOp& op : program.ops) {
        if (op.kind == kind && moves.size() < 2) moves.push_back(&op);
    }
    return moves;
}

TEST(PlantedFaults, ActivationsThatMoveFromOtherMicrobatchesShow) {
    const auto change = [](parallel::Program& program) {
        const auto moves = first_moves(program, parallel::UnitOpKind::MoveActivation);
        if (moves.size() == 2) std::swap(moves[0]->source_slot, moves[1]->source_slot);
    };
    expect_to_show({.change_program = change}, "llama3 in_turn: loss off");
}

TEST(PlantedFaults, GradientsThatMoveToOtherMicrobatchesShow) {
    const auto change = [](parallel::Program& program) {
        const auto moves = first_moves(program, parallel::UnitOpKind::MoveGradient);
        if (moves.size() == 2) std::swap(moves[0]->slot, moves[1]->slot);
    };
    // Block 1 is the stage that gets the gradients. The gradient of its last bias is the sum of those of all
    // microbatches, in any order.
    expect_wrong_gradients(kInTurn, {.change_program = change}, [](std::string_view name) {
        const bool is_earlier = name.starts_with("layers.0.") || name.starts_with("tok_embeddings.");
        return is_earlier || (name.starts_with("layers.1.") && name != "layers.1.feed_forward.w2.bias");
    });
}

}  // namespace

AttentionOutput merge(const AttentionOutput& first, const AttentionOutput& second) {
    return active && active->merge ? active->merge(first, second) : real_merge(first, second);
}

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape, const at::Tensor& positions) {
    AttentionShape changed = shape;
    at::Tensor changed_positions = positions;
    if (active && active->change_attention) active->change_attention(changed, changed_positions);
    return real_attention(q, k, v, changed, changed_positions);
}

void rope(const at::Tensor& y, const at::Tensor& x, const ops::RopeTable& table,
          const at::Tensor& positions) {
    real_rope(y, x, table, active && active->rope_positions ? active->rope_positions(positions) : positions);
}

parallel::Program lower(const Actions& actions, const parallel::LoweringOptions& options) {
    parallel::Program program = real_lower(actions, options);
    if (active && active->change_program) active->change_program(program);
    return program;
}

}  // namespace argosy::testing
