// Runs another program and returns its output, within a timeout.
#pragma once

#include <string>
#include <vector>

namespace argosy::preflight {

struct Answer {
    enum class End { NotFound, Exited, Hung };
    End end = End::NotFound;
    int status = -1;     // exit status; -1 when a signal ended the program
    std::string output;  // stdout and stderr together, up to a mebibyte
};

/// Runs `command` with empty input. After `seconds` kills the program and its children. A program that cannot
/// be killed, because it hangs in the kernel on a device, is left behind.
Answer ask(const std::vector<std::string>& command, double seconds);

}  // namespace argosy::preflight
