#include "base/progress.h"

#include <fcntl.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

constexpr double kSecondsBetweenLines = 10;      // in a log
constexpr double kSecondsBetweenDrawings = 0.2;  // of a live line

std::string bar(double share) {
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(share * kWidth);
    return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", kWidth - filled);
}

constexpr const char* kErase = "\r\x1b[K";

volatile std::sig_atomic_t line_is_drawn = 0;

/// Ignores a failed write: the terminal is gone, which is no error of this program.
void put(const std::string& text) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

/// Ends the line and raises the signal again. SA_RESETHAND has restored the default action, so the second
/// signal ends the process.
void leave_the_line(int signal) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, "\n", line_is_drawn ? 1 : 0);
    raise(signal);
}

/// While this object exists, a signal that would end the process in the middle of a line ends the line first.
class Interrupts {
  public:
    Interrupts() {
        struct sigaction action = {};
        action.sa_handler = leave_the_line;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        for (size_t i = 0; i < kSignals.size(); ++i) {
            sigaction(kSignals[i], nullptr, &before_[i]);
            if (before_[i].sa_handler == SIG_DFL) sigaction(kSignals[i], &action, nullptr);
        }
    }
    ~Interrupts() {
        for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    }
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;

  private:
    static constexpr std::array kSignals = {SIGINT, SIGQUIT};
    std::array<struct sigaction, kSignals.size()> before_{};
};

/// The width of stderr's terminal, or of the controlling terminal if stderr is a pipe that probably leads
/// there.
class Width {
  public:
    explicit Width(int fallback_columns)
        : fallback_columns_(fallback_columns),
          terminal_(isatty(STDERR_FILENO) ? dup(STDERR_FILENO)
                                          : open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC)) {}

    int columns() const {
        winsize size{};
        const bool known = ioctl(terminal_.number(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        return known ? size.ws_col : fallback_columns_;
    }

  private:
    int fallback_columns_;
    Descriptor terminal_;
};

}  // namespace

Progress::Progress(std::string task, const Environment& environment)
    : task_(std::move(task)), started_(seconds_now()), shown_at_(started_) {
    if (log_is_on_a_terminal(environment)) line_.emplace(environment.columns);
}

bool Progress::due() const {
    return seconds_now() - shown_at_ >= (line_ ? kSecondsBetweenDrawings : kSecondsBetweenLines);
}

double Progress::seconds() const { return seconds_now() - started_; }

void Progress::show(double share, const std::string& details) {
    share = std::clamp(share, 0.0, 1.0);
    std::string text = fmt::format("{} {} {:3.0f}%", task_, bar(share), 100 * share);
    if (!details.empty()) text += "  " + details;
    if (share > 0) {
        const auto to_go = std::llround(seconds() * (1 - share) / share);
        text += fmt::format("  {}:{:02}:{:02} to go", to_go / 3600, to_go / 60 % 60, to_go % 60);
    }
    if (line_) {
        line_->show(text);
    } else {
        spdlog::info("{}", text);
    }
    shown_at_ = seconds_now();
}

class LiveLine::Sink : public spdlog::sinks::sink {
  public:
    Sink(std::vector<spdlog::sink_ptr> targets, int columns)
        : targets_(std::move(targets)), width_(columns) {}

    void show(const std::string& text) {
        const std::lock_guard lock(mutex_);
        text_ = text;
        if (seconds_now() - drawn_at_ >= kSecondsBetweenDrawings) draw();
    }
    void erase() {
        put(kErase);
        line_is_drawn = 0;
    }
    const std::vector<spdlog::sink_ptr>& targets() const { return targets_; }

    /// Erases the row even if this process has drawn no line, because another rank may have drawn one on the
    /// same terminal.
    void log(const spdlog::details::log_msg& message) override {
        const std::lock_guard lock(mutex_);
        erase();
        for (const auto& target : targets_) {
            if (target->should_log(message.level)) target->log(message);
            target->flush();
        }
        draw();
    }
    void flush() override {
        for (const auto& target : targets_) target->flush();
    }
    void set_pattern(const std::string& pattern) override {
        for (const auto& target : targets_) target->set_pattern(pattern);
    }
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
        for (const auto& target : targets_) target->set_formatter(formatter->clone());
    }

  private:
    /// The last column stays free, because a terminal wraps to the next row after it.
    void draw() {
        if (text_.empty()) return;
        drawn_at_ = seconds_now();
        line_is_drawn = 1;
        put("\r" + text_.substr(0, static_cast<size_t>(width_.columns() - 1)) + "\x1b[K");
    }

    std::mutex mutex_;
    std::vector<spdlog::sink_ptr> targets_;
    Width width_;
    Interrupts interrupts_;
    std::string text_;
    double drawn_at_ = -kSecondsBetweenDrawings;
};

bool log_is_on_a_terminal(const Environment& environment) {
    const bool rewrites = !environment.terminal.empty() && environment.terminal != "dumb";
    return rewrites && isatty(STDERR_FILENO) && spdlog::should_log(spdlog::level::info);
}

LiveLine::LiveLine(int columns) : sink_(std::make_shared<Sink>(spdlog::default_logger()->sinks(), columns)) {
    spdlog::default_logger()->sinks() = {sink_};
}

LiveLine::~LiveLine() {
    spdlog::default_logger()->sinks() = sink_->targets();
    sink_->erase();
}

void LiveLine::show(const std::string& text) { sink_->show(text); }

}  // namespace argosy
