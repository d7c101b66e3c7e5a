// What a rank has put on one stream, launch by launch in the order in which they end: what its watchdog looks
// at from a thread of its own, and tells the watchdogs of other ranks. The same line has the same key and the
// same numbers on every rank that takes part in it.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/event_pool.h"

namespace argosy::comm {

class LaunchLine {
  public:
    /// `name` is the mesh axis for messages, `members` are numbers in the outermost group, `serial` tells
    /// lines apart that have both in common.
    LaunchLine(std::string name, std::vector<int> members, int serial);

    /// What a launch is, for messages: "all-reduce", and how many elements.
    struct Work {
        std::string kind;
        int64_t elements = 0;
        bool operator==(const Work&) const = default;
    };

    // By the thread that launches. A launch that becomes part of a graph is none of these.
    /// This rank comes to its next launch: the call may take its time.
    void begin(Work work);
    /// The call has returned; the launch begins and ends at these.
    void launched(PooledEvent begin, PooledEvent end);

    /// Where this rank is.
    struct Standing {
        std::string key, name;
        std::vector<int> members;
        int64_t num_begun = 0;  // launches that this rank has come to, the last of them:
        Work last;
        double seconds_since_last = 0;
        /// The oldest that has not ended, if the GPU has come to it or its call has not returned.
        struct UnderWay {
            int64_t number = 0;
            Work work;
            double waited_seconds = 0;  // that this has been so
        };
        std::optional<UnderWay> under_way;
    };
    /// By the watchdog's thread. `elapsed_seconds` since the last look count as waited.
    Standing look(double elapsed_seconds);

  private:
    struct Launch {
        Work work;
        PooledEvent begin, end;  // none until its call returns
    };

    const std::string key_, name_;
    const std::vector<int> members_;
    std::mutex mutex_;
    std::deque<Launch> launches_;  // that have not ended, oldest first
    int64_t num_begun_ = 0;
    Work last_;
    double last_seconds_ = 0;
    double waited_seconds_ = 0;  // of the oldest
};

}  // namespace argosy::comm
