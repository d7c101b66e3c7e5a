// Reads and writes small text files as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace argosy::interop {

/// UserError if it is missing, unreadable or larger than `most_bytes`.
std::string read_text(const std::filesystem::path& path, int64_t most_bytes);

/// When this returns, the file is durable.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace argosy::interop
