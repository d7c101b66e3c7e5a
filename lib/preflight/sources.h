// The sources of facts about a node (tests pass a made-up file tree and a made-up nvidia-smi), and functions
// that read the kernel's small files. No function here throws because of a file's contents: the results leave
// out what cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::preflight {

struct Sources {
    std::filesystem::path root = "/";       // the folder that contains proc, sys, dev, etc, var
    std::string nvidia_smi = "nvidia-smi";  // a path, or a name to look up in PATH
    double nvidia_smi_seconds = 20;         // timeout for all calls of nvidia-smi together
};

/// The last bytes of a file, at most `most_bytes`. None if the file cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path, size_t most_bytes = 1 << 20);

/// A file's first line, trimmed, with '?' for control characters. Empty if the file cannot be read.
std::string read_line(const std::filesystem::path& path);

/// The names in a folder, sorted with numbers at the end by value ("mlx5_2" before "mlx5_10"). Empty if the
/// folder cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The text without blanks at its start and end.
std::string_view trimmed(std::string_view text);

/// The text with '?' for control characters.
std::string printable(std::string_view text);

/// The parts between separators, each trimmed. An empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The number at the start of a text. None if the text starts otherwise.
std::optional<int64_t> leading_integer(std::string_view text);
std::optional<double> leading_number(std::string_view text);

/// The CPUs in a kernel list such as "0-3,8". Leaves out malformed parts and impossible numbers.
std::vector<int> parse_cpu_list(std::string_view text);

// Lists of interfaces or adapters, as environment variables such as NCCL_IB_HCA hold them.

/// NCCL's syntax: an entry of "mlx5_0:1,mlx5" matches every name that begins with it. "^" before the list
/// makes it exclude, "=" before it requires whole names, and ":1" after an entry selects a port. MPI's and
/// UCX's lists require whole names.
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

// Runs another program and returns its output, within a timeout.

struct Answer {
    enum class End { NotFound, Exited, Hung };
    End end = End::NotFound;
    int status = -1;     // exit status; -1 when a signal ended the program
    std::string output;  // stdout and stderr together, up to a mebibyte
};

/// Runs `command` with empty input. After `seconds` kills the program and its children. A program that cannot
/// be killed, because it hangs in the kernel on a device, is left behind.
Answer ask(const std::vector<std::string>& command, double seconds);

}  // namespace argosy::preflight
