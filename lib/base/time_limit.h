// Work that may hang, as a file system or a driver does, and that then must not hold up the program.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

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

}  // namespace argosy
