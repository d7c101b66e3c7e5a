#include "observe/event_record.h"

#include <bit>

#include "observe/crc32c.h"

namespace argosy::observe {
namespace {

/// Field numbers of the messages in TensorBoard's event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
constexpr uint64_t kStatusStart = 1;

/// How a field's value is laid out; the low three bits of its key.
enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <class Unsigned>
std::string little_endian(Unsigned value) {
    std::string bytes;
    for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
    return bytes;
}

/// Seven bits per byte, the lowest first; the high bit means that more bytes follow.
std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
}

std::string key(int field, WireType type) { return varint(static_cast<uint64_t>(field << 3 | type)); }

std::string number(int field, uint64_t value) { return key(field, kVarint) + varint(value); }
std::string number(int field, double value) {
    return key(field, kFixed64) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string number(int field, float value) {
    return key(field, kFixed32) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes(int field, const std::string& value) {
    return key(field, kLengthDelimited) + varint(value.size()) + value;
}

std::string event(EventTime time, const std::string& what) {
    return number(kWallTime, time.wall_seconds) + number(kStep, static_cast<uint64_t>(time.step)) + what;
}

/// TFRecord's masking: rotates and offsets the CRC, because a CRC of data that contains its own CRC is weak.
uint32_t masked_checksum(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xa282ead8; }

}  // namespace

std::string framed(std::string_view data) {
    const std::string length = little_endian(uint64_t{data.size()});
    return length + little_endian(masked_checksum(length)) + std::string(data) +
           little_endian(masked_checksum(data));
}

std::string version_event(EventTime time) { return event(time, bytes(kFileVersion, "brain.Event:2")); }

std::string start_event(EventTime time) {
    return event(time, bytes(kSessionLog, number(kStatus, kStatusStart)));
}

std::string scalars_event(EventTime time, const std::vector<Scalar>& scalars) {
    std::string values;
    for (const Scalar& scalar : scalars) {
        values +=
            bytes(kValue, bytes(kTag, scalar.tag) + number(kSimpleValue, static_cast<float>(scalar.value)));
    }
    return event(time, bytes(kSummary, values));
}

}  // namespace argosy::observe
