#include "base/program.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

volatile std::sig_atomic_t received_signal = 0;
bool ranks_agree_to_stop = false;

void remember(int signal) { received_signal = signal; }

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

void survive_file_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

void catch_stop_requests(StopSignals which) {
    const bool is_run = which == StopSignals::Scheduler;
    ranks_agree_to_stop = is_run;
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
    if (stop_requested() && !ranks_agree_to_stop)
        throw RunError("stopped by a signal; no unfinished output is left");
}

void stop_catching_requests() {
    for (const int signal : {SIGTERM, SIGUSR1}) std::signal(signal, SIG_DFL);
    if (stop_requested()) std::raise(received_signal);
}

}  // namespace argosy
