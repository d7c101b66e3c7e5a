// Who is missing, told by all who wait. A rank that has waited in vain calls the roll; every rank that waits
// answers, wherever it waits and whatever patience it has left. Those that do not are what the job waits for:
// dead, stopped, or at work for longer than anyone's patience. No rank in particular is needed: who comes to
// the end of its patience first takes the roll, of several at once the one of the lowest number, and its
// error speaks for all. One thread calls all of it, the one that calls MPI.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/patience.h"
#include "mpi/comm.h"

namespace argosy::mpi {

/// What a roll has shown, in numbers of the world's ranks.
struct Attendance {
    std::vector<int> missing;  // none where all ranks wait
    /// Where the others wait. Empty on a rank that did not take the roll itself.
    std::map<std::string, std::vector<int>> ranks_by_place;
    bool spoken_for = false;  // another rank took the roll, and its error takes the job down
};

/// "3, 5, ...", at most so many.
std::string listed(std::span<const int> ranks, size_t max_named = 16);
/// "missing: rank 3, 5", as jobs/common.sh looks for it.
std::string named_missing(std::span<const int> ranks);

class Roll {
  public:
    /// COLLECTIVE over `world`. Answers are waited for some seconds, less where `patience_seconds` of a wait
    /// are.
    Roll(const Comm& world, double patience_seconds);
    ~Roll();
    Roll(const Roll&) = delete;

    /// Answers whoever calls the roll: this rank waits at `place`. Once a roll is taken, what it has shown:
    /// this rank waits in vain, too.
    std::optional<Attendance> look(const std::string& place);

    /// For a rank that has waited at `place` in vain: takes the roll, or part in that of another rank.
    Attendance call(const std::string& place);

    /// How long a wait lasts before its first look, and how long from each to the next.
    double seconds_to_first_look() const { return seconds_to_answer_ / 4; }
    double seconds_between_looks() const { return seconds_to_answer_ / 40; }

  private:
    struct Sent {
        std::string text;
        Request request;
    };

    void send(int rank, char kind, const std::string& text);
    std::optional<Attendance> lead(const std::string& place);
    Attendance close();

    Comm comm_;
    double seconds_to_answer_;
    std::deque<Sent> sent_;
    bool leads_ = false;
    std::optional<Patience> follows_;    // with a rank that takes the roll, since this one has answered it
    std::map<int, std::string> places_;  // by rank that has answered
};

/// A wait of a rank that looks for questions meanwhile. While it is short it costs what its Patience does.
class RollWait {
  public:
    /// REQUIRES: `roll` outlives it.
    RollWait(Roll& roll, double limit_seconds)
        : roll_(roll),
          limit_seconds_(limit_seconds),
          patience_(limit_seconds),
          next_look_seconds_(roll.seconds_to_first_look()) {}

    /// Something came: patience begins anew.
    void begin_anew() {
        patience_ = Patience(limit_seconds_);
        next_look_seconds_ = roll_.seconds_to_first_look();
    }

    /// Lets a moment pass between two looks at what is waited for; what the roll has shown where that is in
    /// vain. `place()` is the text for Roll::look.
    template <class Place>
    std::optional<Attendance> pause(const Place& place) {
        if (!patience_.pause()) return roll_.call(place());
        if (patience_.waited_seconds() < next_look_seconds_) return {};
        next_look_seconds_ = patience_.waited_seconds() + roll_.seconds_between_looks();
        return roll_.look(place());
    }

  private:
    Roll& roll_;
    double limit_seconds_;
    Patience patience_;
    double next_look_seconds_;
};

}  // namespace argosy::mpi
