#include "bench/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/patience.h"

namespace argosy::bench {
namespace {

// Ranks come to the end of their patience within this time of each other, which is less where little patience
// is asked for; and rank 0, which names who is late, speaks before the others give up.
constexpr double kMostSecondsToComplain = 2;
constexpr double kLongerThanComplaints = 2.5;

struct Card {
    char host[60];
    int process;
};

/// Numbers of those requests that are not done within that time.
std::vector<int> unfinished(std::vector<mpi::Request>& requests, double seconds) {
    Patience patience(seconds);
    while (!mpi::test_all(requests) && patience.pause()) {
    }
    std::vector<int> late;
    for (int i = 0; i < std::ssize(requests); ++i) {
        if (!mpi::test_all({&requests[i], 1})) late.push_back(i);
    }
    return late;
}

std::vector<int> those_in_both(const std::vector<int>& left, const std::vector<int>& right) {
    std::vector<int> both;
    std::ranges::set_intersection(left, right, std::back_inserter(both));
    return both;
}

}  // namespace

bool finished_within(mpi::Request request, double seconds) {
    return done_within(seconds, [&] { return mpi::test_all({&request, 1}); });
}

void exchange_bytes(const mpi::Comm& world, void* all, std::span<const std::byte> own,
                    double timeout_seconds) {
    if (finished_within(world.all_gather(all, own.data(), own.size(), mpi::Type::Byte), timeout_seconds))
        return;
    throw TimeoutError("not all of {} ranks told within {} s where they are (--timeout sets the limit)",
                       world.size(), timeout_seconds);
}

std::vector<RankInfo> exchange_rank_info(const mpi::Comm& world, double timeout_seconds) {
    Card own = {};
    gethostname(own.host, sizeof(own.host) - 1);
    own.process = getpid();
    std::vector<RankInfo> ranks;
    for (const Card& card : exchange(world, own, timeout_seconds)) ranks.push_back({card.host, card.process});
    return ranks;
}

std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers) {
    constexpr size_t kMostNamed = 16;
    std::string text = numbers.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < std::min(numbers.size(), kMostNamed); ++i) {
        const RankInfo& rank = ranks[numbers[i]];
        text +=
            fmt::format("{}{} (process {} on {})", i == 0 ? "" : ", ", numbers[i], rank.process, rank.host);
    }
    return numbers.size() > kMostNamed ? fmt::format("{} and {} more", text, numbers.size() - kMostNamed)
                                       : text;
}

RollCall::RollCall(const mpi::Comm& world, std::vector<RankInfo> ranks, double timeout_seconds)
    : arrivals_(world.duplicate()),
      complaints_(world.duplicate()),
      ranks_(std::move(ranks)),
      timeout_seconds_(timeout_seconds),
      seconds_to_complain_(std::min(timeout_seconds, kMostSecondsToComplain)) {}

/// On rank 0: those whose word did not come. On the others, which give their word: empty when rank 0
/// answered, else rank 0.
std::vector<int> RollCall::absent(const mpi::Comm& comm, double seconds) const {
    static constexpr char kWord = 'x';
    static char received;  // a request that is given up may still write there
    const int size = comm.size();
    std::vector<mpi::Request> requests;
    if (comm.rank() != 0) {
        requests = {comm.send(&kWord, 1, mpi::Type::Byte, 0, /*synchronous=*/false),
                    comm.receive(&received, 1, mpi::Type::Byte, 0)};
        return unfinished(requests, seconds + kLongerThanComplaints * seconds_to_complain_).empty()
                   ? std::vector<int>{}
                   : std::vector{0};
    }
    for (int rank = 1; rank < size; ++rank) {
        requests.push_back(comm.receive(&received, 1, mpi::Type::Byte, rank));
    }
    std::vector<int> late = unfinished(requests, seconds);
    for (int& index : late) ++index;  // the first request is rank 1's
    if (!late.empty()) return late;
    for (int rank = 1; rank < size; ++rank) {
        requests[rank - 1] = comm.send(&kWord, 1, mpi::Type::Byte, rank, /*synchronous=*/false);
    }
    unfinished(requests, seconds);
    return late;
}

void RollCall::assemble(const std::string& before) const {
    const std::vector<int> late = absent(arrivals_, timeout_seconds_);
    if (!late.empty()) {
        const std::vector<int> missing = those_in_both(late, absent(complaints_, seconds_to_complain_));
        throw TimeoutError(
            "{} did not come within {} s to where all ranks meet before {}: dead, stuck or much slower; its "
            "own message, "
            "if any, says why (--timeout sets the limit)",
            names_of(ranks_, missing.empty() ? late : missing), timeout_seconds_, before);
    }
    if (!finished_within(arrivals_.barrier(), timeout_seconds_))
        throw this->late("the meeting before " + before);
}

/// A rank that is past this operation already waits where all meet.
TimeoutError RollCall::late(const std::string& operation) const {
    std::vector<int> others = absent(complaints_, seconds_to_complain_);
    if (arrivals_.rank() == 0) others = those_in_both(others, absent(arrivals_, /*seconds=*/0));
    const std::string who = others.empty()
                                ? "all ranks wait for it, so what lies between them does not work"
                                : names_of(ranks_, others) + " did not come to it, or stopped within it";
    return TimeoutError("{}: no answer in {} s; {} (--timeout sets the limit)", operation, timeout_seconds_,
                        who);
}

}  // namespace argosy::bench
