// Progress of a long task, for people: a log line every ten seconds.
#pragma once

#include <string>

namespace argosy {

class Progress {
  public:
    /// `task` begins each line: "converting".
    explicit Progress(std::string task);

    /// Whether enough time has passed to call show() again.
    bool due() const;

    /// Logs "converting [########............]  40%  details  0:01:02 to go". `share` is the part of the
    /// task that is done, from 0 to 1. The time to go assumes the same speed for the rest. One thread at a
    /// time may call this.
    void show(double share, const std::string& details = {});

    /// Seconds since the task began.
    double seconds() const;

  private:
    std::string task_;
    double started_, shown_at_;
};

}  // namespace argosy
