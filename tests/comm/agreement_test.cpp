// Ranks that start with different facts learn which keys, values and ranks differ, on any number of ranks.
#include "mpi/agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "expect_error.h"
#include "mpi/comm.h"
#include "scratch_folder.h"

namespace argosy::mpi {
namespace {

using Values = std::vector<std::pair<std::string, std::vector<int>>>;

class AgreementTest : public ::testing::Test {
  protected:
    bool is_last() const { return ranks_.rank() == ranks_.size() - 1; }
    bool is_alone() const { return ranks_.size() == 1; }

    /// The ranks from `begin` on, but not `end`.
    static std::vector<int> range(int begin, int end) {
        std::vector<int> all;
        for (int rank = begin; rank < end; ++rank) all.push_back(rank);
        return all;
    }

    const Comm ranks_ = Comm::world();
};

TEST_F(AgreementTest, RanksThatAgreeFindNothing) {
    EXPECT_TRUE(find_differences(ranks_, {}).empty());
    EXPECT_TRUE(find_differences(ranks_, {{"seed", "1"}, {"lr", "2"}}).empty());
    require_same(ranks_, {{"seed", "1"}});
}

TEST_F(AgreementTest, NotesMayDiffer) {
    require_same(ranks_, {{"data", "digest", fmt::format("(/node{}/a.h5)", ranks_.rank())}});
}

TEST_F(AgreementTest, OneRankIsNamedWithItsValue) {
    const auto found = find_differences(
        ranks_,
        {{"seed", "1"}, {"lr", is_last() ? "0.2" : "0.1", is_last() ? "(here)" : ""}, {"steps", "5"}});
    if (is_alone()) {
        EXPECT_TRUE(found.empty());
        return;
    }
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].key, "lr");
    const int last = ranks_.size() - 1;
    if (ranks_.rank() == 0) {
        EXPECT_EQ(found[0].values, (Values{{"0.1", range(0, last)}, {"0.2 (here)", {last}}}));
        if (last == 2) {
            EXPECT_EQ(describe(found[0]), "lr: 0.1 on rank 0, 1; 0.2 (here) on rank 2");
        }
    } else {
        EXPECT_TRUE(found[0].values.empty());
    }
}

TEST_F(AgreementTest, AllRanksThrow) {
    if (is_alone()) return;
    EXPECT_ERROR(require_same(ranks_, {{"lr", is_last() ? "0.2" : "0.1"}}), UserError,
                 "the ranks differ in what they start with. lr", "start every rank with the same program");
}

TEST_F(AgreementTest, TheRemedyIsThatOfWhatDiffers) {
    if (is_alone()) return;
    const std::string own = is_last() ? "b" : "a";
    try {
        require_same(ranks_,
                     {{"seed", "1"}, {"tokens", own, "", kCopyFile}, {"tokenizer", own, "", kCopyFile}});
        ADD_FAILURE() << "the ranks differ";
    } catch (const UserError& error) {
        EXPECT_TRUE(std::string(error.what()).ends_with(". Remedy: copy the file to all nodes"))
            << error.what();
    }
    EXPECT_ERROR(require_same(ranks_, {{"seed", own}, {"tokens", own, "", kCopyFile}}), UserError,
                 ". Remedy: start every rank with the same program and options; copy the file to all nodes");
}

/// Rank 0 is the one with another value, and each rank has a value of its own.
TEST_F(AgreementTest, TheMostFrequentValueComesFirst) {
    const auto found = find_differences(
        ranks_, {{"a", ranks_.rank() == 0 ? "odd" : "usual"}, {"b", std::to_string(ranks_.rank())}});
    if (is_alone()) {
        EXPECT_TRUE(found.empty());
        return;
    }
    ASSERT_EQ(found.size(), 2u);
    if (ranks_.rank() != 0) return;
    const int size = ranks_.size();
    if (size > 2) {
        EXPECT_EQ(found[0].values, (Values{{"usual", range(1, size)}, {"odd", {0}}}));
    }
    ASSERT_EQ(std::ssize(found[1].values), size);
    for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(found[1].values[rank], (Values::value_type{std::to_string(rank), {rank}}));
    if (size == 8) {
        EXPECT_EQ(describe(found[1]),
                  "b: 0 on rank 0; 1 on rank 1; 2 on rank 2; 3 on rank 3; and 4 more values");
    }
}

/// Two versions of a program have different keys.
TEST_F(AgreementTest, KeysThatSomeRanksLack) {
    std::vector<Fact> own = {{"a", "1"}};
    if (is_last() && !is_alone()) own = {{"new", "2"}, {"newer", "3"}};
    const auto found = find_differences(ranks_, own);
    if (is_alone()) {
        EXPECT_TRUE(found.empty());
        return;
    }
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].key, "a");
    if (ranks_.rank() != 0) return;
    const int last = ranks_.size() - 1;
    EXPECT_EQ(found[0].values, (Values{{"1", range(0, last)}, {kNoFact, {last}}}));
    EXPECT_EQ(found[1].values, (Values{{kNoFact, range(0, last)}, {"new, newer", {last}}}));
}

TEST_F(AgreementTest, ListsAndValuesAreBounded) {
    std::vector<Fact> own;
    for (int i = 0; i < 100; ++i)
        own.push_back({fmt::format("key {}", i), std::string(100000, 'x') + std::to_string(ranks_.rank())});
    const auto found = find_differences(ranks_, own);
    if (is_alone()) {
        EXPECT_TRUE(found.empty());
        return;
    }
    ASSERT_EQ(found.size(), kMaxDifferences);
    if (ranks_.rank() != 0) return;
    ASSERT_EQ(std::ssize(found[0].values), ranks_.size());  // they differ after what is shown
    EXPECT_LT(found[0].values[0].first.size(), 512u);
    EXPECT_TRUE(found[0].values[0].first.ends_with("x..."));
}

TEST(DigestOfFile, IsOfTheContents) {
    const ScratchFolder folder;
    write_file(folder / "a", "one");
    write_file(folder / "b", "one");
    write_file(folder / "c", "two");
    EXPECT_EQ(digest_of_file(folder / "a").size(), 16u);
    EXPECT_EQ(digest_of_file(folder / "a"), digest_of_file(folder / "b"));
    EXPECT_NE(digest_of_file(folder / "a"), digest_of_file(folder / "c"));
    EXPECT_EQ(digest_of_file(folder / "none"), "");
    EXPECT_EQ(executable_fact().value.size(), 16u);
}

}  // namespace
}  // namespace argosy::mpi
