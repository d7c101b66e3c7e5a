// Work that may hang, as a file system or a driver does, and that then must not hold up the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace argosy {

struct TimeLimit {
    double part_seconds;  // of each part of the work
    double all_seconds;
};

/// Runs `work` in a thread; it calls its argument after each part. Returns the number of parts that are done
/// when a limit is reached, and none where `work` has ended. Throws what it threw. A thread that hangs cannot
/// be stopped: it is left behind and ends with the process. REQUIRES: `work` owns what it uses.
std::optional<size_t> parts_within(TimeLimit limit,
                                   std::function<void(const std::function<void()>& part_done)> work);

/// Marks that this thread waits for the file system, and that the rank goes on only after it: the watchdog
/// (watch/watchdog.h) then does not take the rank for a stuck one. A thread beside the training, such as that
/// of a save, sets no mark. Any thread may have marks.
class FileWait {
  public:
    /// `what` completes "waits for the file system, ": "writing 'run/metrics.jsonl'".
    explicit FileWait(std::string what);
    ~FileWait();
    FileWait(const FileWait&) = delete;

    struct Mark {
        int64_t number = 0;  // no two waits of the process have the same
        std::string what;
    };
    /// The wait of this process that began first; none if no thread waits.
    static std::optional<Mark> oldest();

  private:
    int64_t number_;
};

}  // namespace argosy
