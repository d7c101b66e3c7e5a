#include "bench/control_channel.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/clock.h"
#include "base/output.h"
#include "base/text.h"
#include "mpi/start_up.h"
#include "watch/host_waits.h"

namespace argosy::bench {
namespace {

/// Wire format of a RankInfo for exchange().
struct WireRankInfo {
    char host[60];
    int process;
};

}  // namespace

bool finished_within(mpi::Request request, double seconds) {
    return done_within(seconds, [&] { return mpi::test_all({&request, 1}); });
}

std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers) {
    const auto named = numbers | std::views::transform([&](int number) {
                           const RankInfo& rank = ranks[number];
                           return fmt::format("{} (process {} on {})", number, rank.process, rank.host);
                       });
    return (numbers.size() == 1 ? "rank " : "ranks ") + listed(named);
}

ControlChannel::ControlChannel(const mpi::Comm& world, double timeout_seconds)
    : comm_(world.duplicate()),
      timeout_seconds_(std::min(timeout_seconds, std::numeric_limits<double>::max())),
      everyone_(world.size()),
      watchdog_(std::make_unique<watch::Watchdog>(comm_, /*gpu=*/nullptr,
                                                  watch::WaitLimit{timeout_seconds_, "--timeout"})) {
    std::iota(everyone_.begin(), everyone_.end(), 0);
    WireRankInfo own = {};
    host_name().copy(own.host, sizeof(own.host) - 1);
    own.process = getpid();
    std::vector<RankInfo> ranks;
    for (const WireRankInfo& other : exchange(own)) ranks.push_back({other.host, other.process});
    ranks_ = std::move(ranks);
}

void ControlChannel::exchange_bytes(void* all, std::span<const std::byte> own) const {
    wait(comm_.all_gather(all, own.data(), own.size(), ElementType::UInt8),
         "the exchange of values between the ranks");
}

std::vector<std::string> ControlChannel::exchange_texts(const std::string& own) const {
    const std::vector<size_t> lengths = exchange(own.size());
    std::string padded = own;
    padded.resize(*std::ranges::max_element(lengths));
    const std::vector<char> all = exchange_several(std::span<const char>(padded));
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < lengths.size(); ++rank) {
        texts.emplace_back(all.data() + rank * padded.size(), lengths[rank]);
    }
    return texts;
}

std::vector<std::string> ControlChannel::gather_texts(const std::string& own) const {
    const std::string operation = "the gathering of texts on rank 0";
    const uint64_t own_length = own.size();
    std::vector<uint64_t> lengths(comm_.rank() == 0 ? comm_.size() : 0);
    wait(comm_.gather(lengths.data(), &own_length, sizeof(own_length), ElementType::UInt8, /*root=*/0),
         operation);
    if (comm_.rank() != 0) {
        if (!own.empty()) {
            wait(comm_.send(own.data(), own.size(), ElementType::UInt8, /*peer=*/0, /*synchronous=*/false),
                 operation);
        }
        return {};
    }
    std::vector<std::string> texts = {own};
    for (size_t rank = 1; rank < lengths.size(); ++rank) texts.emplace_back(lengths[rank], '\0');
    std::vector<mpi::Request> requests;  // a message for each rank: together the texts may exceed 2 GB
    for (int rank = 1; rank < comm_.size(); ++rank) {
        std::string& text = texts[rank];
        if (!text.empty())
            requests.push_back(comm_.receive(text.data(), text.size(), ElementType::UInt8, rank));
    }
    for (const mpi::Request& request : requests) wait(request, operation);
    return texts;
}

void ControlChannel::barrier(const std::string& before) const {
    const std::string operation = "the barrier before " + before;
    wait(comm_.barrier(), operation);
    // All ranks have arrived. The second barrier polls without a pause, so that all ranks leave together.
    if (!finished_within(comm_.barrier(), timeout_seconds_)) throw timeout_error(operation);
}

void ControlChannel::wait(mpi::Request request, const std::string& operation) const {
    watch::HostWait wait(watchdog_->waits(), awaited(operation, timeout_seconds_));
    while (!mpi::test_all({&request, 1})) {
        if (const auto late = wait.pause()) throw error(operation, *late);
    }
}

mpi::Comm ControlChannel::subgroup(const mpi::Comm& world, std::span<const int> members) const {
    const std::string operation = fmt::format("the creation of a group of {} ranks", members.size());
    watch::AwaitedOperation all = awaited(operation, timeout_seconds_);
    const watch::HostWait wait(watchdog_->waits(), std::move(all), watch::HostWait::Kind::Blocks);
    return world.subgroup(members);
}

TimeoutError ControlChannel::timeout_error(const std::string& operation) const {
    watch::HostWait wait(watchdog_->waits(), awaited(operation, /*limit_seconds=*/0));
    for (;;) {
        if (const auto late = wait.pause()) return error(operation, *late);
    }
}

watch::AwaitedOperation ControlChannel::awaited(const std::string& operation, double limit_seconds) const {
    return {.operation = [&operation] { return operation; },
            .group = name_,
            .members = everyone_,
            .limit = {limit_seconds, "--timeout"}};
}

TimeoutError ControlChannel::error(const std::string& operation, const watch::WaitFailure& late) const {
    const std::string why =
        late.cause.missing.empty()
            ? "all ranks are waiting: one of them came too late, or the network between them does not work"
            : fmt::format("{}. Dead, stuck or much slower{}; its own message, if any, says why",
                          mpi::named_missing(late.cause.missing),
                          ranks_.empty() ? "" : ": " + names_of(ranks_, late.cause.missing));
    return TimeoutError(late.reported_by_another ? Reach::ReportedByAnother : Reach::OneRank,
                        "{}: no answer in {} s; {} (--timeout sets the limit)", operation, timeout_seconds_,
                        why);
}

}  // namespace argosy::bench
