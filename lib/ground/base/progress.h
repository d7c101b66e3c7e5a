// Progress of a long task, for people: a rewritten line on a terminal, otherwise a log line every ten
// seconds.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/environment.h"

namespace argosy {

// A status line at the bottom of a terminal, rewritten while the log scrolls above it. Output that bypasses
// the log appears right behind the line, in the same row.

/// Whether a person can watch this process's log on a terminal that can rewrite a line: stderr is a terminal,
/// TERM is set and not "dumb", and the log level shows more than warnings.
bool log_is_on_a_terminal(const Environment& environment);

/// At most one LiveLine exists at a time in a process. The line has no colours. An interrupt (SIGINT,
/// SIGQUIT) ends the line before it ends the process.
class LiveLine {
  public:
    /// Inserts itself between the log and its sinks until it is destroyed. `columns` is the width to assume
    /// if the terminal cannot be queried, for example behind mpirun on another machine.
    explicit LiveLine(int columns);
    /// Erases the line and leaves the cursor at its beginning.
    ~LiveLine();
    LiveLine(const LiveLine&) = delete;
    LiveLine& operator=(const LiveLine&) = delete;

    /// Sets the line's text: ASCII, cut to the terminal's width. The line is drawn at most five times a
    /// second, and again below each log message.
    void show(const std::string& text);

  private:
    class Sink;
    std::shared_ptr<Sink> sink_;
};

class Progress {
  public:
    /// `task` begins each line: "converting".
    Progress(std::string task, const Environment& environment);

    /// Whether enough time has passed to call show() again.
    bool due() const;

    /// Shows "converting [########............]  40%  details  0:01:02 to go". `share` is the part of the
    /// task that is done, from 0 to 1. The time to go assumes the same speed for the rest. One thread at a
    /// time may call this.
    void show(double share, const std::string& details = {});

    /// Seconds since the task began.
    double seconds() const;

  private:
    std::string task_;
    double started_, shown_at_;
    std::optional<LiveLine> line_;  // empty unless the log is on a terminal
};

}  // namespace argosy
