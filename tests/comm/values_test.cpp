// Ranks agree on values and texts of any length.
#include "comm/values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::world;

TEST(Values, AreGatheredByRank) {
    struct Pair {
        int32_t rank = -1;
        double square = 0;
    };
    const std::vector<Pair> pairs =
        all_gather(world(), Pair{world().rank(), 1.0 * world().rank() * world().rank()});
    ASSERT_EQ(std::ssize(pairs), world().size());
    for (int rank = 0; rank < world().size(); ++rank) {
        EXPECT_EQ(pairs[rank].rank, rank);
        EXPECT_EQ(pairs[rank].square, rank * rank);
    }
}

TEST(Values, AreReducedOnTheHost) {
    const double rank = world().rank(), last = world().size() - 1;
    const auto own = [&] { return at::full({2}, rank, at::kDouble); };
    EXPECT_TRUE(reduce_on_host(world(), own(), Reduction::Sum).eq(last * (last + 1) / 2).all().item<bool>());
    EXPECT_TRUE(reduce_on_host(world(), own(), Reduction::Max).eq(last).all().item<bool>());
    EXPECT_TRUE(reduce_on_host(world(), own().to(at::kMeta), Reduction::Sum).eq(0).all().item<bool>());
}

TEST(Values, HaveAMaximum) {
    EXPECT_EQ(maximum(world(), world().rank()), world().size() - 1);
    EXPECT_EQ(maximum(world(), -world().rank() - 1), -1);
}

TEST(Values, AreThoseOfTheRootWhateverTheOthersHave) {
    using Numbers = std::vector<int64_t>;
    const Numbers own = world().rank() == 0 ? Numbers{7, -1, int64_t{1} << 60} : Numbers{5};
    EXPECT_EQ(broadcast(world(), own), (Numbers{7, -1, int64_t{1} << 60}));
    EXPECT_EQ(broadcast(world(), world().rank() == 0 ? Numbers{} : Numbers{5}), Numbers());
    for (int root = 0; root < world().size(); ++root) {
        EXPECT_EQ(broadcast(world(), world().rank(), root), root);
        EXPECT_EQ(broadcast_text(world(), std::string(world().rank(), 'x'), root), std::string(root, 'x'));
    }
}

TEST(RanksOfNode, AreThoseWithItsName) {
    const int rank = world().rank(), size = world().size();
    ::setenv("SLURMD_NODENAME", rank % 2 == 0 ? "even" : "odd", 1);
    const auto node = ranks_of_node(world());
    ::unsetenv("SLURMD_NODENAME");
    EXPECT_EQ(node->rank(), rank / 2);
    EXPECT_EQ(node->size(), (size + (rank % 2 == 0)) / 2);
    EXPECT_EQ(maximum(*node, rank), rank % 2 == 0 ? (size - 1) / 2 * 2 : (size / 2) * 2 - 1);
    EXPECT_EQ(ranks_of_node(world())->size(), size);
}

TEST(Texts, AreGatheredByRankAndWhole) {
    const auto text_of = [](int rank) { return std::string(rank * 700, 'x') + std::to_string(rank); };
    const std::vector<std::string> texts = all_gather_texts(world(), text_of(world().rank()));
    ASSERT_EQ(std::ssize(texts), world().size());
    for (int rank = 0; rank < world().size(); ++rank) EXPECT_EQ(texts[rank], text_of(rank));
    for (const std::string& text : all_gather_texts(world(), "")) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace argosy::comm
