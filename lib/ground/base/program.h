// For main(): the function that turns an error into a message and an exit code (mpi/program.h has the one for
// ranks), the signals that ask a program to stop, the version of this build, and bash's completion of
// options.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace argosy {

/// Runs `body` and returns the exit code for main; an error is printed to stderr as "<name>: error: ...".
int run_program(const char* name, const std::function<ExitCode()>& body);

/// For main, as `return end_process(run_program(...))`: writes out the standard streams and ends the process
/// without what libraries destroy at the end of a process, for which LibTorch alone takes a third of a
/// second. Returns the code if a tool writes its results when main returns.
int end_process(int code);

/// The error to report for an exception. An error of a std::filesystem call names its path, and is a user
/// mistake unless the machine failed; any other exception is a failure while running.
Error as_error(const std::exception& error);

/// A message without line breaks and other control characters, which words, files and libraries may hold.
std::string on_one_line(std::string message);

/// Throws UserError if a limit on the address space (ulimit -v) leaves less than the libraries' threads and
/// buffers need: the libraries would crash at any later moment.
void require_address_space();

/// After this call, exceeding a limit on file sizes makes the write fail instead of ending the process.
void survive_file_size_limit();

// Signals that ask a program to stop. A signal is remembered until the program reaches a point where it can
// stop cleanly. The ranks of a run agree on that point (train/run_limits.h).

/// Scheduler: SIGTERM and SIGUSR1, for a run. System calls that they interrupt restart, so the write of a
/// checkpoint goes on. Terminal: SIGINT, SIGTERM and SIGHUP, for a tool. A blocking read, such as from a
/// pipe, then fails with EINTR.
enum class StopSignals { Scheduler, Terminal };

/// After this call, these signals are remembered and have no other effect. Call the function first in main,
/// so that no signal ends the process during start-up. Launchers start ranks with SIGUSR1 blocked, so that a
/// SIGUSR1 that arrives before main stays pending; this function unblocks SIGUSR1.
void catch_stop_requests(StopSignals which);

/// Whether one of the signals has arrived. Any thread may call this.
bool stop_requested();

/// Throws RunError after a signal to a tool (Terminal); unwinding removes its unfinished output. A run goes
/// on.
void throw_if_stop_requested();

/// Gives the signals of a run (Scheduler) their usual effect again, for work without output. One that has
/// arrived ends the process now.
void stop_catching_requests();

/// Version and commit, as `--version` prints them: "0.1.0 (1a2b3c4d5e6f)".
const char* version();

/// An option as bash completes it. Without `values`, the word after the option is a file name.
struct CompletedOption {
    std::vector<std::string> names;  // "--iters", "-n"
    std::vector<std::string> values = {};
};

/// The words of a program, or of one of its subcommands.
struct CompletedWords {
    std::string command = {};  // empty: the program itself
    std::vector<CompletedOption> options = {};
};

/// The script that --bash-completion prints. The script completes the options of `program` and their values,
/// also behind mpirun.sh. The first of `words` is the program itself.
std::string bash_completion(const std::string& program, const std::vector<CompletedWords>& words);

}  // namespace argosy
