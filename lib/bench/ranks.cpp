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

bool finished_within(mpi::Request request, double seconds) {
    return done_within(seconds, [&] { return mpi::test_all({&request, 1}); });
}

std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers) {
    constexpr size_t kMaxNamed = 16;
    std::string text = numbers.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < std::min(numbers.size(), kMaxNamed); ++i) {
        const RankInfo& rank = ranks[numbers[i]];
        text +=
            fmt::format("{}{} (process {} on {})", i == 0 ? "" : ", ", numbers[i], rank.process, rank.host);
    }
    return numbers.size() > kMaxNamed ? fmt::format("{} and {} more", text, numbers.size() - kMaxNamed)
                                      : text;
}

RollCall::RollCall(const mpi::Comm& world, double timeout_seconds)
    : meetings_(world.duplicate()),
      roll_(std::make_unique<mpi::Roll>(world, timeout_seconds)),
      timeout_seconds_(timeout_seconds) {
    Card own = {};
    gethostname(own.host, sizeof(own.host) - 1);
    own.process = getpid();
    std::vector<RankInfo> ranks;
    for (const Card& card : exchange(own)) ranks.push_back({card.host, card.process});
    ranks_ = std::move(ranks);
}

void RollCall::exchange_bytes(void* all, std::span<const std::byte> own) const {
    wait(meetings_.all_gather(all, own.data(), own.size(), ElementType::UInt8),
         "telling each other what the ranks are and have found");
}

void RollCall::assemble(const std::string& before) const {
    const std::string place = "the meeting before " + before;
    wait(meetings_.barrier(), place);
    if (!finished_within(meetings_.barrier(), timeout_seconds_)) throw late(place);
}

void RollCall::wait(mpi::Request request, const std::string& operation) const {
    mpi::RollWait wait(*roll_, timeout_seconds_);
    while (!mpi::test_all({&request, 1})) {
        if (const auto found = wait.pause([&] { return operation; })) throw error(operation, *found);
    }
}

TimeoutError RollCall::late(const std::string& operation) const {
    return error(operation, roll_->call(operation));
}

TimeoutError RollCall::error(const std::string& operation, const mpi::Attendance& found) const {
    const std::string why =
        found.missing.empty()
            ? "all ranks wait by now: one came too late, or what lies between them does not work"
            : fmt::format("{}. Dead, stuck or much slower{}; its own message, if any, says why",
                          mpi::named_missing(found.missing),
                          ranks_.empty() ? "" : ": " + names_of(ranks_, found.missing));
    return TimeoutError(found.spoken_for ? Reach::SpokenFor : Reach::OneRank,
                        "{}: no answer in {} s; {} (--timeout sets the limit)", operation, timeout_seconds_,
                        why);
}

}  // namespace argosy::bench
