#include "checkpoint/user_block.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <vector>

#include "base/error.h"

namespace argosy::checkpoint {
namespace {

constexpr std::string_view kCheckKey = "check ";
constexpr size_t kHexDigits = 32;
constexpr std::array kKinds = {FileKind::Manifest, FileKind::Shard, FileKind::Full};

template <class... Args>
[[noreturn]] void fail_damaged(const std::string& place, fmt::format_string<Args...> text, Args&&... args) {
    throw DamageError("{}: its user block (bytes 0 .. {}, outside the tensors) is damaged: {}", place,
                      kUserBlockBytes - 1, fmt::format(text, std::forward<Args>(args)...));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return parts;
}

/// The number in `text`. Negative if the text is not a number from 0 on.
int64_t parse_number(std::string_view text) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

/// The text of a user block, split at its check line.
struct Sections {
    std::string_view lines;  // all lines above the check line
    std::string_view check;  // the digits of the check line
    bool padded = false;     // whether valid padding follows the check line
};

Sections sections_of(std::string_view text) {
    const size_t at = text.find(fmt::format("\n{}", kCheckKey));
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + 1 + kCheckKey.size());
    const std::string_view padding = rest.substr(std::min(rest.size(), kHexDigits));
    const bool padded = padding.size() >= 2 && padding.front() == '\n' && padding.back() == '\n' &&
                        padding.find_first_not_of(' ', 1) == padding.size() - 1;
    return {.lines = text.substr(0, at + 1), .check = rest.substr(0, kHexDigits), .padded = padded};
}

/// The major version of the text's first line; -1 if the line has none.
int64_t major_version(std::string_view text) {
    const std::string_view line = text.substr(kMagic.size(), text.find('\n') - kMagic.size());
    const std::vector<std::string_view> version = split(line, '.');
    const bool is_version = version.size() == 2 && parse_number(version.back()) >= 0;
    return is_version ? parse_number(version.front()) : -1;
}

void check_version(std::string_view text, bool intact, const std::string& place) {
    const std::string_view line = text.substr(kMagic.size(), text.find('\n') - kMagic.size());
    const int64_t major = major_version(text);
    if (major == kFormatMajor || !intact) return;
    if (major < 0) fail_damaged(place, "'{}' is not a version, such as 2.0", line);
    throw UserError(
        "{} is of checkpoint format {}, but this program reads {}.x; use the version that wrote it, or a "
        "newer one",
        place, line, kFormatMajor);
}

Hash check_integrity(const Sections& parts, const std::string& place) {
    const std::optional<Hash> stored = parse_hash(parts.check);
    const Hash found = hash_of(parts.lines);
    if (!stored) fail_damaged(place, "it has no check line");
    if (*stored != found)
        fail_damaged(place, "its check says {}, and its lines give {}", stored->hex(), found.hex());
    if (!parts.padded) fail_damaged(place, "it does not end with spaces and a newline");
    return *stored;
}

/// The words of each line after the first word, by the first word.
using Lines = std::map<std::string_view, std::vector<std::string_view>>;

/// Lines whose first word a later minor version added may stand anywhere, once each.
Lines lines_of(std::string_view text, const std::string& place) {
    constexpr std::array<std::string_view, 6> kOrder = {"argosy", "kind", "bytes", "table", "rest", "set"};
    const auto is_ascii = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
    if (!std::ranges::all_of(text, is_ascii)) fail_damaged(place, "it has characters other than ASCII's");
    Lines lines;
    auto next = kOrder.begin();
    for (const std::string_view line : split(text, '\n')) {
        const std::vector<std::string_view> words = split(line, ' ');
        const std::string_view key = words.empty() ? "" : words.front();
        const bool is_new = lines.try_emplace(key, words.begin() + !words.empty(), words.end()).second;
        if (!is_new) fail_damaged(place, "its line '{}' occurs twice", key);
        if (std::ranges::find(kOrder, key) == kOrder.end()) continue;
        const auto found = std::find(next, kOrder.end(), key);
        if (found == kOrder.end()) fail_damaged(place, "its line '{}' is not in its place", key);
        next = found + 1;
    }
    return lines;
}

class Fields {
  public:
    Fields(const Lines& lines, std::string_view key, size_t count, const std::string& place)
        : place_(place), key_(key) {
        const auto found = lines.find(key);
        if (found == lines.end() || found->second.size() != count)
            fail_damaged(place, "its line '{}' is missing, short or long", key);
        fields_ = found->second;
    }
    FileKind kind(size_t i) const {
        for (const FileKind each : kKinds) {
            if (fields_[i] == name(each)) return each;
        }
        fail_damaged(place_, "'{}' is not a kind of file", fields_[i]);
    }
    int64_t number(size_t i) const {
        const int64_t value = parse_number(fields_[i]);
        if (value < 0) fail_damaged(place_, "'{}' in its line '{}' is not a number", fields_[i], key_);
        return value;
    }
    Hash hash(size_t i) const {
        const std::optional<Hash> value = parse_hash(fields_[i]);
        if (!value) fail_damaged(place_, "'{}' in its line '{}' is not a check", fields_[i], key_);
        return *value;
    }

