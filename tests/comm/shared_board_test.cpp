// The ring of a board: a block that a rank may still read is never reused, and a full ring gives no block.
#include "comm/shared_board.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"

namespace argosy::comm {
namespace {

constexpr int64_t kRing = 4096;

struct Published {
    int64_t bytes;
    char content;
};

TEST(SharedBoard, ShowsEveryBlockUntilItIsConsumed) {
    SharedBoard writer = SharedBoard::create(kRing);
    const SharedBoard reader = SharedBoard::attach(writer.address(), writer.key(), kRing);
    std::mt19937 random(3);
    std::vector<Published> rounds;
    int64_t consumed = 0, num_refused = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto bytes = static_cast<int64_t>(random() % 20) * 64;
        if (std::byte* const block = writer.reserve(bytes, consumed)) {
            rounds.push_back({bytes, static_cast<char>(random())});
            std::memset(block, rounds.back().content, bytes);
            writer.publish(block, rounds.size());
        } else {
            ++num_refused;
        }
        ASSERT_EQ(reader.published(), static_cast<int64_t>(rounds.size()));
        if (random() % 2 == 0 || consumed == reader.published()) continue;
        const auto& [size, content] = rounds[consumed];
        ASSERT_EQ(reader.signature(consumed), static_cast<uint64_t>(consumed + 1));
        const auto* block = reinterpret_cast<const char*>(reader.block(consumed));
        for (int64_t k = 0; k < size; ++k) ASSERT_EQ(block[k], content) << "round " << consumed;
        ++consumed;
    }
    EXPECT_GT(num_refused, 100) << "the ring was never full";
    EXPECT_GT(consumed, 5000);
}

TEST(SharedBoard, BoundsTheNumberOfRoundsToo) {
    SharedBoard writer = SharedBoard::create(kRing);
    int64_t num_published = 0;
    while (std::byte* const block = writer.reserve(0, 0)) {
        writer.publish(block, 0);
        ASSERT_LT(++num_published, 1 << 20);
    }
    EXPECT_NE(writer.reserve(0, 1), nullptr) << "one is consumed";
}

TEST(SharedBoard, AnEmptyRingStartsFromItsBeginning) {
    SharedBoard writer = SharedBoard::create(kRing);
    std::byte* const first = writer.reserve(kRing, 0);
    ASSERT_NE(first, nullptr);
    writer.publish(first, 0);
    EXPECT_EQ(writer.reserve(64, 0), nullptr) << "it is full";
    EXPECT_EQ(writer.reserve(64, 1), first);
}

TEST(SharedBoard, RefusesTheMemoryOfAnotherBoard) {
    const SharedBoard board = SharedBoard::create(kRing), other = SharedBoard::create(kRing);
    EXPECT_THROW(SharedBoard::attach(board.address(), other.key(), kRing), RunError);
    EXPECT_THROW(SharedBoard::attach(board.address(), board.key(), 2 * kRing), RunError);
    EXPECT_THROW(SharedBoard::attach({board.address().process, 1 << 20}, board.key(), kRing), RunError);
    EXPECT_THROW(SharedBoard::create(int64_t{1} << 60), RunError);
}

}  // namespace
}  // namespace argosy::comm
