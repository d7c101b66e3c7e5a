#include "mpi/roll.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

namespace argosy::mpi {
namespace {

// The first letter of a message. In an answer, the text of what the rank waits for follows; in a result, the
// missing ranks.
constexpr char kQuestion = 'q', kAnswer = 'a', kResult = 'r';

// Messages are short enough that MPI sends them eagerly, without the receiver.
constexpr size_t kMaxLetters = 250, kMaxMissing = 400;

// A rank looks for questions every 0.05 s after the first 0.5 s of its wait. The leading rank first makes a
// connection to each other rank, hence the time per rank.
constexpr double kSecondsToAnswer = 2, kMoreSecondsPerRank = 0.002;

// If several ranks time out together, they do not all ask all others.
constexpr double kSecondsBetweenTurns = 0.002;

}  // namespace

std::string listed(std::span<const int> ranks, size_t most) {
    const bool all = ranks.size() <= most;
    return fmt::format("{}{}", fmt::join(all ? ranks : ranks.first(most), ", "), all ? "" : ", ...");
}

std::string named_missing(std::span<const int> ranks) {
    return "missing: rank " + listed(ranks, kMaxMissing);
}

Roll::Roll(const Comm& world, double patience_seconds)
    : comm_(world.duplicate()),
      seconds_to_answer_(std::min(patience_seconds, kSecondsToAnswer + kMoreSecondsPerRank * world.size())) {}

/// Messages that missing ranks have not received are leaked, because MPI may still read them.
Roll::~Roll() {
    if (!sent_.empty()) new std::deque<Sent>(std::move(sent_));
}

void Roll::send(int rank, char kind, const std::string& text) {
    Sent& one = sent_.emplace_back(kind + text);
    one.request =
        comm_.send(one.text.data(), one.text.size(), ElementType::UInt8, rank, /*synchronous=*/false);
}

std::optional<Attendance> Roll::look(const std::string& place) {
    while (const auto message = comm_.take_message()) {
        const auto& [sender, text] = *message;
        switch (text[0]) {
            case kQuestion:
                send(sender, kAnswer, place.substr(0, kMaxLetters));
                if (!leads_ || sender < comm_.rank()) follows_.emplace(2 * seconds_to_answer_);
                break;
            case kAnswer:
                places_[sender] = text.substr(1);
                break;
            case kResult:
                std::istringstream numbers(text.substr(1));
                return Attendance{.missing = {std::istream_iterator<int>(numbers), {}}, .spoken_for = true};
        }
    }
    return std::nullopt;
}

Attendance Roll::call(const std::string& place) {
    Patience turn(comm_.rank() * kSecondsBetweenTurns);
    for (;;) {
        do {
            if (auto told = look(place)) return *told;
        } while (turn.pause() || (follows_ && follows_->pause()));
        if (auto found = lead(place)) return *found;
    }
}

/// Leads a roll. Returns nothing if a rank with a lower number turns out to lead.
std::optional<Attendance> Roll::lead(const std::string& place) {
    leads_ = true;
    follows_.reset();
    places_.clear();
    for (int rank = 0; rank < comm_.size(); ++rank) {
        if (rank != comm_.rank()) send(rank, kQuestion, "");
    }
    std::optional<Attendance> told;
    Patience patience(seconds_to_answer_);
    while (!told && !follows_ && std::ssize(places_) < comm_.size() - 1 && patience.pause()) {
        told = look(place);
    }
    leads_ = false;
    if (told || follows_) return told;
    return close();
}

/// Works out the missing ranks from the answers, and sends the result to the ranks that answered.
Attendance Roll::close() {
    Attendance found;
    for (int rank = 0; rank < comm_.size(); ++rank) {
        if (const auto place = places_.find(rank); place != places_.end()) {
            found.ranks_by_place[place->second].push_back(rank);
        } else if (rank != comm_.rank()) {
            found.missing.push_back(rank);
        }
    }
    const auto told = std::span(found.missing).first(std::min(found.missing.size(), kMaxMissing));
    const std::string missing = fmt::format("{}", fmt::join(told, " "));
    for (const auto& [rank, place] : places_) send(rank, kResult, missing);
    return found;
}

}  // namespace argosy::mpi
