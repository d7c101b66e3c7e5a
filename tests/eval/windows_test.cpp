#include "eval/windows.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <numeric>

#include "eval/microbatches.h"

namespace argosy::eval {
namespace {

std::vector<Window> windows(int64_t num_tokens, int64_t longest) {
    std::vector<Window> all;
    append_windows(0, num_tokens, longest, all);
    return all;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
    const auto* first = tensor.const_data_ptr<int64_t>();
    return {first, first + tensor.numel()};
}

TEST(Windows, AShortRecordIsOneWindow) {
    EXPECT_EQ(windows(10, 9), (std::vector<Window>{{0, 0, 9, 9}}));
    EXPECT_EQ(windows(10, 100), (std::vector<Window>{{0, 0, 9, 9}}));
    EXPECT_EQ(windows(2, 1), (std::vector<Window>{{0, 0, 1, 1}}));
}

// lm-evaluation-harness' rolling windows with the first token as the prefix: nine predicted, four at a time.
TEST(Windows, TheLastWindowExtendsBack) {
    EXPECT_EQ(windows(10, 4), (std::vector<Window>{{0, 0, 4, 4}, {0, 4, 4, 4}, {0, 5, 4, 1}}));
    EXPECT_EQ(windows(9, 4), (std::vector<Window>{{0, 0, 4, 4}, {0, 4, 4, 4}}));
    EXPECT_EQ(windows(4, 1), (std::vector<Window>{{0, 0, 1, 1}, {0, 1, 1, 1}, {0, 2, 1, 1}}));
}

TEST(Windows, PredictEachTokenOnce) {
    for (int64_t num_tokens = 2; num_tokens < 30; ++num_tokens) {
        for (int64_t longest = 1; longest < 32; ++longest) {
            std::vector<int> predicted(num_tokens, 0);
            for (const Window& window : windows(num_tokens, longest)) {
                EXPECT_LE(window.num_inputs, longest);
                EXPECT_GE(window.num_inputs, window.num_scored);
                const int64_t end = window.begin + window.num_inputs;
                for (int64_t i = end - window.num_scored; i < end; ++i) ++predicted[i + 1];
            }
            EXPECT_EQ(predicted[0], 0);
            EXPECT_EQ(std::count(predicted.begin() + 1, predicted.end(), 1), num_tokens - 1);
        }
    }
}

TEST(Windows, BatchesAreFilledLongestFirst) {
    const std::vector<Window> mixed = {{0, 0, 3, 3}, {1, 0, 8, 8}, {2, 0, 5, 5}, {3, 0, 8, 8}, {4, 0, 2, 2}};
    const auto records_in = [](const std::vector<WindowBatch>& batches) {
        std::vector<std::vector<int64_t>> records;
        for (const WindowBatch& batch : batches) {
            records.emplace_back();
            for (const Window& window : batch.windows) records.back().push_back(window.record);
        }
        return records;
    };
    using Records = std::vector<std::vector<int64_t>>;
    EXPECT_EQ(records_in(in_batches(mixed, {16})), (Records{{1, 3}, {2, 0, 4}}));
    EXPECT_EQ(records_in(in_batches(mixed, {23})), (Records{{1, 3}, {2, 0, 4}}));
    EXPECT_EQ(records_in(in_batches(mixed, {24})), (Records{{1, 3, 2}, {0, 4}}));
    EXPECT_EQ(records_in(in_batches(mixed, {1})), (Records{{1}, {3}, {2}, {0}, {4}})) << "one at least";
}

/// Equal beginnings are shared, but only before what a window scores.
TEST(Windows, PackedBatchesShareBeginnings) {
    const std::vector<Tokens> records = {
        {1, 2, 3, 4, 5}, {7, 8, 9}, {1, 2, 3, 6}, {1, 2, 3, 4, 9}, {7, 8, 9}};
    const std::vector<Window> windows = {
        {0, 0, 4, 1}, {1, 0, 2, 1}, {2, 0, 3, 1}, {3, 0, 4, 1}, {4, 0, 2, 2}};
    const auto batches = in_packed_batches(windows, records, {100});
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].windows,
              (std::vector<Window>{windows[2], windows[0], windows[3], windows[1], windows[4]}));
    EXPECT_EQ(batches[0].num_shared, (std::vector<int64_t>{0, 3, 3, 0, 0}));
    const model::Batch batch = make_microbatch(batches[0], records, at::kCPU).batch;
    EXPECT_EQ(batch.num_sequences, 1);
    EXPECT_EQ(batch.seq_len, 3 + 1 + 1 + 2 + 2);
    EXPECT_EQ(values(batch.tokens), (std::vector<int64_t>{1, 2, 3, 4, 4, 7, 8, 7, 8}));
    EXPECT_EQ(values(batch.targets), (std::vector<int64_t>{-1, -1, 6, 5, 9, -1, 9, 8, 9}));
    EXPECT_EQ(values(batch.positions), (std::vector<int64_t>{0, 1, 2, 3, 3, 0, 1, 0, 1}));
    const auto small = in_packed_batches(windows, records, {4});
    ASSERT_EQ(small.size(), 3u) << "a batch begins without shared inputs";
    EXPECT_EQ(small[1].num_shared, (std::vector<int64_t>{0}));
    EXPECT_EQ(in_packed_batches(windows, records, {100, 2}).size(), 3u);
}

TEST(Windows, BatchesAreNoLongerThanAGrid) {
    const auto batches = in_batches(std::vector<Window>(2 * 65535 + 1, {0, 0, 1, 1}), {int64_t{1} << 18});
    ASSERT_EQ(batches.size(), 3);
    EXPECT_EQ(batches[0].windows.size(), 65535);
    EXPECT_EQ(batches[1].windows.size(), 65535);
    EXPECT_EQ(batches[2].windows.size(), 1);
}

TEST(Windows, PaddingAndContextDoNotCount) {
    const std::vector<Tokens> records = {{10, 11, 12, 13, 14}, {20, 21, 22}};
    const WindowBatch windows{{{0, 1, 3, 1}, {1, 0, 2, 2}}};
    const model::Batch batch = make_microbatch(windows, records, at::kCPU).batch;
    EXPECT_EQ(batch.num_sequences, 2);
    EXPECT_EQ(batch.seq_len, 3);
    EXPECT_EQ(values(batch.tokens), (std::vector<int64_t>{11, 12, 13, 20, 21, 0}));
    EXPECT_EQ(values(batch.targets), (std::vector<int64_t>{-1, -1, 14, 21, 22, -1}));
    const model::Batch elsewhere = make_microbatch(windows, records, at::kMeta).batch;
    EXPECT_TRUE(elsewhere.tokens.is_meta() && elsewhere.targets.is_meta());
}

}  // namespace
}  // namespace argosy::eval
