#include "base/program.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) { received_signal = signal; }

std::pair<std::string_view, std::string_view> split(std::string_view key) {
    const std::size_t dot = key.rfind('.');  // a section's name may have dots
    if (dot == std::string_view::npos) return {"", key};
    return {key.substr(0, dot), key.substr(dot + 1)};
}

/// Compares names first; the section decides between equal distances.
std::pair<int, int> distance(std::string_view one, std::string_view other) {
    const auto [section, name] = split(one);
    const auto [other_section, other_name] = split(other);
    return {edit_distance(name, other_name), edit_distance(section, other_section)};
}

}  // namespace

int run_program(const char* name, const std::function<ExitCode()>& body) {
    const auto fail = [name](ExitCode code, const char* text) {
        fmt::print(stderr, "{}: error: {}\n", name, text);
        return static_cast<int>(code);
    };
    survive_file_size_limit();
    try {
        return static_cast<int>(body());
    } catch (const std::exception& exception) {
        const Error error = as_error(exception);
        return fail(error.code(), error.what());
    }
}

Error as_error(const std::exception& error) {
    if (const auto* known = dynamic_cast<const Error*>(&error)) return *known;
    const auto* of_path = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
    if (!of_path) return {ExitCode::Failed, Reach::OneRank, error.what()};
    const int reason = of_path->code().value();
    const bool machine_failed = !names_unusable_path(reason);
    return {machine_failed ? ExitCode::Failed : ExitCode::BadInput, Reach::OneRank,
            fmt::format("cannot use {}: {}{}", of_path->path1().string(), of_path->code().message(),
                        reason == ELOOP ? "; its symbolic links lead back to it" : remedy_for(reason))};
}

std::string on_one_line(std::string message) {
    std::ranges::replace_if(
        message, [](unsigned char byte) { return byte < ' ' || byte == 0x7F; }, ' ');
    return message;
}

int edit_distance(std::string_view one, std::string_view other) {
    // Each row has the distances from the letters of `one` seen so far to the first j letters of `other`.
    std::vector<int> before, last, row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        before = std::exchange(last, row);
        row[0] = static_cast<int>(i) + 1;
        for (std::size_t j = 0; j < other.size(); ++j) {
            row[j + 1] = std::min({last[j] + (one[i] != other[j]), row[j] + 1, last[j + 1] + 1});
            const bool swapped = i > 0 && j > 0 && one[i] == other[j - 1] && one[i - 1] == other[j];
            if (swapped) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
    }
    return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    const auto best = std::ranges::min_element(candidates, [&](const auto& one, const auto& other) {
        return distance(word, one) < distance(word, other);
    });
    if (best == candidates.end()) return "";
    // A guess at a larger distance would be random. "seq_length" is three letters from "seq_len".
    const int limit = std::max<int>(1, static_cast<int>(split(word).second.size()) / 3);
    return distance(word, *best).first <= limit ? *best : "";
}

void survive_file_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

void catch_stop_requests(StopSignals which) {
    const bool is_run = which == StopSignals::Scheduler;
    const std::vector<int> signals =
        is_run ? std::vector{SIGTERM, SIGUSR1} : std::vector{SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {};
    action.sa_handler = remember;
    action.sa_flags = is_run ? SA_RESTART : 0;
    for (const int signal : signals) {
        struct sigaction inherited = {};
        sigaction(signal, nullptr, &inherited);
        if (!is_run && inherited.sa_handler == SIG_IGN) continue;  // nohup, or a shell's background job
        sigaction(signal, &action, nullptr);
    }
    sigset_t launcher_blocks;
    sigemptyset(&launcher_blocks);
    sigaddset(&launcher_blocks, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &launcher_blocks, nullptr);
}

bool stop_requested() { return received_signal != 0; }

void throw_if_stop_requested() {
    if (stop_requested()) throw RunError("stopped by a signal; no unfinished output is left");
}

}  // namespace argosy
