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
    /// `task` begins each line: "converting".
    Progress(std::string task, const Environment& environment);

    /// Whether it is time to show something again.
    bool due() const;

    /// "converting [########............]  40%  details  0:01:02 to go", where `share` of the task, from 0 to
    /// 1, is done and the rest goes on at that speed. One thread at a time.
    void show(double share, const std::string& details = {});

    /// Since the task began.
    double seconds() const;

  private:
    std::string task_;
    double started_, shown_at_;
    std::optional<LiveLine> line_;  // none where nobody looks at a terminal
};

}  // namespace argosy
