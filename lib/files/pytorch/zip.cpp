#include "pytorch/zip.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::pytorch {
namespace {

// Sizes and marks of the records, from PKWARE's APPNOTE.TXT.
constexpr int64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kWideEndBytes = 56;
constexpr uint32_t kLocalMark = 0x04034B50, kEntryMark = 0x02014B50, kEndMark = 0x06054B50;
constexpr uint32_t kLocatorMark = 0x07064B50, kWideEndMark = 0x06064B50;
constexpr int64_t kMaxCommentBytes = 0xFFFF;
constexpr int64_t kMaxTableBytes = int64_t{1} << 30;

/// Little-endian numbers in a text.
uint64_t number(std::string_view bytes, size_t at, size_t width) {
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
}

class ZipTable {
  public:
    ZipTable(const RawFile& file, int64_t offset, int64_t length, const std::string& place)
        : file_(file), offset_(offset), length_(length), place_(place) {
        find_table();
    }

    std::map<std::string, ZipEntry, std::less<>> entries() const {
        std::map<std::string, ZipEntry, std::less<>> found;
        const std::string table = read(table_at_, table_bytes_);
        size_t at = 0;
        for (uint64_t i = 0; i < num_entries_; ++i) {
            if (table.size() - at < kEntryBytes || number(table, at, 4) != kEntryMark) fail("lacks an entry");
            const size_t name_bytes = number(table, at + 28, 2), extra_bytes = number(table, at + 30, 2);
            const size_t num_bytes = kEntryBytes + name_bytes + extra_bytes + number(table, at + 32, 2);
            if (table.size() - at < num_bytes) fail("has an entry that is cut off");
            const std::string_view entry = std::string_view(table).substr(at, num_bytes);
            std::string name(entry.substr(kEntryBytes, name_bytes));
            const ZipEntry place = place_of(entry, name, entry.substr(kEntryBytes + name_bytes, extra_bytes));
            if (!found.emplace(std::move(name), place).second) fail("has two entries of one name");
            at += num_bytes;
        }
        return found;
    }

  private:
    [[noreturn]] void fail(std::string_view fault) const {
        throw DamageError("{} is damaged: its zip, {} bytes at byte {}, {}. Copy it again", place_, length_,
                          offset_, fault);
    }

    /// Bytes [at, at + count) of the zip.
    std::string read(int64_t at, int64_t count) const {
        if (at < 0 || count < 0 || count > length_ || at > length_ - count) fail("lacks a part");
        std::string bytes(count, '\0');
        file_.read_at(offset_ + at, std::as_writable_bytes(std::span(bytes)));
        return bytes;
    }

    /// A number that must not exceed the zip's length.
    int64_t within(uint64_t value) const {
        if (value > static_cast<uint64_t>(length_)) fail("has a number beyond its length");
        return static_cast<int64_t>(value);
    }

    void find_table() {
        if (length_ < kEndBytes) fail("lacks its end");
        int64_t tail_at = length_ - kEndBytes;  // without a comment, as torch writes it
        std::string tail = read(tail_at, kEndBytes);
        size_t at = 0;
        const auto is_end = [&] {
            return number(tail, at, 4) == kEndMark &&
                   at + kEndBytes + number(tail, at + 20, 2) == tail.size();
        };
        if (!is_end()) {
            tail_at = std::max<int64_t>(0, tail_at - kMaxCommentBytes);
            tail = read(tail_at, length_ - tail_at);
            at = tail.size() - kEndBytes;
            while (!is_end()) {
                if (at-- == 0) fail("lacks its end");
            }
        }
        num_entries_ = number(tail, at + 10, 2);
        uint64_t table_bytes = number(tail, at + 12, 4), table_at = number(tail, at + 16, 4);
        const int64_t locator_at = tail_at + static_cast<int64_t>(at) - kLocatorBytes;
        const std::string locator = locator_at >= 0 ? read(locator_at, kLocatorBytes) : std::string();
        if (!locator.empty() && number(locator, 0, 4) == kLocatorMark) {
            const std::string end = read(within(number(locator, 8, 8)), kWideEndBytes);
            if (number(end, 0, 4) != kWideEndMark) fail("lacks its 64-bit end");
            num_entries_ = number(end, 32, 8);
            table_bytes = number(end, 40, 8);
            table_at = number(end, 48, 8);
        }
        table_at_ = within(table_at);
        table_bytes_ = within(table_bytes);
        if (table_bytes_ > kMaxTableBytes) {
            throw UserError("{}: the table of its zip has {} bytes; at most {} are supported", place_,
                            table_bytes_, kMaxTableBytes);
        }
    }

    ZipEntry place_of(std::string_view entry, const std::string& name, std::string_view extra) const {
        const uint64_t flags = number(entry, 8, 2), method = number(entry, 10, 2);
        if (method != 0 || (flags & 1) != 0) {
            throw UserError("{}: {} is {} in its zip; torch.save stores it plainly, so save the file again",
                            place_, shown(name), method != 0 ? "compressed" : "encrypted");
        }
        constexpr uint64_t kWide = 0xFFFFFFFF;  // the number is in the extra field
        uint64_t whole = number(entry, 24, 4), stored = number(entry, 20, 4), at = number(entry, 42, 4);
        std::string_view wide = wide_numbers(extra);
        for (uint64_t* value : {&whole, &stored, &at}) {
            if (*value != kWide) continue;
            if (wide.size() < 8) fail("lacks a 64-bit number");
            *value = number(wide, 0, 8);
            wide.remove_prefix(8);
        }
        if (whole != stored) fail("has an entry of two sizes");
        // The extra field of the record before the data differs from that of the table: it aligns the data.
        const int64_t local_at = within(at);
        const std::string local = read(local_at, kLocalBytes);
        if (number(local, 0, 4) != kLocalMark) fail("has an entry that is not where its table says");
        const int64_t data_at = local_at + kLocalBytes + static_cast<int64_t>(number(local, 26, 2)) +
                                static_cast<int64_t>(number(local, 28, 2));
        const int64_t num_bytes = within(whole);
        if (data_at > length_ - num_bytes) fail("lacks the end of an entry");
        return {.at = offset_ + data_at, .num_bytes = num_bytes};
    }

    /// The numbers of the extra field of 64 bits; empty if there is none.
    std::string_view wide_numbers(std::string_view extra) const {
        while (extra.size() >= 4) {
            const size_t num_bytes = number(extra, 2, 2);
            if (extra.size() - 4 < num_bytes) fail("has an extra field that is cut off");
            if (number(extra, 0, 2) == 1) return extra.substr(4, num_bytes);
            extra.remove_prefix(4 + num_bytes);
        }
        return {};
    }

    const RawFile& file_;
    int64_t offset_, length_;
    const std::string& place_;
    uint64_t num_entries_ = 0;
    int64_t table_at_ = 0, table_bytes_ = 0;
};

}  // namespace

std::map<std::string, ZipEntry, std::less<>> read_zip(const RawFile& file, int64_t offset, int64_t length,
                                                      const std::string& place) {
    return ZipTable(file, offset, length, place).entries();
}

}  // namespace argosy::pytorch
