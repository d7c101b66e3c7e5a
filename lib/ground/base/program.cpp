#include "base/program.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/raw_file.h"

namespace argosy {
namespace {

volatile std::sig_atomic_t received_signal = 0;
bool ranks_agree_to_stop = false;

void remember(int signal) { received_signal = signal; }

// While a value after "=" is typed, bash has "=" as a word of its own.
constexpr std::string_view kCompletion = R"(_argosy_PROGRAM() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= one
    if [ "$word" = = ]; then
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for one in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $one in COMMANDS) command=$one ;; esac
    done
    case $command:$before in
VALUES    esac
    case $command:$word in
OPTIONS    esac
}
_argosy_launched() {
    local one
    for one in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        one=_argosy_${one##*/}
        if declare -F "${one//-/_}" >/dev/null; then "${one//-/_}"; return; fi
    done
}
complete -o default -F _argosy_PROGRAM NAME
complete -o default -F _argosy_launched mpirun.sh
)";

std::string with(std::string text, std::string_view name, const std::string& value) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
        text.replace(at, name.size(), value);
    return text;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
    return text;
}

/// A branch of `case`, which completes the word from `words`.
std::string branch(const std::string& pattern, const std::vector<std::string>& words) {
    return fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n", pattern,
                       joined(words, " "));
}

}  // namespace

std::string bash_completion(const std::string& program, const std::vector<CompletedWords>& words) {
    std::vector<std::string> commands;
    std::string values, options;
    for (const auto& [command, all] : words) {
        std::vector<std::string> names;
        for (const CompletedOption& option : all) {
            names.insert(names.end(), option.names.begin(), option.names.end());
            if (option.values.empty()) continue;
            std::vector<std::string> patterns;
            for (const std::string& name : option.names) patterns.push_back(command + ":" + name);
            // A word that begins with a dash is the next option: a boolean needs no value.
            values += branch(joined(patterns, " | "), option.values);
        }
        if (!command.empty()) commands.push_back(command);
        options += branch(command + ":-*", names);
    }
    if (!commands.empty()) options += branch(":*", commands);
    std::string text = with(std::string(kCompletion), "PROGRAM", with(program, "-", "_"));
    text = with(text, "COMMANDS", commands.empty() ? "''" : joined(commands, " | "));
    text = with(text, "VALUES", values);
    return with(with(text, "OPTIONS", options), "NAME", program);
}

int run_program(const char* name, const std::function<ExitCode()>& body) {
    const auto fail = [name](ExitCode code, const char* text) {
        fmt::print(stderr, "{}: error: {}\n", name, text);
        return static_cast<int>(code);
    };
    survive_file_size_limit();
    try {
        require_address_space();
        return static_cast<int>(body());
    } catch (const std::exception& exception) {
        const Error error = as_error(exception);
        return fail(error.code(), error.what());
    }
}

int end_process(int code) {
    if (Environment::read().has_injected_tool) return code;
    std::fflush(nullptr);
    ::_exit(code);
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

void require_address_space() {
    constexpr size_t kNeededBytes = size_t{512} << 20;  // stacks and heaps of threads, buffers
    rlimit limit = {};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    void* const probe =
        mmap(nullptr, kNeededBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) {
        throw UserError(
            "the limit on the address space, {} MiB (ulimit -v), leaves less than {} MiB beside the "
            "libraries; remove it in the shell that starts or submits the run: ulimit -v unlimited",
            limit.rlim_cur >> 20, kNeededBytes >> 20);
    }
    munmap(probe, kNeededBytes);
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
