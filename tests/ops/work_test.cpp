// The work that operations report, against a count of each query and key.
#include "ops/work.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/attention.h"
#include "ops/planned_gpu.h"

namespace argosy::ops {
namespace {

int64_t counted_pairs(const AttentionShape& shape) {
    int64_t pairs = 0;
    for (int64_t query = 0; query < shape.q_len; ++query) {
        for (int64_t key = 0; key < shape.k_len; ++key) {
            const int64_t distance = shape.q_offset + query - key;
            pairs += distance >= 0 && distance < shape.window;
        }
    }
    return pairs;
}

TEST(Work, OfAttentionIsThatOfTheVisiblePairs) {
    constexpr int64_t kHeads = 4, kHeadDim = 8, kSequences = 2;
    for (const int64_t q_len : {1, 5, 8}) {
        for (const int64_t k_len : {1, 7, 8}) {
            for (int64_t offset = -9; offset <= 40; ++offset) {
                for (const int64_t window : {int64_t{1}, int64_t{3}, int64_t{8}, int64_t{12}, kNoWindow}) {
                    const AttentionShape shape{.num_sequences = kSequences,
                                               .q_len = q_len,
                                               .k_len = k_len,
                                               .head_dim = kHeadDim,
                                               .q_offset = offset,
                                               .window = window};
                    double flops = -1;
                    const WorkObserver observer([&](const Work& work) { flops = work.flops; });
                    const auto options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
                    note_attention(WorkKind::Attention,
                                   at::empty({kSequences * q_len, kHeads * kHeadDim}, options),
                                   at::empty({kSequences * k_len, kHeads * kHeadDim}, options), shape,
                                   /*holds_scores=*/false);
                    ASSERT_EQ(flops, 4.0 * kHeadDim * kHeads * kSequences *
                                         static_cast<double>(counted_pairs(shape)))
                        << q_len << " queries from key " << offset << ", " << k_len << " keys, window "
                        << window;
                }
            }
        }
    }
}

// Whole sequences have other kernels on GPUs; parts of them and windows only FlashAttention.
TEST(Work, OfAttentionKnowsWhatOnlyFlashAttentionComputes) {
    const PlannedGpu gpu(90);
    const auto by_flash = [](int64_t window, bool has_positions) {
        constexpr int64_t kTokens = 256, kHeadDim = 64;
        const AttentionShape shape{
            .num_sequences = 1, .q_len = kTokens, .k_len = kTokens, .head_dim = kHeadDim, .window = window};
        const auto options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
        const at::Tensor q = at::empty({kTokens, 2 * kHeadDim}, options);
        AttentionShape with_documents = shape;
        if (has_positions) with_documents.document_offsets = at::empty({4}, options.dtype(at::kInt));
        std::vector<bool> found;
        const WorkObserver observer([&](const Work& work) { found.push_back(work.by_flash); });
        attention(q, q, q, with_documents,
                  has_positions ? at::empty({kTokens}, options.dtype(at::kLong)) : at::Tensor());
        return found;
    };
    EXPECT_EQ(by_flash(kNoWindow, false), std::vector{false});
    EXPECT_EQ(by_flash(100, false), std::vector{true});
    EXPECT_EQ(by_flash(kNoWindow, true), std::vector{true});
}

}  // namespace
}  // namespace argosy::ops
