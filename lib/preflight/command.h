// Another program's answer, within a time limit.
#pragma once

#include <string>
#include <vector>

namespace argosy::preflight {

struct Answer {
    enum class End { NotFound, Exited, Hung };
    End end = End::NotFound;
    int status = -1;     // what it exited with; -1 when a signal ended it
    std::string output;  // what it wrote to stdout and stderr, up to a mebibyte
};

/// Runs it without input. After `seconds` it is killed with its children; one that cannot be killed, since
/// the kernel waits for a device, is left behind.
Answer ask(const std::vector<std::string>& command, double seconds);

}  // namespace argosy::preflight
