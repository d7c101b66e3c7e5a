// How far a long task is, for people: on a terminal a line that is rewritten, else a line of the log every
// ten seconds.
#pragma once

#include <optional>
#include <string>

#include "base/environment.h"
#include "base/live_line.h"

namespace argosy {

class Progress {
  public:
    /// `task` begins each line: "evaluating".
    Progress(std::string task, const Environment& environment);

    /// `share` of the task, from 0 to 1, is done. The time to go is the time so far, scaled. One thread at a
    /// time.
    void show(double share);

  private:
    std::string task_;
    double started_, last_logged_;
    std::optional<LiveLine> line_;
};

}  // namespace argosy
