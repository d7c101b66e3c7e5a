// Small files of text, whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace argosy::interop {

/// UserError where it is missing, unreadable or larger than `most_bytes`.
std::string read_text(const std::filesystem::path& path, int64_t most_bytes);

/// Durable once it returns.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace argosy::interop
