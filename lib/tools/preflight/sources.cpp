#include "preflight/sources.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/raw_file.h"

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

template <class Number>
std::optional<Number> leading(std::string_view text) {
    text = trimmed(text);
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// Compares names by characters, but digits at the end by their value.
bool counts_before(const std::string& left, const std::string& right) {
    const size_t left_digits = left.find_last_not_of("0123456789") + 1;
    const size_t right_digits = right.find_last_not_of("0123456789") + 1;
    if (left.substr(0, left_digits) != right.substr(0, right_digits)) return left < right;
    if (left.size() != right.size()) return left.size() < right.size();
    return left < right;
}

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr double kSecondsToDie = 1;

/// The pipe through which the output of a started program is read.
class Pipe {
  public:
    Pipe() {
        if (::pipe2(ends_, O_CLOEXEC) != 0) throw RunError("cannot create a pipe: too many open files");
    }
    ~Pipe() {
        close_writing_end();
        ::close(ends_[0]);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    int reading_end() const { return ends_[0]; }
    int writing_end() const { return ends_[1]; }
    void close_writing_end() {
        if (ends_[1] >= 0) ::close(ends_[1]);
        ends_[1] = -1;
    }

  private:
    int ends_[2];
};

/// Starts the program in its own process group, so that its children can be killed with it. Returns 0 if the
/// program cannot be started. Unlike fork(), posix_spawn() runs no fork handlers; Open MPI and InfiniBand's
/// library have problems with fork handlers.
pid_t start(const std::vector<std::string>& command, int output) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t process = 0;
    const int failure =
        ::posix_spawnp(&process, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failure ? 0 : process;
}

/// Reads until the writer closes its end of the pipe. Returns false if the deadline came first.
bool read_all(int descriptor, double deadline, std::string& output) {
    char buffer[4096];
    for (;;) {
        const double left = deadline - seconds_now();
        if (left <= 0) return false;
        pollfd readable{descriptor, POLLIN, 0};
        if (::poll(&readable, 1, static_cast<int>(left * 1e3) + 1) <= 0) continue;
        const ssize_t done = ::read(descriptor, buffer, sizeof(buffer));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return true;
        output.append(buffer, std::min<size_t>(done, kMaxOutputBytes - output.size()));
    }
}

/// Waits until the process has ended. Returns false if the deadline came first.
bool ended(pid_t process, double deadline, int& status) {
    for (;;) {
        const pid_t done = ::waitpid(process, &status, WNOHANG);
        if (done == process || (done < 0 && errno != EINTR)) return true;
        if (seconds_now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

/// MPI's lists may contain address ranges such as "10.0.0.0/8", which are not names of interfaces.
bool is_address(std::string_view part) { return part.find('/') != part.npos; }

}  // namespace

std::optional<std::string> try_read_text(const fs::path& path, size_t max_bytes) {
    // Opens without blocking, even if the path names a device or a pipe.
    const Descriptor opened(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const int file = opened.number();
    if (file < 0) return std::nullopt;
    std::string text(max_bytes, '\0');
    size_t filled = 0;
    while (filled < max_bytes) {
        const ssize_t done = ::read(file, text.data() + filled, max_bytes - filled);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && filled == 0) return std::nullopt;
        if (done <= 0) break;
        filled += done;
    }
    text.resize(filled);
    return text;
}

std::string read_line(const fs::path& path) {
    constexpr size_t kMaxBytes = 4096;
    const std::string text = try_read_text(path, kMaxBytes).value_or("");
    return printable(trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    fs::directory_iterator entry(folder, ignored);
    for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
        names.push_back(entry->path().filename().string());
    }
    std::ranges::sort(names, counts_before);
    return names;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n\f\v";
    const size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
    return text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
}

std::string printable(std::string_view text) {
    std::string clean(text);
    std::ranges::replace_if(
        clean, [](unsigned char byte) { return byte < ' ' || byte == 0x7F; }, '?');
    return clean;
}

std::string shortened(std::string_view text) {
    constexpr size_t kMaxShown = 200;
    text = trimmed(text);
    return printable(text.substr(0, std::min(text.find('\n'), kMaxShown)));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    if (trimmed(text).empty()) return parts;
    for (size_t start = 0; start <= text.size();) {
        const size_t end = std::min(text.find(separator, start), text.size());
        parts.push_back(trimmed(text.substr(start, end - start)));
        start = end + 1;
    }
    return parts;
}

std::optional<int64_t> leading_integer(std::string_view text) { return leading<int64_t>(text); }
std::optional<double> leading_number(std::string_view text) {
    const auto number = leading<double>(text);
    return number && std::isfinite(*number) ? number : std::nullopt;
}

std::vector<int> parse_cpu_list(std::string_view text) {
    constexpr int64_t kMaxCpus = 1 << 16;
    std::vector<int> cpus;
    for (const std::string_view part : split(text, ',')) {
        const size_t dash = part.find('-');
        const auto first = leading_integer(part.substr(0, dash));
        const auto last = dash == part.npos ? first : leading_integer(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) continue;
        for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
    std::ranges::sort(cpus);
    const auto repeated = std::ranges::unique(cpus);
    cpus.erase(repeated.begin(), repeated.end());
    return cpus;
}

CommandResult run_command(const std::vector<std::string>& command, double seconds) {
    Pipe pipe;
    const pid_t process = start(command, pipe.writing_end());
    if (process == 0) return {};
    pipe.close_writing_end();
    const double deadline = seconds_now() + seconds;
    CommandResult result;
    int status = 0;
    if (!read_all(pipe.reading_end(), deadline, result.output) || !ended(process, deadline, status)) {
        for (const int signal : {SIGTERM, SIGKILL}) {
            ::kill(-process, signal);
            ended(process, seconds_now() + kSecondsToDie, status);
        }
        result.end = CommandResult::End::Hung;
        return result;
    }
    result.end = CommandResult::End::Exited;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
}

Calls::Calls(double seconds) : deadline_(seconds_now() + seconds) {}

CommandResult Calls::run(const std::vector<std::string>& command, double max_seconds) {
    const double left = deadline_ - seconds_now();
    if (left <= 0) out_of_time_ = true;
    if (hung_ || out_of_time_) return {.end = CommandResult::End::Hung};
    CommandResult result = run_command(command, std::min(left, max_seconds));
    // A healthy program may need some seconds, so a call that had little time proves nothing.
    if (result.end == CommandResult::End::Hung) (left < max_seconds ? out_of_time_ : hung_) = true;
    return result;
}

NameList::NameList(std::string_view text, Syntax syntax) : whole_names_(syntax == Syntax::WholeNames) {
    text = trimmed(text);
    const auto take = [&](char mark) {
        const bool there = syntax == Syntax::Nccl && text.starts_with(mark);
        if (there) text.remove_prefix(1);
        return there;
    };
    excludes_ = take('^');
    if (take('=')) whole_names_ = true;
    for (const std::string_view part : split(text, ',')) {
        if (part.empty() || is_address(part)) continue;
        const size_t colon = part.find(':');
        const auto port = colon == part.npos ? std::nullopt : leading_integer(part.substr(colon + 1));
        entries_.push_back({std::string(part.substr(0, colon)), static_cast<int>(port.value_or(-1))});
    }
}

bool NameList::matches(const Entry& entry, std::string_view name, int port) const {
    const bool named = whole_names_ ? name == entry.name : name.starts_with(entry.name);
    return named && (entry.port == -1 || port == -1 || entry.port == port);
}

bool NameList::chooses(std::string_view name, int port) const {
    const bool listed =
        std::ranges::any_of(entries_, [&](const Entry& entry) { return matches(entry, name, port); });
    return entries_.empty() || listed != excludes_;
}

}  // namespace argosy::preflight
