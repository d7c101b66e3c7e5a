#include "pytorch/zip_writer.h"

#include <zlib.h>

#include <string_view>

namespace argosy::pytorch {
namespace {

constexpr uint64_t kWide = 0xFFFFFFFF;  // the number is in the extra field
constexpr int64_t kAlignment = 64;

class Record {
  public:
    Record& number(uint64_t value, int width) {
        for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> 8 * i);
        return *this;
    }
    Record& text(std::string_view text) {
        bytes_ += text;
        return *this;
    }
    const std::string& bytes() const { return bytes_; }

  private:
    std::string bytes_;
};

class ZipWriter {
  public:
    void begin(const std::string& name, uint64_t num_bytes, uint32_t crc) {
        const uint64_t at = head_.size();
        const bool is_wide = num_bytes >= kWide || at >= kWide;
        Record wide;
        if (is_wide) wide.number(1, 2).number(16, 2).number(num_bytes, 8).number(num_bytes, 8);
        const Record common = common_fields(name, is_wide ? kWide : num_bytes, crc);
        // A field of the kind that torch pads with fills up to the alignment.
        constexpr size_t kRecordBytes = 30, kFieldBytes = 4;
        const size_t end = at + kRecordBytes + name.size() + wide.bytes().size() + kFieldBytes;
        const std::string padding((kAlignment - end % kAlignment) % kAlignment, 'Z');
        Record local;
        local.number(0x04034B50, 4).text(common.bytes());
        local.number(wide.bytes().size() + kFieldBytes + padding.size(), 2).text(name).text(wide.bytes());
        local.text("FB").number(padding.size(), 2).text(padding);
        head_ += local.bytes();

        if (is_wide)
            wide =
                Record().number(1, 2).number(24, 2).number(num_bytes, 8).number(num_bytes, 8).number(at, 8);
        Record entry;
        entry.number(0x02014B50, 4).number(45, 2).text(common.bytes()).number(wide.bytes().size(), 2);
        entry.number(0, 2).number(0, 2).number(0, 2).number(0, 4).number(is_wide ? kWide : at, 4);
        table_ += entry.text(name).text(wide.bytes()).bytes();
        ++num_entries_;
    }

    void add(const std::string& name, const std::string& bytes) {
        begin(name, bytes.size(), crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
        head_ += bytes;
    }

    ZipFrame finish(uint64_t last_bytes) const {
        const uint64_t table_at = head_.size() + last_bytes, end_at = table_at + table_.size();
        Record end;
        end.text(table_);
        if (end_at >= kWide) {
            end.number(0x06064B50, 4).number(44, 8).number(45, 2).number(45, 2).number(0, 4).number(0, 4);
            end.number(num_entries_, 8).number(num_entries_, 8).number(table_.size(), 8).number(table_at, 8);
            end.number(0x07064B50, 4).number(0, 4).number(end_at, 8).number(1, 4);
        }
        end.number(0x06054B50, 4).number(0, 2).number(0, 2).number(num_entries_, 2).number(num_entries_, 2);
        end.number(table_.size(), 4).number(end_at >= kWide ? kWide : table_at, 4).number(0, 2);
        return {.head = head_, .tail = end.bytes()};
    }

  private:
    /// The fields that a record before the data and one of the table have alike, up to the name's length.
    static Record common_fields(const std::string& name, uint64_t num_bytes, uint32_t crc) {
        constexpr uint64_t kFirstDay = 1 << 5 | 1;  // 1 January 1980
        Record common;
        common.number(45, 2).number(0x800, 2).number(0, 2).number(0, 2).number(kFirstDay, 2);
        return common.number(crc, 4).number(num_bytes, 4).number(num_bytes, 4).number(name.size(), 2);
    }

    std::string head_, table_;
    uint64_t num_entries_ = 0;
};

}  // namespace

ZipFrame frame_zip(std::span<const std::pair<std::string, std::string>> small,
                   const std::optional<LastEntry>& last) {
    ZipWriter writer;
    for (const auto& [name, bytes] : small) writer.add(name, bytes);
    if (last) writer.begin(last->name, last->num_bytes, last->crc);
    return writer.finish(last ? last->num_bytes : 0);
}

}  // namespace argosy::pytorch
