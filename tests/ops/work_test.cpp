// The work that operations report, against a count of each query and key.
#include "ops/work.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/attention.h"

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

}  // namespace
}  // namespace argosy::ops
