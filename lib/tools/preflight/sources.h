// The sources of facts about a node (tests pass a made-up file tree and a made-up nvidia-smi), and functions
// that read them: the kernel's small files, lists of interfaces in environment variables, and the output of
// other programs. No function here throws because of a file's contents: what cannot be read is missing in the
// result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::preflight {

struct Sources {
    std::filesystem::path root = "/";       // the folder that contains proc, sys, dev and etc
    std::string nvidia_smi = "nvidia-smi";  // a path, or a name to look up in PATH
    std::string dcgmi = "dcgmi";            // the same for DCGM
    double gpu_seconds = 30;                // for all calls of both in one look at the GPUs
    double hang_seconds = 20;               // nvidia-smi hangs if a call had so long and did not end
    double folder_seconds = 15;             // for the trial write to the dump folder
};

/// The first bytes of a file, at most `max_bytes`. Returns none if the file cannot be read.
std::optional<std::string> try_read_text(const std::filesystem::path& path, size_t max_bytes = 1 << 20);

/// A file's first line, trimmed and printable(). Returns an empty text if the file cannot be read.
std::string read_line(const std::filesystem::path& path);

/// The names in a folder, sorted by characters, but numbers at the end by value ("mlx5_2" before "mlx5_10").
/// Returns no names if the folder cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The text without blanks at its start and end.
std::string_view trimmed(std::string_view text);

/// The text with '?' in place of each control character.
std::string printable(std::string_view text);

/// The first line of a text that may have more: trimmed, printable(), and of limited length.
std::string shortened(std::string_view text);

/// The parts between separators, each trimmed. An empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The number at the start of a text; blanks may precede it. Returns none if there is no number.
std::optional<int64_t> leading_integer(std::string_view text);
std::optional<double> leading_number(std::string_view text);

/// The CPUs in a kernel list such as "0-3,8", ascending. Malformed parts and impossible numbers are ignored.
std::vector<int> parse_cpu_list(std::string_view text);

/// A list of interfaces or adapters in an environment variable such as NCCL_IB_HCA. In NCCL's syntax, each
/// entry of "mlx5_0:1,mlx5" matches all names that begin with the entry; "^" before the list excludes these
/// names, and "=" before the list requires whole names. In lists of MPI and UCX (Syntax::WholeNames), an
/// entry matches only its own name. In all lists, ":1" after an entry selects a port.
class NameList {
  public:
    enum class Syntax { Nccl, WholeNames };
    NameList(std::string_view text, Syntax syntax);

    struct Entry {
        std::string name;
        int port = -1;  // -1: any
    };
    const std::vector<Entry>& entries() const { return entries_; }
    bool excludes() const { return excludes_; }

    /// Whether the entry matches this interface or adapter. `port` is -1 for interfaces, which have none.
    bool matches(const Entry& entry, std::string_view name, int port = -1) const;

    /// Whether the list as a whole chooses this interface or adapter. An empty list chooses all.
    bool chooses(std::string_view name, int port = -1) const;

  private:
    std::vector<Entry> entries_;
    bool excludes_ = false, whole_names_ = false;
};

/// The end and the output of a program that run_command() ran.
struct CommandResult {
    enum class End { NotFound, Exited, Hung };
    End end = End::NotFound;
    int status = -1;     // exit status; -1 when a signal ended the program
    std::string output;  // stdout and stderr together, up to a mebibyte
};

/// Runs `command` with empty input. After `seconds`, asks the program and its children to end (SIGTERM), and
/// after another second kills them. A program that cannot be killed, because it hangs in the kernel on a
/// device, keeps running.
CommandResult run_command(const std::vector<std::string>& command, double seconds);

/// Calls of other programs with one deadline for all of them. No call follows one that did not end.
class Calls {
  public:
    explicit Calls(double seconds);

    /// Waits for the program until the deadline, but for `max_seconds` at most.
    CommandResult run(const std::vector<std::string>& command, double max_seconds);
    bool hung() const { return hung_; }  // a call had its maximum time and did not end
    /// A call had less time than that and did not end, or was left out.
    bool out_of_time() const { return out_of_time_; }

  private:
    double deadline_;
    bool hung_ = false, out_of_time_ = false;
};

}  // namespace argosy::preflight
