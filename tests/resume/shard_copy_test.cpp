// Who writes what of a tensor that several ranks hold, and the copy that is written.
#include "resume/shard_copy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ops/tensor_thread.h"

namespace argosy::resume {
namespace {

/// Rows 3 .. 3 + num_rows of a tensor of as many columns, as rank `index` of `count` holds them.
HeldTensor held(const std::string& name, int64_t num_rows, int64_t num_columns, layout::Share share) {
    const at::Tensor rows = at::arange(num_rows * num_columns, at::kFloat).view({num_rows, num_columns});
    return {.info = {name, h5::ElementType::F32, {num_rows + 9, num_columns}},
            .slab = {{3, 0}, {num_rows, num_columns}},
            .share = share,
            .rows = rows};
}

/// How many ranks write each row; every part must lie within the box and be as long as it says.
std::vector<int> writers_of_rows(const std::string& name, int64_t num_rows, int64_t num_columns, int count) {
    std::vector<int> writers(num_rows, 0);
    for (int index = 0; index < count; ++index) {
        const HeldTensor tensor = held(name, num_rows, num_columns, {index, count});
        for (const ShardPart& part : shard_parts({&tensor, 1})) {
            EXPECT_EQ(part.piece.tensor, tensor.info);
            EXPECT_EQ(part.piece.slab.offset[1], 0);
            EXPECT_EQ(part.piece.slab.size[1], num_columns);
            const int64_t first = part.piece.slab.offset[0] - 3;
            EXPECT_TRUE(part.rows.equal(tensor.rows.narrow(0, first, part.piece.slab.size[0])));
            for (int64_t row = first; row < first + part.piece.slab.size[0]; ++row) ++writers[row];
        }
    }
    return writers;
}

TEST(ShardParts, CoverEachRowOnce) {
    const c10::InferenceMode guard;
    for (const int count : {1, 2, 3, 8}) {
        for (const int64_t num_rows : {0, 1, 2, 7, 64, 1000}) {
            for (const int64_t num_columns : {1, 36, 20000}) {
                EXPECT_EQ(writers_of_rows("model/w", num_rows, num_columns, count),
                          std::vector<int>(num_rows, 1))
                    << num_rows << " x " << num_columns << " by " << count;
            }
        }
    }
}

TEST(ShardParts, LargeBoxesAreCutAndSmallOnesSpread) {
    const c10::InferenceMode guard;
    constexpr int kRanks = 4;
    const auto num_rows_of = [](const std::string& name, int index, int64_t num_rows) {
        const HeldTensor tensor = held(name, num_rows, 64, {index, kRanks});
        const auto parts = shard_parts({&tensor, 1});
        return parts.empty() ? 0 : parts.front().piece.slab.size[0];
    };
    constexpr int64_t kEnough = kRanks * kMinPartBytes / (64 * 4);  // rows: each rank gets the least part
    for (int index = 0; index < kRanks; ++index)
        EXPECT_EQ(num_rows_of("model/w", index, kEnough), kEnough / kRanks);
    std::vector<int> whole(kRanks, 0);
    for (int number = 0; number < 100; ++number) {
        const std::string name = "model/layers." + std::to_string(number);
        for (int index = 0; index < kRanks; ++index) {
            const int64_t rows = num_rows_of(name, index, kEnough - 1);
            EXPECT_TRUE(rows == 0 || rows == kEnough - 1);
            whole[index] += rows > 0;
        }
    }
    for (const int count : whole) EXPECT_GT(count, 10) << "of 100";
}

TEST(ShardCopy, IsWhatTheTensorsHeldThen) {
    const c10::InferenceMode guard;
    const HeldTensor tensors[] = {held("a", 3, 5, {}), held("b", 0, 5, {}), held("c", 1, 1, {})};
    const auto parts = shard_parts(tensors);
    ASSERT_EQ(parts.size(), 2U);
    ShardCopy copy;
    const auto bytes = copy.copy(parts);
    std::vector<float> before(15);
    ASSERT_EQ(bytes[0].size(), 60U);
    tensors[0].rows.fill_(-1);
    std::memcpy(before.data(), bytes[0].data(), 60);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(before[i], i);
    EXPECT_EQ(bytes[1].size(), 4U);
    const auto* first = bytes[0].data();
    EXPECT_EQ(copy.copy(parts)[0].data(), first) << "the same memory again";
}

TEST(ShardCopy, ConvertsToTheTypeAsked) {
    const c10::InferenceMode guard;
    const HeldTensor tensor = held("a", 2, 300, {});
    const auto parts = shard_parts({&tensor, 1}, h5::ElementType::BF16);
    EXPECT_EQ(parts[0].piece.tensor.type, h5::ElementType::BF16);
    ShardCopy copy;
    const auto bytes = copy.copy(parts)[0];
    ASSERT_EQ(bytes.size(), 1200U);
    const at::Tensor expected = tensor.rows.to(at::kBFloat16);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.const_data_ptr(), 1200), 0);
}

}  // namespace
}  // namespace argosy::resume
