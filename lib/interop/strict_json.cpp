#include "interop/strict_json.h"

#include <span>

#include "base/error.h"
#include "base/raw_file.h"

namespace argosy::interop {

using nlohmann::json;

std::string shown(std::string_view text) {
    constexpr size_t kMaxBytes = 100;
    const bool cut = text.size() > kMaxBytes;
    constexpr bool kAscii = true;
    return json(text.substr(0, kMaxBytes)).dump(-1, ' ', kAscii, json::error_handler_t::replace) +
           (cut ? "..." : "");
}

void StrictJson::read(std::string_view text) {
    // nlohmann-json takes a zero byte for the end of the text and ignores the rest.
    if (text.find('\0') != std::string_view::npos) refuse("", "the text contains a zero byte");
    json::sax_parse(text, static_cast<json::json_sax_t*>(this));
}

void StrictJson::refuse(const std::string& where, const std::string& what) const {
    throw UserError("{}: {}{}{}", place_, where, where.empty() ? "" : ": ", what);
}

void StrictJson::unexpected(const std::string& what) const {
    refuse(where(), what + " does not belong there");
}

void StrictJson::add_key(std::set<std::string>& seen, const std::string& key) const {
    if (!seen.insert(key).second) refuse(where(), "the key " + shown(key) + " occurs twice");
}

bool StrictJson::parse_error(size_t position, const std::string& token, const nlohmann::detail::exception&) {
    refuse(where(), fmt::format("bad JSON at byte {}, near {}", position, shown(token)));
}

std::string read_text(const std::filesystem::path& path, int64_t max_bytes) {
    const RawFile file = RawFile::open_to_read(path);
    const int64_t num_bytes = file.size_bytes();
    if (num_bytes > max_bytes) {
        throw UserError("{} has {} bytes; at most {} are expected", path.string(), num_bytes, max_bytes);
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
