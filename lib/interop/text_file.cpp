#include "interop/text_file.h"

#include <span>

#include "base/error.h"
#include "base/raw_file.h"

namespace argosy::interop {

std::string read_text(const std::filesystem::path& path, int64_t most_bytes) {
    const RawFile file = RawFile::open_to_read(path);
    const int64_t num_bytes = file.size_bytes();
    if (num_bytes > most_bytes) {
        throw UserError("{} has {} bytes; at most {} are expected", path.string(), num_bytes, most_bytes);
    }
    std::string text(num_bytes, '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    return text;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
    const RawFile file = RawFile::create(path);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
}

}  // namespace argosy::interop
