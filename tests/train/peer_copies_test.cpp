// Async tensor parallelism by copies to the memory of other processes (comm/peer_memory.h), over stand-ins:
// every bit is that of the messages through NCCL, and the operations and the pool are those of a dry step.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/backends.h"
#include "gpu/device.h"
#include "ops/ops_context.h"
#include "support/communicator_double.h"
#include "support/fake_gpus.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr parallel::TensorOptions kOverlap{.overlap_products = true};
constexpr parallel::Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};

std::unique_ptr<comm::Communicator> ranks(bool peer_copies) {
    return comm::all_ranks(comm::Backend::Nccl, "world",
                           {.timeout_seconds = kTimeoutSeconds, .peer_copies = peer_copies});
}

struct Trained {
    std::vector<double> losses;
    NamedTensors weights;
    comm::Communicator::Connections connections = {};  // before the weights are assembled
    std::vector<std::vector<comm::RecordedOp>> log;
};

Trained train(const TinyRunOptions& options, comm::Communicator& world) {
    Submissions submissions;
    CommunicatorDouble recorded = submissions.recorded(world);
    Trained trained;
    TinyRun run(options, recorded);
    for (int64_t step = 0; step < 2; ++step) trained.losses.push_back(run.train(step).loss);
    trained.log = submissions.log;
    trained.connections = world.connections();
    trained.weights = run.weights();
    return trained;
}

std::vector<Layout> layouts() {
    return {{.name = "tp4_async", .mesh = {.tensor = 4}, .tensor = kOverlap},
            {.name = "fsdp2_tp2_async", .mesh = {.shard = 2, .tensor = 2}, .tensor = kOverlap}};
}

TinyRunOptions options_of(const Layout& layout) {
    return {.layout = layout, .precision = kMixed, .microbatch_size = 2, .global_batch = 4};
}

class PeerCopiesOfSteps : public ::testing::Test {
  protected:
    PeerCopiesOfSteps() { fake_gpus().seconds_of_copy_to_peer = 2e-4; }
    ~PeerCopiesOfSteps() override { fake_gpus() = usual_; }

    const c10::Device device_ = gpu::use(world().rank());
    const ops::OpsContext tensors_;
    const FakeGpus usual_ = fake_gpus();
};

int64_t planned_peer_bytes(const TinyRunOptions& options) {
    comm::Recording recording;
    recording.copies_along_ring = [](const std::vector<int>&) { return true; };
    comm::RecordingCommunicator recorded(world().rank(), world().size(), recording);
    TinyRun run(options, recorded);
    for (int64_t step = 0; step < 2; ++step) run.train(step);
    return recording.peer_bytes;
}

TEST_F(PeerCopiesOfSteps, ChangeNoBitAndAreAsAPlanHasThem) {
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        const TinyRunOptions options = options_of(layout);
        const int num_before = fake_gpus().num_copies_to_peers;
        const Trained expected = train(options, *ranks(false));
        EXPECT_EQ(fake_gpus().num_copies_to_peers, num_before);
        EXPECT_EQ(expected.connections.peer_bytes, 0);
        const Trained found = train(options, *ranks(true));
        EXPECT_GT(fake_gpus().num_copies_to_peers, num_before);
        EXPECT_EQ(found.losses, expected.losses);
        ASSERT_EQ(found.weights.size(), expected.weights.size());
        for (const auto& [name, weight] : expected.weights)
            EXPECT_TRUE(at::equal(found.weights.at(name), weight)) << name;
        EXPECT_TRUE(found.log == expected.log) << "traces and plans see other operations";
        EXPECT_EQ(found.connections.peer_bytes, planned_peer_bytes(options));
        const int num_channels = options.layout.mesh.tensor == 2 ? 2 : 4;
        EXPECT_EQ(expected.connections.number - found.connections.number, num_channels);
    }
}

}  // namespace
}  // namespace argosy::testing
