#include "preflight/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::preflight {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr double kSecondsToDie = 1;

/// The pipe through which the output of a started program is read.
class Pipe {
  public:
    Pipe() {
        if (::pipe2(ends_, O_CLOEXEC) != 0) throw RunError("no more open files: a pipe cannot be made");
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
/// program cannot be started. (posix_spawn runs no fork handlers, with which Open MPI and InfiniBand's
/// library have problems.)
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

}  // namespace

Answer ask(const std::vector<std::string>& command, double seconds) {
    Pipe pipe;
    const pid_t process = start(command, pipe.writing_end());
    if (process == 0) return {};
    pipe.close_writing_end();
    const double deadline = seconds_now() + seconds;
    Answer answer;
    int status = 0;
    if (!read_all(pipe.reading_end(), deadline, answer.output) || !ended(process, deadline, status)) {
        ::kill(-process, SIGKILL);
        ended(process, seconds_now() + kSecondsToDie, status);
        answer.end = Answer::End::Hung;
        return answer;
    }
    answer.end = Answer::End::Exited;
    answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return answer;
}

}  // namespace argosy::preflight