  private:
    const std::string& place_;
    std::string_view key_;
    std::vector<std::string_view> fields_;
};

void check_extents(const UserBlock& block, const std::string& place) {
    const bool inside = block.table_bytes <= kMaxTableBytes && block.table_at >= kUserBlockBytes &&
                        block.table_at <= block.num_bytes &&
                        block.table_bytes <= block.num_bytes - block.table_at;
    if (!inside) {
        fail_damaged(place, "a table of {} bytes at {} does not lie in a file of {}", block.table_bytes,
                     block.table_at, block.num_bytes);
    }
}

}  // namespace

const char* name(FileKind kind) {
    switch (kind) {
        case FileKind::Manifest:
            return "manifest";
        case FileKind::Shard:
            return "shard";
        case FileKind::Full:
            return "full";
    }
    return "unknown";
}

std::string to_text(const UserBlock& block) {
    std::string text =
        fmt::format("{}{}.{}\nkind {}\nbytes {}\ntable {} {} {}\nrest {}\n", kMagic, kFormatMajor,
                    kFormatMinor, name(block.kind), block.num_bytes, block.table_at, block.table_bytes,
                    block.table_hash.hex(), block.rest.hex());
    if (block.set) text += fmt::format("set {}\n", block.set->hex());
    text += fmt::format("{}{}\n", kCheckKey, hash_of(text).hex());
    ARGOSY_CHECK(text.size() < kUserBlockBytes, "{} bytes", text.size());
    text.resize(kUserBlockBytes - 1, ' ');
    return text + '\n';
}

UserBlock parse_user_block(std::string_view text, const std::string& place) {
    ARGOSY_CHECK(text.size() == kUserBlockBytes, "{} bytes", text.size());
    if (!text.starts_with(kMagic)) {
        throw UserError("{} is not a checkpoint file, or is damaged: it does not begin with '{}'", place,
                        kMagic);
    }
    const Sections parts = sections_of(text);
    const bool intact = parts.check.empty() || parse_hash(parts.check) == hash_of(parts.lines);
    check_version(text, intact, place);
    UserBlock block{.check = check_integrity(parts, place)};
    const Lines lines = lines_of(parts.lines, place);
    block.kind = Fields(lines, "kind", 1, place).kind(0);
    block.num_bytes = Fields(lines, "bytes", 1, place).number(0);
    const Fields table(lines, "table", 3, place);
    block.table_at = table.number(0);
    block.table_bytes = table.number(1);
    block.table_hash = table.hash(2);
    block.rest = Fields(lines, "rest", 1, place).hash(0);
    if (lines.contains("set")) block.set = Fields(lines, "set", 1, place).hash(0);
    const bool has_set = block.kind == FileKind::Shard;
    if (block.set.has_value() != has_set) {
        fail_damaged(place, "a {} {} a line 'set'", name(block.kind), has_set ? "has" : "does not have");
    }
    check_extents(block, place);
    return block;
}

}  // namespace argosy::checkpoint
