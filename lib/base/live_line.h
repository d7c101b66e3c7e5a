// The bottom line of a terminal, rewritten in place while the log scrolls above it. Only what goes through
// the log steps around it: what others write to the terminal meanwhile follows the line where it stands.
#pragma once

#include <memory>
#include <string>

#include "base/environment.h"

namespace argosy {

inline constexpr double kSecondsBetweenDrawings = 0.2;

/// Whether people look at this process's log, on a terminal that can rewrite a line: stderr is one, TERM is
/// set and not dumb, and the log shows more than warnings.
bool log_is_on_a_terminal(const Environment& environment);

/// At most one at a time in a process; the line has no colours. An interrupt (SIGINT, SIGQUIT) ends the line
/// before it ends the process.
class LiveLine {
  public:
    /// Puts itself between the log and its sinks, for as long as it lives. `columns`: the width of a terminal
    /// that cannot be asked, as behind mpirun on another machine.
    explicit LiveLine(int columns);
    /// Erases the line and leaves the cursor where it began.
    ~LiveLine();
    LiveLine(const LiveLine&) = delete;
    LiveLine& operator=(const LiveLine&) = delete;

    /// The line's text from now on, of ASCII, cut to the terminal's width. Drawn at most five times a second,
    /// and again below each message of the log.
    void show(const std::string& text);

  private:
    class Sink;
    std::shared_ptr<Sink> sink_;
};

}  // namespace argosy
