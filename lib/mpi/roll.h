// A Roll (roll call) finds the missing ranks when a wait on the host times out. The rank whose timeout
// expires first leads the roll and sends a question to all other ranks. Every rank that waits answers,
// whatever it waits for and however much of its own timeout is left. A rank that does not answer is missing:
// dead, stopped, or computing for longer than the timeout. Any rank can lead; if several start at once, the
// lowest number leads. The error of the leading rank ends the job. Only the thread that calls MPI calls a
// Roll.
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

/// The result of a roll; ranks are numbers in the world.
struct Attendance {
    std::vector<int> missing;  // empty if all ranks wait
    /// The other ranks, by what they wait for. Empty on a rank that did not lead the roll.
    std::map<std::string, std::vector<int>> ranks_by_place;
    bool spoken_for = false;  // another rank led the roll, and its error ends the job
};

/// "3, 5, ..." with at most `max_named` ranks.
std::string listed(std::span<const int> ranks, size_t max_named = 16);
/// "missing: rank 3, 5"; jobs/common.sh looks for this format.
std::string named_missing(std::span<const int> ranks);

class Roll {
  public:
    /// COLLECTIVE over `world`. A roll waits a few seconds for answers, at most `patience_seconds`.
    Roll(const Comm& world, double patience_seconds);
    ~Roll();
    Roll(const Roll&) = delete;

    /// Answers questions of a leading rank: this rank waits for `place`, a text for messages. Returns the
    /// result once another rank has led a roll; this rank's wait has then failed, too.
    std::optional<Attendance> look(const std::string& place);

    /// For a rank whose wait for `place` has timed out: leads a roll, or takes part in another rank's roll.
    Attendance call(const std::string& place);

    /// Time from the start of a wait to its first look(), and from each look() to the next.
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
    std::optional<Patience> follows_;    // time that the leading rank has, since this rank answered it
    std::map<int, std::string> places_;  // answers, by rank
};

/// A wait with a timeout that also answers the questions of a leading rank. A short wait costs no more than
/// Patience.
class RollWait {
  public:
    /// REQUIRES: `roll` outlives it.
    RollWait(Roll& roll, double limit_seconds)
        : roll_(roll),
          limit_seconds_(limit_seconds),
          patience_(limit_seconds),
          next_look_seconds_(roll.seconds_to_first_look()) {}

    /// Progress was made: the timeout starts again.
    void begin_anew() {
        patience_ = Patience(limit_seconds_);
        next_look_seconds_ = roll_.seconds_to_first_look();
    }

    /// Pauses briefly between two checks of the awaited condition. Returns the result of the roll if the wait
    /// has failed. `place()` is the text for Roll::look.
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
