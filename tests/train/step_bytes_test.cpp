// The bytes of a recorded step are those that formulas give for each axis. All sizes divide evenly, so
// nothing is padded. The symbols: P parameters, M microbatches, T tokens of a microbatch, D dim, n ranks of
// the axis.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/ops_context.h"
#include "ops/orthogonal.h"
#include "ops/work.h"
#include "train/dry_step.h"
#include "train/muon.h"

namespace argosy::testing {
namespace {

using comm::MovedBytes;
using comm::OpKind;
using parallel::Reshard;

constexpr int64_t kDim = 64, kLayers = 8, kVocab = 256, kHidden = 96, kHeadDim = 8, kHeads = 8, kKeyHeads = 8;
constexpr int64_t kMicrobatches = 4, kTokens = 2 * 16;
constexpr int64_t kActivation = kTokens * kDim * 2;  // bytes of T x D in bf16
constexpr int64_t kBlock = 2 * kDim + (2 * kHeads + 2 * kKeyHeads) * kHeadDim * kDim + 3 * kHidden * kDim;
constexpr int64_t kTable = kVocab * kDim;

train::TrainerOptions options(Reshard reshard = Reshard::EveryPass, std::vector<int> stage_layers = {}) {
    return {.spec = {.name = "llama3",
                     .vocab_size = kVocab,
                     .dim = kDim,
                     .num_layers = kLayers,
                     .num_heads = kHeads,
                     .num_kv_heads = kKeyHeads,
                     .head_dim = kHeadDim,
                     .hidden_dim = kHidden},
            .model = {.seq_len = 16, .microbatch_size = 2},
            .stage_layers = std::move(stage_layers),
            .reshard = reshard,
            .num_microbatches = kMicrobatches};
}

comm::Recording recorded(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank) {
    comm::Recording recording;
    const ops::OpsContext tensors;
    train::record_step(options, shape, rank, recording);
    return recording;
}

/// The bytes of this kind over a group, as a whole: before the division by the ring.
int64_t whole_bytes(const comm::Recording& recording, const std::string& group, OpKind kind) {
    int64_t sum = 0;
    for (const auto& [op, count] : recording.counts()) {
        if (op.group == group && op.kind == kind) sum += count * op.num_bytes();
    }
    return sum;
}

/// The number of these collectives over a group.
int64_t num_collectives(const comm::Recording& recording, const std::string& group, OpKind kind) {
    int64_t number = 0;
    for (const auto& [op, count] : recording.counts())
        number += op.group == group && op.kind == kind ? count : 0;
    return number;
}

MovedBytes both_ways(int64_t bytes) { return {bytes, bytes}; }

// Each microbatch gathers all units in forward and the blocks again in backward, in bf16, and reduces all
// gradients in fp32.
TEST(StepBytes, OfShardsAreGathersAndReductionsOfTheParameters) {
    constexpr int64_t kAll = 2 * kTable + kDim + kLayers * kBlock;
    for (const int n : {2, 4, 8, 32}) {
        for (const int rank : {0, n - 1}) {
            const auto recording = recorded(options(), {{1, 1, n, 1, 1}}, rank);
            const int64_t gathered = kMicrobatches * 2 * (kAll + kLayers * kBlock);
            const int64_t reduced = kMicrobatches * 4 * kAll;
            EXPECT_EQ(whole_bytes(recording, "dp_shard", OpKind::AllGather), gathered);
            EXPECT_EQ(whole_bytes(recording, "dp_shard", OpKind::ReduceScatter), reduced);
            EXPECT_EQ(recording.bytes_by_group().at("dp_shard"),
                      both_ways((gathered + reduced) / n * (n - 1)));
        }
    }
    const auto gathered_once = recorded(options(Reshard::Never), {{1, 1, 4, 1, 1}}, 0);
    EXPECT_EQ(whole_bytes(gathered_once, "dp_shard", OpKind::AllGather), 2 * kAll);
}

// Matrices are gathered in eight bits if they are kept so; norms and the embedding in bf16. At the start and
// after the update one reduction has the scales of all of them.
TEST(StepBytes, OfShardsInFloat8AreHalfAsManyOfTheMatrices) {
    constexpr int64_t kNorms = 2 * kDim;
    train::TrainerOptions options = testing::options();
    options.model.casts = {ops::find_recipe("tensorwise"), {}, /*gather=*/true};
    const auto recording = recorded(options, {{1, 1, 4, 1, 1}}, 0);
    const int64_t block = (kBlock - kNorms) + 2 * kNorms;
    EXPECT_EQ(whole_bytes(recording, "dp_shard", OpKind::AllGather),
              kMicrobatches * (2 * kTable + kTable + 2 * kDim + 2 * kLayers * block));
    EXPECT_EQ(whole_bytes(recording, "dp_shard", OpKind::AllReduce), 2 * 4 * (4 * kLayers + 1));
    EXPECT_EQ(num_collectives(recording, "dp_shard", OpKind::AllReduce), 2);
}

// With replicas, the gradients of this rank's shards are summed once in a step, in fp32.
TEST(StepBytes, OfReplicasAreOneSumOfTheShards) {
    constexpr int64_t kAll = 2 * kTable + kDim + kLayers * kBlock;
    const auto recording = recorded(options(), {{1, 2, 4, 1, 1}}, 5);
    EXPECT_EQ(recording.bytes_by_group().at("dp_replicate"), both_ways(2 * (4 * kAll / 4) / 2));
}

// A block gathers the tokens before each of its two pairs of products, and reduces them after it. Its
// backward does the reverse, and gathers the inputs of the first products again. The embedding reduces in
// forward and gathers in backward; the head gathers in forward and reduces in backward. The loss has the
// maxima of the tokens and two sums, in fp32. The gradients of norms are summed once, in fp32.
TEST(StepBytes, OfTheTensorAxisAreActivations) {
    for (const int n : {2, 4, 8}) {
        for (const int rank : {0, n - 1}) {
            const auto recording = recorded(options(), {{1, 1, 1, 1, n}}, rank);
            const int64_t gathered = kMicrobatches * (6 * kLayers + 2) * kActivation;
            const int64_t reduced = kMicrobatches * (4 * kLayers + 2) * kActivation;
            const int64_t summed = 4 * (kMicrobatches * 3 * kTokens + (2 * kLayers + 1) * kDim);
            EXPECT_EQ(whole_bytes(recording, "tp", OpKind::AllGather), gathered);
            EXPECT_EQ(whole_bytes(recording, "tp", OpKind::ReduceScatter), reduced);
            EXPECT_EQ(whole_bytes(recording, "tp", OpKind::AllReduce), summed);
            EXPECT_EQ(recording.bytes_by_group().at("tp"),
                      both_ways((gathered + reduced + 2 * summed) / n * (n - 1)));
        }
    }
}

// If one cast of activations serves all products, blocks gather them in eight bits: two for products, two
// gradients of outputs, and two again for the weights' gradients; so does the head. Else only the forward
// products gather in eight bits, with a scale for each row.
TEST(StepBytes, OfTheTensorAxisAreHalfAsManyInFloat8) {
    train::TrainerOptions options = testing::options();
    for (const char* recipe : {"tensorwise", "rowwise"}) {
        options.model.casts.recipe = ops::find_recipe(recipe);
        const auto recording = recorded(options, {{1, 1, 1, 1, 2}}, 1);
        const bool shared = options.model.casts.recipe->shares_x();
        const int64_t layer =
            shared ? 6 * kActivation / 2 : 2 * (kActivation / 2 + 4 * kTokens) + 4 * kActivation;
        EXPECT_EQ(whole_bytes(recording, "tp", OpKind::AllGather),
                  kMicrobatches * (kLayers * layer + kActivation + kActivation / (shared ? 2 : 1)))
            << recipe;
    }
}

// Of the collectives beside a product, the parts that overlap with it are messages: a gather before the first
// and a reduction after the second product of each pair, in forward and in backward. They move as many bytes.
// A recomputation repeats the forward's messages, but for those after the block's last product.
TEST(StepBytes, OfOverlappedProductsAreThoseOfTheCollectives) {
    for (const auto& [recompute, products] :
         {std::pair{model::RecomputeMode::None, 8}, {model::RecomputeMode::Full, 11}}) {
        for (const int n : {2, 4}) {
            train::TrainerOptions options = testing::options();
            options.recompute = recompute;
            const auto plain = recorded(options, {{1, 1, 1, 1, n}}, 1);
            options.model.tensor.overlap_products = true;
            const auto overlapped = recorded(options, {{1, 1, 1, 1, n}}, 1);
            EXPECT_EQ(overlapped.bytes_by_group(), plain.bytes_by_group());
            const int64_t sent = kMicrobatches * kLayers * products * kActivation / n * (n - 1);
            EXPECT_EQ(whole_bytes(overlapped, "tp", OpKind::Send), sent);
            EXPECT_EQ(whole_bytes(overlapped, "tp", OpKind::Receive), sent);
            EXPECT_EQ(whole_bytes(plain, "tp", OpKind::Send), 0);
        }
    }
}

// A block gathers the keys and values of the other ranks in forward and again in backward, in bf16, and sums
// their gradients in fp32. A ring moves as many bytes in messages.
TEST(StepBytes, OfTheContextAxisAreKeysValuesAndTheirGradients) {
    constexpr int64_t kKeysAndValues = kTokens * 2 * kKeyHeads * kHeadDim;  // elements of a microbatch
    constexpr int64_t kTimes = kMicrobatches * kLayers;
    for (const int n : {2, 4, 8}) {
        const layout::MeshShape shape{{1, 1, 2, n, 1}};
        const auto gathered = recorded(options(), shape, n - 1);
        EXPECT_EQ(whole_bytes(gathered, "cp", OpKind::AllGather), kTimes * 2 * 2 * kKeysAndValues);
        EXPECT_EQ(whole_bytes(gathered, "cp", OpKind::ReduceScatter), kTimes * 4 * kKeysAndValues);
        train::TrainerOptions ring = options();
        ring.model.context.rotation = parallel::ContextOptions::Rotation::Ring;
        const int64_t others = kKeysAndValues / n * (n - 1);
        EXPECT_EQ(recorded(ring, shape, 1).bytes_by_group().at("cp"),
                  both_ways(kTimes * (2 * 2 + 4) * others));
        EXPECT_EQ(gathered.bytes_by_group().at("cp"), both_ways(kTimes * (2 * 2 + 4) * others));
    }
}

// A stage gets the activation of each microbatch from the stage before, and its gradient from the stage
// after.
TEST(StepBytes, OfThePipelineAreActivationsAndTheirGradients) {
    constexpr int64_t kOnce = kMicrobatches * kActivation;
    for (const int tensor : {1, 4}) {
        const layout::MeshShape shape{{4, 1, 1, 1, tensor}};
        for (int stage = 0; stage < 4; ++stage) {
            const auto recording = recorded(options(Reshard::Never, {2, 2, 2, 2}), shape, stage * tensor);
            const int64_t neighbours = stage == 0 || stage == 3 ? 1 : 2;
            EXPECT_EQ(recording.bytes_by_group().at("pp"), both_ways(neighbours * kOnce / tensor)) << stage;
        }
    }
}

// All axes at once: a stage's units, cut over the tensor axis, are gathered and reduced once in a step.
TEST(StepBytes, OfAThreeWayMeshAreThoseOfTheStage) {
    const layout::MeshShape shape{{4, 1, 8, 1, 2}};
    const auto recording =
        recorded(options(Reshard::Never, {2, 2, 2, 2}), shape, shape.rank({1, 0, 3, 0, 1}));
    constexpr int64_t kStage = 2 * ((kBlock - 2 * kDim) / 2 + 2 * kDim);  // norms are whole on each rank
    EXPECT_EQ(recording.bytes_by_group().at("dp_shard"), both_ways((2 + 4) * kStage / 8 * 7));
    EXPECT_EQ(recording.bytes_by_group().at("pp"), both_ways(2 * kMicrobatches * kActivation / 2));
    EXPECT_EQ(whole_bytes(recording, "tp", OpKind::AllGather), kMicrobatches * 2 * 6 * kActivation);
}

double flops_of_update(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank) {
    const ops::OpsContext tensors;
    comm::Recording recording;
    train::DryRank dry(options, shape, rank, recording);
    train::Step& step = dry.trainer().step();
    const train::StepTotals totals = step.forward_backward(dry.batch());
    double flops = 0;
    const ops::WorkObserver observer([&](const ops::Work& work) { flops += work.flops; });
    step.update(totals, /*lr=*/1e-3);
    return flops;
}

// Plans are made of the rank with the last part of the sequence.
TEST(StepBytes, NoRankHasMoreOfMuonsWorkThanThePlannedOne) {
    train::TrainerOptions muon = options();
    muon.step.optimizers = {train::muon({})};
    const layout::MeshShape shape{{1, 1, 1, 8, 4}};
    std::vector<double> flops;
    for (int rank = 0; rank < shape.num_ranks(); ++rank) flops.push_back(flops_of_update(muon, shape, rank));
    const int planned = shape.rank({0, 0, 0, 7, 0});
    EXPECT_EQ(flops[planned], std::ranges::max(flops));
    EXPECT_GT(flops[planned], std::ranges::min(flops)) << "56 matrices on 32 ranks";
}

/// One layer on many ranks, so tensor ranks share its matrices.
train::TrainerOptions options_of_shared() {
    train::TrainerOptions shared = options();
    shared.spec.num_layers = 1;
    shared.spec.hidden_dim = 16384;
    shared.step.optimizers = {train::muon({})};
    return shared;
}

// w1, w2 and w3 of kDim x 16384 are shared by groups of four of 32 ranks; the other matrices have an owner.
TEST(StepBytes, OfSharedMatricesAreTheirGramAndItsPolynomial) {
    const layout::MeshShape shape{{1, 2, 4, 1, 4}};
    int64_t num_shared = 0;
    std::vector<double> flops;
    for (int rank = 0; rank < shape.num_ranks(); ++rank) {
        const auto with = recorded(options_of_shared(), shape, rank);
        train::TrainerOptions adamw = options_of_shared();
        adamw.step.optimizers = {};
        const auto without = recorded(adamw, shape, rank);
        const auto bytes = [&](OpKind kind) {
            return whole_bytes(with, "tp", kind) - whole_bytes(without, "tp", kind);
        };
        const int64_t steps = bytes(OpKind::ReduceScatter) / (4 * kDim * kDim);
        EXPECT_EQ(bytes(OpKind::ReduceScatter), steps * 4 * kDim * kDim) << "A in fp32";
        EXPECT_EQ(bytes(OpKind::AllGather), steps * 2 * 2 * kDim * kDim) << "A and C in bf16";
        num_shared += steps;
        flops.push_back(flops_of_update(options_of_shared(), shape, rank));
    }
    EXPECT_EQ(num_shared, 3 * 5 * 4) << "three matrices, five steps, four ranks each";
    EXPECT_EQ(flops[0], std::ranges::max(flops)) << "the planned rank";
    const double all = 3 * ops::orthogonalization_flops(kDim, 16384, 5);
    EXPECT_NEAR(flops[0] / (all / 3 / 4), 1, 0.01);
}

// Muon's matrices travel in bf16: each once to its owner, within the owner's replica, and once back; then
// from there to the other replicas.
TEST(StepBytes, OfMuonAreItsMatrices) {
    train::TrainerOptions muon = options();
    muon.step.optimizers = {train::muon({})};
    constexpr int64_t kMatrices = kLayers * (kBlock - 2 * kDim), kReplicas = 2, kParts = 4;
    const std::string parts = "dp_shard x tp", copies = "dp_replicate";
    const layout::MeshShape shape{{1, kReplicas, 2, 1, 2}};
    int64_t exchanged = 0, sent = 0;
    for (const int replica : {0, 1}) {
        const auto recording = recorded(muon, shape, replica * kParts);
        const auto without = recorded(options(), shape, replica * kParts);
        exchanged += whole_bytes(recording, parts, OpKind::AllToAll);
        EXPECT_EQ(whole_bytes(recording, copies, OpKind::Broadcast), 2 * kMatrices / kParts);
        for (const auto& group : {"dp_shard", "tp"})
            EXPECT_EQ(recording.bytes_by_group().at(group), without.bytes_by_group().at(group)) << group;
    }
    EXPECT_EQ(exchanged, 2 * 2 * kMatrices);
    for (int rank = 0; rank < shape.num_ranks(); ++rank) {
        const auto recording = recorded(muon, shape, rank);
        for (const auto& [op, count] : recording.counts())
            sent += op.kind == OpKind::AllToAll ? count * comm::moved_bytes(op).sent : 0;
    }
    EXPECT_EQ(sent, exchanged / kParts * (kParts - 1)) << "an owner has its own part";
}

}  // namespace
}  // namespace argosy::testing
