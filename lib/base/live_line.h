// A status line at the bottom of a terminal, rewritten while the log scrolls above it. Only log output moves
// around it: other output to the terminal appears right behind the line.
#pragma once

#include <memory>
#include <string>

#include "base/environment.h"

namespace argosy {

inline constexpr double kSecondsBetweenDrawings = 0.2;

/// Whether a person can watch this process's log on a terminal that can rewrite a line: stderr is a terminal,
/// TERM is set and not "dumb", and the log level shows more than warnings.
bool log_is_on_a_terminal(const Environment& environment);

/// At most one LiveLine exists at a time in a process. The line has no colours. An interrupt (SIGINT,
/// SIGQUIT) ends the line before it ends the process.
class LiveLine {
  public:
    /// Inserts itself between the log and its sinks until it is destroyed. `columns`: the width to assume
    /// where the terminal cannot be queried, as behind mpirun on another machine.
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

}  // namespace argosy
