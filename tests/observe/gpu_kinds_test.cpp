// The kinds of work of a step on a GPU. The GPU is a fake whose clock the tests set.
#include "observe/gpu_kinds.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "gpu/device.h"
#include "observe/step_timer.h"
#include "support/fake_gpus.h"

namespace argosy::observe {
namespace {

using testing::fake_gpus;
using enum ComputeKind;

/// The ranks of a GPU, seen from the first; the compute stream stands still at their waits.
class Ranks : public comm::Communicator {
  public:
    explicit Ranks(std::string name) : Communicator(std::move(name), c10::Device(c10::kCUDA, 0)) {}
    int rank() const override { return 0; }
    int size() const override { return 2; }
    std::unique_ptr<Communicator> subgroup(std::span<const int>, std::string name) const override {
        return std::make_unique<Ranks>(std::move(name));
    }
    comm::Pending submit(std::span<const comm::Op>) override { return {}; }
    void label_exposed(int label) override { label_ = label; }
    double exposed_seconds_of(int label) const override {
        const auto found = seconds_.find(label);
        return found == seconds_.end() ? 0 : found->second;
    }
    double exposed_seconds() const override {
        double sum = 0;
        for (const auto& [label, seconds] : seconds_) sum += seconds;
        return sum;
    }
    void stand_still(double seconds) {
        fake_gpus().seconds_ahead += seconds;
        seconds_[label_] += seconds;
    }

  private:
    int label_ = 0;
    std::map<int, double> seconds_;
};

class GpuKindsTest : public ::testing::Test {
  protected:
    ~GpuKindsTest() override { fake_gpus() = usual_; }

    static void work(double seconds) { fake_gpus().seconds_ahead += seconds; }
    /// Whole seconds: the clock of the host goes on meanwhile.
    static std::vector<int64_t> seconds(const StepTimes& times) {
        std::vector<int64_t> found;
        for (const double ms : times.compute_kinds_ms.value()) found.push_back(std::llround(ms / 1e3));
        return found;
    }
    /// A step whose phase Compute does this and takes `total` seconds of the host.
    template <class Work>
    StepTimes step(double total, Work compute) {
        timer_.start_step();
        {
            const auto phase = timer_.phase(Phase::Compute);
            compute();
            host_seconds_ += total;
        }
        work(1000);  // the optimizer
        ranks_.stand_still(500);
        return timer_.finish_step();
    }

    const testing::FakeGpus usual_ = fake_gpus();
    Ranks ranks_{"world"};
    comm::Mesh mesh_{layout::MeshShape{{1, 1, 1, 1, 2}}, ranks_};
    double host_seconds_ = 0;
    StepTimer timer_{mesh_, [this] { return host_seconds_; }};
};

TEST_F(GpuKindsTest, AreTheTimesBetweenEventsWithoutWaits) {
    for (int i = 0; i < 2; ++i) {
        const StepTimes times = step(100, [&] {
            timer_.compute(Forward);
            work(10);
            ranks_.stand_still(7);
            timer_.compute(Forward);
            work(1);
            timer_.compute(Backward);
            work(20);
            timer_.compute(Weights);
            work(3);
            timer_.compute(Forward);
            work(4);
            timer_.compute(Other);
            work(5);
        });
        EXPECT_EQ(seconds(times), (std::vector<int64_t>{15, 0, 0, 20, 3, 55})) << "step " << i;
    }
}

TEST_F(GpuKindsTest, OfARecordedGraphCountAtEachLaunch) {
    constexpr uint64_t kGraph = 7;
    const StepTimes recorded = step(100, [&] {
        fake_gpus().captures = kGraph;
        timer_.compute(Forward);
        work(10);
        timer_.compute(Head);
        work(2);
        timer_.compute(Other);
        fake_gpus().captures = 0;
    });
    EXPECT_EQ(seconds(recorded), (std::vector<int64_t>{0, 0, 0, 0, 0, 100})) << "it has not run yet";
    for (const int launches : {1, 3}) {
        const StepTimes times = step(100, [&] {
            for (int i = 0; i < launches; ++i) timer_.launched(kGraph);
        });
        EXPECT_EQ(seconds(times),
                  (std::vector<int64_t>{10 * launches, 0, 2 * launches, 0, 0, 100 - 12 * launches}));
    }
    EXPECT_FALSE(step(100, [] {}).compute_kinds_ms) << "a step that computes nothing of a kind";
}

}  // namespace
}  // namespace argosy::observe
