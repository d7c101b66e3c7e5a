// The errors of the program, of three kinds: the user's mistake (UserError); a broken invariant of the
// program itself (ARGOSY_CHECK); and a failure while running, of the machine or a foreign library on one rank
// (RunError), of a peer that does not answer (TimeoutError), or of the whole job (JobError). The code in lib/
// throws. Only the main function of an executable turns an error into a message and an exit code.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace argosy {

/// Exit codes, the same for every executable.
enum class ExitCode {
    Done = 0,
    Failed = 1,         // failed while running
    BadInput = 2,       // bad command line, configuration or input
    CheckFailed = 3,    // a verification, pre-flight, baseline or checksum found a fault
    Requeue = 75,       // stopped on a signal with a checkpoint saved
    Watchdog = 76,      // a peer did not answer in time
    DoNotRequeue = 77,  // restarts without progress
};

/// The ranks that raise an error. OneRank: only one rank. AllRanks: every rank at the same point, so one rank
/// reports the error for all. ReportedByAnother: another rank reports the same error and ends the job.
enum class Reach { OneRank, AllRanks, ReportedByAnother };

class Error : public std::runtime_error {
  public:
    Error(ExitCode code, Reach reach, const std::string& message)
        : std::runtime_error(message), code_(code), reach_(reach) {}
    ExitCode code() const { return code_; }

    /// The usual reach of an error of this kind. There are exceptions: a user mistake such as a missing file
    /// may affect only one node.
    Reach reach() const { return reach_; }

  private:
    ExitCode code_;
    Reach reach_;
};

/// The user's mistake. The message carries the numbers and says what to change.
class UserError : public Error {
  public:
    template <class... Args>
    explicit UserError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::BadInput, Reach::AllRanks, fmt::format(text, std::forward<Args>(args)...)) {}

  protected:
    UserError(ExitCode code, const std::string& message) : Error(code, Reach::AllRanks, message) {}
};

/// An input whose bytes disagree with the checks that were saved with them, that lacks its end, whose form
/// cannot be read, or whose numbers are not finite or impossible.
class DamageError : public UserError {
  public:
    template <class... Args>
    explicit DamageError(fmt::format_string<Args...> text, Args&&... args)
        : UserError(ExitCode::CheckFailed, fmt::format(text, std::forward<Args>(args)...)) {}
};

/// Mistakes of the user that do not depend on each other, so that one error can name them all.
class Mistakes {
  public:
    /// Runs `call` and keeps the message of its UserError, if it throws one.
    template <class Call>
    void in(Call call) {
        try {
            call();
        } catch (const UserError& error) {
            add(error.what());
        }
    }
    void add(std::string message) { messages_.push_back(std::move(message)); }

    /// Throws a UserError if there was a mistake.
    void throw_any() const {
        if (messages_.size() == 1) throw UserError("{}", messages_.front());
        std::string all;
        for (size_t i = 0; i < messages_.size(); ++i)
            all += fmt::format("{} ({}) {}", i == 0 ? "" : ";", i + 1, messages_[i]);
        if (!all.empty()) throw UserError("{} mistakes:{}", messages_.size(), all);
    }

  private:
    std::vector<std::string> messages_;
};

/// A failure of the machine, a file or a foreign library while running.
class RunError : public Error {
  public:
    template <class... Args>
    explicit RunError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::Failed, Reach::OneRank, fmt::format(text, std::forward<Args>(args)...)) {}
};

/// Whether an errno says that the path itself is wrong, so that another node or a later start has the same
/// error: a file stands in the place of a folder, or the path leads into /proc.
inline bool names_unusable_path(int reason) {
    return reason == ENOTDIR || reason == EISDIR || reason == EEXIST || reason == ENOENT || reason == ELOOP ||
           reason == ENAMETOOLONG || reason == EACCES || reason == EPERM;
}

/// A file or folder of the run that cannot be made or opened, with the errno `reason`. The exit code is that
/// of a UserError if the path itself is wrong, else that of a RunError.
class PathError : public Error {
  public:
    template <class... Args>
    explicit PathError(int reason, fmt::format_string<Args...> text, Args&&... args)
        : Error(names_unusable_path(reason) ? ExitCode::BadInput : ExitCode::Failed, Reach::OneRank,
                fmt::format(text, std::forward<Args>(args)...)) {}
};

/// A failed memory allocation.
class MemoryError : public RunError {
  public:
    struct Figures {
        size_t requested_bytes = 0;
        std::optional<size_t> tensor_bytes = {};  // already held by tensors in the same memory, if known
    };
    template <class... Args>
    explicit MemoryError(const Figures& figures, fmt::format_string<Args...> text, Args&&... args)
        : RunError(text, std::forward<Args>(args)...), figures_(figures) {}
    const Figures& figures() const { return figures_; }

  private:
    Figures figures_;
};

/// A failure of the whole job. Every rank throws this error at the same point, because all ranks decide on
/// the same data.
class JobError : public Error {
  public:
    template <class... Args>
    explicit JobError(fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::Failed, Reach::AllRanks, fmt::format(text, std::forward<Args>(args)...)) {}
};

/// A peer did not answer within its time limit.
class TimeoutError : public Error {
  public:
    template <class... Args>
    explicit TimeoutError(fmt::format_string<Args...> text, Args&&... args)
        : TimeoutError(Reach::OneRank, text, std::forward<Args>(args)...) {}
    template <class... Args>
    TimeoutError(Reach reach, fmt::format_string<Args...> text, Args&&... args)
        : Error(ExitCode::Watchdog, reach, fmt::format(text, std::forward<Args>(args)...)) {}
};

[[noreturn]] inline void throw_broken_invariant(const char* condition, const char* file, int line,
                                                const std::string& message) {
    throw RunError("internal error: {} is false at {}:{}{}{}", condition, file, line,
                   message.empty() ? "" : ": ", message);
}

}  // namespace argosy

/// An invariant that stays checked in release builds: ARGOSY_CHECK(rows > 0, "{} rows", rows).
#define ARGOSY_CHECK(condition, ...)                                                                         \
    do {                                                                                                     \
        if (!(condition)) [[unlikely]] {                                                                     \
            ::argosy::throw_broken_invariant(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
        }                                                                                                    \
    } while (false)
