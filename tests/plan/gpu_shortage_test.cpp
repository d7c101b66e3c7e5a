// A run whose GPU memory or host memory is exhausted, on stand-ins for GPUs. pretrain.memory tests whole
// runs.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>

#include "base/error.h"
#include "expect_error.h"
#include "gpu/device.h"
#include "observe/step_timer.h"
#include "plan/training_memory.h"
#include "support/fake_gpus.h"

namespace argosy::plan {
namespace {

class GpuShortage : public ::testing::Test {
  protected:
    GpuShortage() { gpu::use(0); }
    ~GpuShortage() override { testing::fake_gpus() = usual_; }

    void explain(const std::function<void()>& fail, const char* phase = nullptr) const {
        MemoryAccount account(config_);
        if (phase != nullptr) account.enter_phase(phase);
        try {
            fail();
        } catch (...) {
            account.explain();
        }
    }

    const testing::FakeGpus usual_ = testing::fake_gpus();
    config::JobConfig config_;
};

TEST_F(GpuShortage, OnTheHostHasOtherRemedies) {
    config_.checkpoint.enable = true;
    const auto counted = [] { throw MemoryError({size_t{3} << 29, size_t{1} << 30}, "none"); };
    const std::string remedies =
        "What would need less: fewer ranks per node; more ranks to shard over (each rank's copy for saving "
        "is in host memory); comm.shared_memory_mib below 64";
    EXPECT_ERROR(explain(counted), RunError,
                 "1.5 GiB requested, in the host's memory, beside 1 GiB of tensors there. " + remedies);
    EXPECT_ERROR(explain([] { throw std::bad_alloc(); }), RunError,
                 "out of memory, in the host's memory. " + remedies);
}

TEST_F(GpuShortage, OfDataOnTheHostHasTheRemediesOfBoth) {
    const auto counted = [] { throw MemoryError({size_t{3} << 29, size_t{1} << 30}, "none"); };
    EXPECT_ERROR(explain(counted, observe::describe(observe::Phase::Data)), RunError,
                 "fewer ranks per node; ", "; training.seq_len below");
}

TEST_F(GpuShortage, OutsideTensorsReportsTheGpusMemory) {
    const auto outside = [] { throw MemoryError({size_t{3} << 29}, "none"); };
    config_.compile.graphs = config::Switch::On;
    EXPECT_ERROR(explain(outside), RunError, "1.5 GiB requested; of the GPU's 1024 GiB",
                 "compile.graphs = false");
    config_.compile.graphs = config::Switch::Off;  // as a run with experts chooses
    try {
        explain(outside);
    } catch (const RunError& error) {
        EXPECT_EQ(std::string(error.what()).find("graphs"), std::string::npos) << error.what();
    }
}

TEST_F(GpuShortage, IsReportedIfTheGpuRefusesQueries) {
    testing::fake_gpus().num_devices = 0;
    EXPECT_ERROR(
        explain([] { throw MemoryError({size_t{3} << 29}, "none"); }), RunError,
        "out of memory: 1.5 GiB requested. What would need less: ", "activation_checkpoint.mode = full");
}

}  // namespace
}  // namespace argosy::plan
