// Where facts about a node are read from, so that tests can give a made-up tree and a made-up nvidia-smi; and
// the reading of the kernel's small files. Nothing here throws because of what a file holds: what cannot be
// read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::preflight {

struct Sources {
    std::filesystem::path root = "/";       // above /proc, /sys, /dev, /etc, /var
    std::string nvidia_smi = "nvidia-smi";  // a path, or a name looked for in PATH
    double nvidia_smi_seconds = 20;         // for all questions to it together
};

/// The last bytes of a file, as many as it has and `most_bytes` allows; nothing where it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path, size_t most_bytes = 1 << 20);

/// A file's first line without blanks around it, control characters as '?'; empty where it cannot be read.
std::string read_line(const std::filesystem::path& path);

/// Names in a folder, sorted as people count ("mlx5_2" before "mlx5_10"); none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// Without blanks around it.
std::string_view trimmed(std::string_view text);

/// Without control characters, which become '?'.
std::string printable(std::string_view text);

/// Parts between separators, each without blanks around it; none of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The number that a text starts with; nothing where there is none.
std::optional<int64_t> leading_integer(std::string_view text);
std::optional<double> leading_number(std::string_view text);

/// CPUs out of the kernel's spelling, "0-3,8"; what is no such list, or names impossible numbers, is left
/// out.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace argosy::preflight
