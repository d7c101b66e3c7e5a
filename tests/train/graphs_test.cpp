// Steps that run as recorded graphs on a GPU, over stand-ins for CUDA, NCCL and graphs: each replay reads the
// documents of its own microbatches, and more documents than the recording has room for make another
// recording.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "comm/backends.h"
#include "ops/documents.h"
#include "ops/ops_context.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/data_feed.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

/// Counts the graphs that a run launches.
class CountingRanks : public CommunicatorDouble {
  public:
    explicit CountingRanks(comm::Communicator& inner)
        : CommunicatorDouble(inner, [](comm::Communicator& group, auto ops) { return group.submit(ops); }) {}
    void launch_graph(const std::string& what, const std::function<uint64_t()>& launch) override {
        ++num_graphs;
        CommunicatorDouble::launch_graph(what, launch);
    }
    int num_graphs = 0;
};

/// The room for documents in each step. The graphs of step 1 are launched again in step 2, those of step 3 in
/// step 4; step 0 has none.
constexpr std::array<int64_t, 5> kRoom = {8, 8, 8, 16, 16};

/// Whether a document begins at the token. Each step and microbatch has other documents.
bool begins_document(int64_t step, int64_t microbatch, int64_t token) {
    return (5 * token + 2 * step + microbatch) % (kRoom[step] == 8 ? 7 : 2) == 0;
}

/// The positions of the tokens of a microbatch's whole sequences: [sequences, tokens].
at::Tensor positions_of(const model::Batch& batch, int64_t step, int64_t microbatch) {
    std::vector<int64_t> positions;
    for (int64_t token = 0; token < batch.num_sequences * TinyRun::kSeqLen; ++token) {
        const bool begins = token % TinyRun::kSeqLen == 0 || begins_document(step, microbatch, token);
        positions.push_back(begins ? 0 : positions.back() + 1);
    }
    return at::tensor(positions, at::kLong).view({batch.num_sequences, TinyRun::kSeqLen});
}

/// Gives the microbatches of a step documents, as a DataFeed does.
void add_documents(train::StepBatch& batch, int64_t step, const Layout& layout, const comm::Mesh& mesh,
                   bool with_offsets) {
    const auto parts =
        layout::context_parts(layout.context.balance, TinyRun::kSeqLen, mesh.degree(layout::Axis::Context),
                              mesh.coordinate(layout::Axis::Context));
    for (int64_t i = 0; model::Batch & each : batch.microbatches) {
        each.positions = train::own_part(positions_of(each, step, i), layout.context.balance, mesh).flatten();
        const auto size = static_cast<size_t>(each.positions.numel());
        const at::Tensor ends = at::empty_like(each.positions);
        const int64_t num_documents =
            ops::write_document_ends({each.positions.const_data_ptr<int64_t>(), size}, parts[0].size,
                                     {ends.mutable_data_ptr<int64_t>(), size});
        ASSERT_LE(num_documents, kRoom[step]);
        ASSERT_GE(num_documents, each.num_sequences * (kRoom[step] == 8 ? 1 : 4));
        if (with_offsets) each.document_offsets = ops::document_offsets(ends, kRoom[step]);
        ++i;
    }
}

struct Trained {
    NamedTensors weights;
    std::vector<double> losses;
};

/// Weights and losses after all steps.
Trained train(TinyRun& run, const Layout& layout, bool with_offsets = true) {
    Trained result;
    for (int64_t step = 0; step < std::ssize(kRoom); ++step) {
        train::StepBatch batch = run.batch(step);
        add_documents(batch, step, layout, run.mesh(), with_offsets);
        result.losses.push_back(run.update(run.trainer().step().forward_backward(batch)).loss);
    }
    result.weights = run.weights();
    return result;
}

struct Case {
    std::string family;
    Layout layout;
};
std::vector<Case> cases() {
    if (world().size() == 1) return {{"llama3", {"one"}}, {"mistral", {"one"}}};
    return {{"llama3", {"fsdp", {.shard = 2}}},
            {"mistral", {"tp", {.tensor = 2}}},
            {"qwen2", {"pp", {.pipeline = 2}, {3, 2}}},
            {"mistral", {"cp", {.context = 2}}},
            {"llama3",
             {.name = "ring",
              .mesh = {.context = 2},
              .context = {.rotation = parallel::ContextOptions::Rotation::Ring}}}};
}

/// COLLECTIVE
void expect_that_graphs_change_nothing(const std::string& family, const Layout& layout,
                                       comm::Communicator& ranks) {
    const TinyRunOptions plain{.family = family,
                               .layout = layout,
                               .precision = {at::kFloat, at::kFloat, at::kFloat},
                               .microbatch_size = 2,
                               .qk_clip = 0.05};  // so low that it acts
    TinyRunOptions with_graphs = plain;
    with_graphs.graphs = true;
    CountingRanks counting(ranks);
    TinyRun run(with_graphs, counting), without(plain, ranks), composed(plain, ranks);

    const Trained found = train(run, layout), expected = train(without, layout);
    EXPECT_GE(counting.num_graphs, std::ssize(kRoom) - 1) << "each step but the first is graphs";
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(largest_difference(found.weights, expected.weights).relative, 0);

    // Attention without the kernels for documents computes all scores at once.
    const Trained by_scores = train(composed, layout, /*with_offsets=*/false);
    for (size_t step = 0; step < kRoom.size(); ++step)
        EXPECT_NEAR(found.losses[step] / by_scores.losses[step], 1, 1e-5) << "step " << step;
}

TEST(Graphs, ReadTheDocumentsOfEachStep) {
    const ops::OpsContext tensors;
    const auto ranks = comm::all_ranks(comm::Backend::Nccl, "world", {.timeout_seconds = kTimeoutSeconds});
    for (const auto& [family, layout] : cases()) {
        SCOPED_TRACE(family + " " + layout.name);
        expect_that_graphs_change_nothing(family, layout, *ranks);
    }
}

}  // namespace
}  // namespace argosy::testing
