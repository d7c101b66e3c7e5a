// The errors of the program. Three kinds: the user's mistake (UserError), a broken invariant of our own
// (ARGOSY_CHECK), and a failure of the machine or of a foreign library (RunError). Libraries throw; only an
// executable's main turns an error into a message and an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace argosy {

/// What an executable returns, everywhere.
enum class ExitCode {
    Done = 0,
    Failed = 1,         // failed while running
    BadInput = 2,       // bad command line, configuration or input
    CheckFailed = 3,    // verification, pre-flight or baseline
    Requeue = 75,       // stopped on a signal with a checkpoint saved
    Watchdog = 76,      // a peer did not answer in time
    DoNotRequeue = 77,  // restarts without progress
};

class Error : public std::runtime_error {
  public:
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    ExitCode code() const { return code_; }

  private:
    ExitCode code_;
};

/// The user's mistake. The message carries the numbers and says what to change.
class UserError : public Error {
  public:
    template <class... Args>
    explicit UserError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::BadInput, fmt::format(text, std::forward<Args>(args)...)) {}
};

/// A failure of the machine, a file or a foreign library while running.
class RunError : public Error {
  public:
    template <class... Args>
    explicit RunError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::Failed, fmt::format(text, std::forward<Args>(args)...)) {}
};

/// A peer that did not answer within its time limit.
class TimeoutError : public Error {
  public:
    template <class... Args>
    explicit TimeoutError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::Watchdog, fmt::format(text, std::forward<Args>(args)...)) {}
};

[[noreturn]] void throw_broken_invariant(const char* condition, const char* file, int line,
                                         const std::string& message);

}  // namespace argosy

/// An invariant that stays checked in release builds: ARGOSY_CHECK(rows > 0, "{} rows", rows).
#define ARGOSY_CHECK(condition, ...)                                                                         \
    do {                                                                                                     \
        if (!(condition)) [[unlikely]] {                                                                     \
            ::argosy::throw_broken_invariant(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
        }                                                                                                    \
    } while (false)
