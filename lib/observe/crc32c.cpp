#include "observe/crc32c.h"

#include <array>

namespace argosy::observe {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;

/// Maps a byte to its effect on the remainder.
constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; ++bit) {
            remainder = remainder >> 1 ^ (remainder & 1 ? kReflectedPolynomial : 0);
        }
        table[byte] = remainder;
    }
    return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
    uint32_t remainder = ~uint32_t{0};
    for (const char byte : bytes) {
        remainder = kTable[(remainder ^ static_cast<unsigned char>(byte)) & 0xff] ^ remainder >> 8;
    }
    return ~remainder;
}

}  // namespace argosy::observe
