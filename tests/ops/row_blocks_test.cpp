#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <vector>

#include "ops/ops_context.h"
#include "ops/sums.h"

namespace argosy::ops {
namespace {

TEST(RowBlocks, EveryRowOnceAndOnSeveralThreads) {
    const OpsContext context;
    constexpr int64_t kRows = 9 * kRowsPerBlock + 5;
    std::vector<int> visits(kRows);
    std::set<int> threads;
    std::mutex mutex;
    const int before = at::get_num_threads();
    at::set_num_threads(3);
    const at::Tensor sum = at::ones({2}, at::kFloat);
    add_row_blocks(sum, kRows, [&](int64_t first, int64_t count, float* partial) {
        const std::lock_guard lock(mutex);
        threads.insert(at::get_thread_num());
        for (int64_t row = first; row < first + count; ++row) ++visits[row];
        partial[0] += static_cast<float>(count);
    });
    at::set_num_threads(before);
    EXPECT_EQ(visits, std::vector<int>(kRows, 1));
    EXPECT_EQ(threads.size(), 3U);
    EXPECT_EQ(sum[0].item<float>(), 1 + kRows);
    EXPECT_EQ(sum[1].item<float>(), 1);
}

TEST(RowBlocks, NoRowsAddNothing) {
    const OpsContext context;
    const at::Tensor sum = at::ones({3}, at::kFloat);
    add_row_blocks(sum, 0, [](int64_t, int64_t, float*) { FAIL(); });
    EXPECT_EQ(sum.sum().item<float>(), 3);
}

}  // namespace
}  // namespace argosy::ops
