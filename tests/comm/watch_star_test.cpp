// What reaches whom over the watchdogs' own connections.
#include "comm/watch_star.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

class StarTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ == 1) GTEST_SKIP() << "needs two ranks";
    }
    void TearDown() override { meet(); }
    static void meet() {
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({OpKind::AllReduce, token, token});
    }

    /// As many as are expected, within seconds.
    std::vector<WatchStar::Message> receive(size_t count) {
        std::vector<WatchStar::Message> all;
        for (const double start = seconds_now(); all.size() < count && seconds_now() - start < 20;) {
            for (auto& one : star_->receive(0.1)) all.push_back(std::move(one));
        }
        return all;
    }

    const mpi::Comm world_ = mpi::Comm::world();
    const int rank_ = world_.rank(), size_ = world_.size();
    std::unique_ptr<WatchStar> star_ = std::make_unique<WatchStar>(world_);
};

TEST_F(StarTest, CarriesTextsBothWaysInOrder) {
    const std::string large(300000, static_cast<char>('a' + rank_));
    if (rank_ != 0) {
        star_->send(0, "first");
        star_->send(0, large);
        const auto answer = receive(1);
        ASSERT_EQ(answer.size(), 1U);
        EXPECT_EQ(answer[0].sender, 0);
        EXPECT_EQ(answer[0].text, "to " + std::to_string(rank_));
        return;
    }
    std::vector<std::vector<std::string>> of(size_);
    for (const auto& one : receive(2 * (size_ - 1))) of[one.sender].push_back(one.text);
    for (int rank = 1; rank < size_; ++rank) {
        EXPECT_TRUE(star_->reaches(rank));
        EXPECT_EQ(of[rank],
                  (std::vector<std::string>{"first", std::string(300000, static_cast<char>('a' + rank))}));
        star_->send(rank, "to " + std::to_string(rank));
    }
}

TEST_F(StarTest, TellsWhenAConnectionIsGone) {
    meet();
    if (rank_ == 1) star_.reset();
    if (rank_ != 0) return;
    const auto found = receive(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].sender, 1);
    EXPECT_TRUE(found[0].closed);
    EXPECT_FALSE(star_->reaches(1));
    star_->send(1, "lost");  // is no error
}

TEST_F(StarTest, IsWokenWithoutAMessage) {
    star_->wake();
    const double start = seconds_now();
    EXPECT_TRUE(star_->receive(20).empty());
    EXPECT_LT(seconds_now() - start, 10);
}

}  // namespace
}  // namespace argosy::comm
