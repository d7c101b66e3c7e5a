#include "observe/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace argosy::observe {
namespace {

/// The process's single meter, and its reading at the start of a test.
class Memory : public ::testing::Test {
  protected:
    static MemoryMeter& meter() {
        static MemoryMeter installed = MemoryMeter::install();
        return installed;
    }
    void SetUp() override {
        before_bytes_ = meter().current_bytes();
        meter().reset_peak();
    }
    int64_t current_bytes() const { return meter().current_bytes() - before_bytes_; }
    int64_t peak_bytes() const { return meter().peak_bytes() - before_bytes_; }

  private:
    int64_t before_bytes_ = 0;
};

TEST_F(Memory, CountsTensorsExactly) {
    at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(current_bytes(), 4000);
    {
        const at::Tensor b = at::zeros({7, 3}, at::kBFloat16);
        EXPECT_EQ(current_bytes(), 4000 + 42);
        const at::Tensor view = a.slice(0, 10, 20);
        EXPECT_EQ(current_bytes(), 4000 + 42);
    }
    EXPECT_EQ(current_bytes(), 4000);
    EXPECT_EQ(peak_bytes(), 4042);
    meter().reset_peak();
    EXPECT_EQ(peak_bytes(), 4000);
    a.reset();
    EXPECT_EQ(current_bytes(), 0);
    EXPECT_EQ(peak_bytes(), 4000);
}

TEST_F(Memory, CountsResizesClonesAndEmptyTensors) {
    at::Tensor a = at::zeros({10}, at::kDouble);
    a.resize_({100});
    EXPECT_EQ(current_bytes(), 800);
    EXPECT_EQ(peak_bytes(), 880);  // the old and the new tensor at the same time
    const at::Tensor copy = a.clone();
    EXPECT_EQ(current_bytes(), 1600);
    const at::Tensor nothing = at::empty({0, 5}, at::kFloat);
    EXPECT_EQ(current_bytes(), 1600);
}

TEST_F(Memory, AlignsAsLibTorchDoes) {
    for (const int64_t num_bytes : {1, 63, 64, 65, 4096, 3 << 20}) {
        const at::Tensor tensor = at::empty({num_bytes}, at::kByte);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64, 0) << num_bytes;
        std::memset(tensor.mutable_data_ptr(), 1, num_bytes);
    }
}

TEST_F(Memory, CountsOnEveryThread) {
    constexpr int kThreads = 4, kRounds = 2000;
    std::vector<at::Tensor> kept(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&kept, thread] {
            for (int round = 0; round < kRounds; ++round) kept[thread] = at::empty({100 + thread}, at::kByte);
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(current_bytes(), 100 + 101 + 102 + 103);
    EXPECT_GE(peak_bytes(), current_bytes());
    EXPECT_LE(peak_bytes(), 2 * (100 + 101 + 102 + 103));
}

TEST_F(Memory, ExhaustedMemoryGivesAnErrorWithFigures) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer ends the process";
#endif
    constexpr int64_t kFarTooMuch = int64_t{1} << 50;
    const at::Tensor beside = at::empty({1000}, at::kFloat);
    try {
        at::empty({kFarTooMuch}, at::kByte);
        ADD_FAILURE() << "that much?";
    } catch (const MemoryError& error) {
        EXPECT_GE(error.figures().requested_bytes, kFarTooMuch);
        EXPECT_EQ(error.figures().tensor_bytes, meter().current_bytes());
    }
    EXPECT_EQ(current_bytes(), 4000);
    EXPECT_FALSE(meter().of_step().allocator) << "there is no GPU";
}

TEST_F(Memory, IsInstalledOnce) {
    meter();
    EXPECT_THROW(MemoryMeter::install(), RunError);
}

TEST_F(Memory, ResidentSetGrowsWithTouchedMemory) {
    constexpr int64_t kBytes = 64 << 20;
    const int64_t before = resident_bytes();
    ASSERT_GT(before, 1 << 20);
    const at::Tensor touched = at::empty({kBytes}, at::kByte);
    std::memset(touched.mutable_data_ptr(), 1, kBytes);
    EXPECT_GE(resident_bytes(), before + kBytes / 2);
}

int64_t page_faults_of_a_step() {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    for (int layer = 0; layer < 8; ++layer) {
        const at::Tensor a = at::empty({(32 + layer) << 20}, at::kByte), b = at::empty({40 << 20}, at::kByte);
        std::memset(a.mutable_data_ptr(), 1, a.numel());
        std::memset(b.mutable_data_ptr(), 1, b.numel());
    }
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
}

TEST_F(Memory, FreedMemoryIsKept) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer brings its own malloc";
#endif
    const int64_t first = page_faults_of_a_step();
    EXPECT_LT(page_faults_of_a_step() * 10, first);
}

}  // namespace
}  // namespace argosy::observe
