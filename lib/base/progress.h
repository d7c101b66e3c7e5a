// Progress of a long task, for people: a rewritten line on a terminal, otherwise a log line every ten
// seconds.
#pragma once

#include <optional>
#include <string>

#include "base/environment.h"
#include "base/live_line.h"

namespace argosy {

class Progress {
  public:
    /// `task` begins each line: "converting".
    Progress(std::string task, const Environment& environment);

    /// Whether enough time has passed to call show() again.
    bool due() const;

    /// Shows "converting [########............]  40%  details  0:01:02 to go". `share` (0 to 1) of the task
    /// is done; the time to go assumes the same speed for the rest. One thread at a time.
    void show(double share, const std::string& details = {});

    /// Seconds since the task began.
    double seconds() const;

  private:
    std::string task_;
    double started_, shown_at_;
    std::optional<LiveLine> line_;  // empty unless the log is on a terminal
};

}  // namespace argosy
