#include "checkpoint/user_block.h"

#include <sstream>
#include <utility>

#include "base/error.h"

namespace argosy::checkpoint {
namespace {

constexpr std::string_view kCheckKey = "check ";
constexpr size_t kHexDigits = 32;

template <class... Args>
[[noreturn]] void fail_damaged(const std::string& place, fmt::format_string<Args...> text, Args&&... args) {
    throw DamageError("{}: its user block (bytes 0 .. {}, outside the tensors) is damaged: {}", place,
                      kUserBlockBytes - 1, fmt::format(text, std::forward<Args>(args)...));
}

/// Reads the words of the lines. What is no word of a user block is left out: the block then has other lines.
UserBlock read_lines(const std::string& lines) {
    UserBlock block;
    std::string word, format, kind, table_hash, rest, set;
    std::istringstream words(lines);
    words >> word >> word >> format >> word >> kind >> word >> block.num_bytes >> word >> block.table_at >>
        block.table_bytes >> table_hash >> word >> rest >> word >> set;
    if (format == kJointFormat) block.format = kJointFormat;
    for (const FileKind each : {FileKind::Manifest, FileKind::Full})
        if (kind == name(each)) block.kind = each;
    block.table_hash = parse_hash(table_hash).value_or(Hash{});
    block.rest = parse_hash(rest).value_or(Hash{});
    block.set = parse_hash(set);
    return block;
}

void check_extents(const UserBlock& block, const std::string& place) {
    const bool inside = block.table_bytes >= 0 && block.table_bytes <= kMaxTableBytes &&
                        block.table_at >= kUserBlockBytes && block.table_at <= block.num_bytes &&
                        block.table_bytes <= block.num_bytes - block.table_at;
    if (!inside) {
        fail_damaged(place, "a table of {} bytes at {} does not lie in a file of {}", block.table_bytes,
                     block.table_at, block.num_bytes);
    }
}

}  // namespace

const char* name(FileKind kind) {
    constexpr const char* kNames[] = {"manifest", "shard", "full"};
    return kNames[static_cast<int>(kind)];
}

std::string to_text(const UserBlock& block) {
    std::string text = fmt::format("{}{}\nkind {}\nbytes {}\ntable {} {} {}\nrest {}\n", kMagic, block.format,
                                   name(block.kind), block.num_bytes, block.table_at, block.table_bytes,
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
    // The search begins at the line break before the check line.
    const size_t at = text.find(fmt::format("\n{}", kCheckKey));
    const std::string lines(text.substr(0, at == text.npos ? 0 : at + 1));
    const std::optional<Hash> stored =
        at == text.npos ? std::nullopt : parse_hash(text.substr(lines.size() + kCheckKey.size(), kHexDigits));
    const Hash found = hash_of(lines);
    const std::string_view format = text.substr(kMagic.size(), text.find('\n') - kMagic.size());
    const bool is_version = format.find_first_not_of("0123456789.") == format.npos;
    if (format != kFormat && format != kJointFormat && (stored == found || (at == text.npos && is_version))) {
        throw UserError(
            "{} is of checkpoint format {}, but this program reads {} and {}; use the version that wrote it, "
            "or a newer one",
            place, format, kFormat, kJointFormat);
    }
    if (!stored) fail_damaged(place, "it has no check line");
    if (*stored != found)
        fail_damaged(place, "its check says {}, and its lines give {}", stored->hex(), found.hex());
    UserBlock block = read_lines(lines);
    block.check = found;
    if (to_text(block) != text)
        fail_damaged(place, "its lines are not those of a {}, or other bytes follow", name(block.kind));
    const bool has_set = block.kind == FileKind::Shard;
    if (block.set.has_value() != has_set)
        fail_damaged(place, "a {} {} a line 'set'", name(block.kind), has_set ? "has" : "does not have");
    if (block.format == kJointFormat && block.kind != FileKind::Manifest)
        fail_damaged(place, "a {} is of format {}, not {}", name(block.kind), kFormat, kJointFormat);
    check_extents(block, place);
    return block;
}

}  // namespace argosy::checkpoint
