#include "bench/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/patience.h"

namespace argosy::bench {
namespace {

struct Card {
    char host[60];
    int process;
};

}  // namespace

/// Without a pause: ranks must leave a barrier at the same time.
bool finished_within(mpi::Request request, double seconds) {
    constexpr int kLooksBeforeTheClock = 256;
    Patience patience(seconds);
    for (int looks = 1; !mpi::test_all({&request, 1}); ++looks) {
        if (looks % kLooksBeforeTheClock == 0 && !patience.lasts()) return false;
    }
    return true;
}

std::vector<RankInfo> exchange_rank_info(const mpi::Comm& world, double timeout_seconds) {
    Card own = {};
    gethostname(own.host, sizeof(own.host) - 1);
    own.process = getpid();
    std::vector<Card> cards(world.size());
    if (!finished_within(world.all_gather(cards.data(), &own, sizeof(own), mpi::Type::Byte),
                         timeout_seconds)) {
        throw TimeoutError("not all of {} ranks told within {} s where they are (--timeout sets the limit)",
                           world.size(), timeout_seconds);
    }
    std::vector<RankInfo> ranks;
    for (const Card& card : cards) ranks.push_back({card.host, card.process});
    return ranks;
}

RollCall::RollCall(const mpi::Comm& world, std::vector<RankInfo> ranks, double timeout_seconds)
    : arrivals_(world.duplicate()),
      roll_(std::make_unique<mpi::Roll>(world, timeout_seconds)),
      ranks_(std::move(ranks)),
      timeout_seconds_(timeout_seconds) {}

void RollCall::assemble(const std::string& before) const {
    const auto place = [&] { return "the meeting before " + before; };
    mpi::Request all_are_here = arrivals_.barrier();
    mpi::RollWait wait(*roll_, timeout_seconds_);
    while (!mpi::test_all({&all_are_here, 1})) {
        if (const auto found = wait.pause(place)) throw error(place(), *found);
    }
    if (!finished_within(arrivals_.barrier(), timeout_seconds_)) throw late(place());
}

TimeoutError RollCall::late(const std::string& operation) const {
    return error(operation, roll_->call(operation));
}

TimeoutError RollCall::error(const std::string& operation, const mpi::Attendance& found) const {
    const std::string why =
        found.missing.empty()
            ? "all ranks wait by now: one came too late, or what lies between them does not work"
            : fmt::format("{}. Dead, stuck or much slower: {}; its own message, if any, says why",
                          mpi::named_missing(found.missing), names_of(found.missing));
    return TimeoutError(found.spoken_for ? Reach::SpokenFor : Reach::OneRank,
                        "{}: no answer in {} s; {} (--timeout sets the limit)", operation, timeout_seconds_,
                        why);
}

std::string RollCall::names_of(std::span<const int> ranks) const {
    constexpr size_t kMostNamed = 16;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
        const RankInfo& rank = ranks_[ranks[i]];
        text += fmt::format("{}{} (process {} on {})", i == 0 ? "" : ", ", ranks[i], rank.process, rank.host);
    }
    return ranks.size() > kMostNamed ? fmt::format("{} and {} more", text, ranks.size() - kMostNamed) : text;
}

}  // namespace argosy::bench
