// When a run makes its NCCL communicators, over stand-ins for CUDA and NCCL: before the model takes memory,
// and none in a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/backends.h"
#include "gpu/device.h"
#include "ops/ops_context.h"
#include "support/fake_gpus.h"
#include "support/world.h"
#include "train/muon.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

int64_t allocated_bytes() { return gpu::memory()->allocated_bytes; }

/// The memory in use when each communicator was made.
class Connections : public ::testing::Test {
  protected:
    Connections() {
        fake_gpus().made_communicator = [this] { bytes_.push_back(allocated_bytes()); };
    }
    ~Connections() override { fake_gpus().made_communicator = {}; }

    /// Trains two steps, or one where ranks outnumber the cores.
    void expect_early(const TinyRunOptions& options) {
        SCOPED_TRACE(options.layout.name);
        bytes_.clear();
        const int64_t before = allocated_bytes();
        TinyRun run(options, *ranks_);
        const int64_t model_bytes = allocated_bytes() - before;
        const size_t num_made = bytes_.size();
        if (num_made > 0) {
            EXPECT_LT(*std::ranges::max_element(bytes_) - before, model_bytes / 5);
        }
        for (int64_t step = 0; step < (world().size() > 2 ? 1 : 2); ++step) run.train(step);
        EXPECT_EQ(bytes_.size(), num_made) << "made in a step";
    }

    const c10::Device device_ = gpu::use(world().rank());  // counts the tensors from now on
    const ops::OpsContext tensors_;
    const std::unique_ptr<comm::Communicator> ranks_ =
        comm::all_ranks(comm::Backend::Nccl, "world", {.timeout_seconds = kTimeoutSeconds});
    std::vector<int64_t> bytes_;
};

TinyRunOptions options_of(const Layout& layout) {
    return {.family = "llama3", .layout = layout, .precision = {at::kFloat, at::kFloat, at::kFloat}};
}

TEST_F(Connections, AreMadeBeforeTheModelAndNeverInAStep) {
    for (const Layout& layout : every_layout(world().size())) expect_early(options_of(layout));
}

TEST_F(Connections, OfMuonsExchangeAreMadeBeforeTheModelToo) {
    const int size = world().size();
    for (const Layout& layout :
         {Layout{"ddp", {.replicate = size}}, Layout{"fsdp_tp", {.shard = size / 2, .tensor = 2}}}) {
        TinyRunOptions options = options_of(layout);
        options.optimizers = {train::muon({})};
        expect_early(options);
    }
}

TEST_F(Connections, AreThoseOfTheRanks) {
    // 1. gathers and reductions of the shards: none for the loss and the norm, and not one more for other
    //    sets of axes with the same ranks
    TinyRun run(options_of({.name = "fsdp", .mesh = {.shard = world().size()}}), *ranks_);
    EXPECT_EQ(bytes_.size(), 2);
    for (int64_t step = 0; step < 2; ++step) run.train(step);
    EXPECT_EQ(bytes_.size(), 2);
    // 2. their number and memory
    EXPECT_EQ(ranks_->connections().number, 2);
    EXPECT_EQ(ranks_->connections().bytes, static_cast<int64_t>(2 * fake_gpus().communicator_bytes));
}

}  // namespace
}  // namespace argosy::testing
