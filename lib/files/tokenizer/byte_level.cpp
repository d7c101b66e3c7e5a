#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

constexpr uint32_t kFirstOther = 0x100;
constexpr size_t kNumOthers = 68;  // bytes that do not stand for themselves

bool stands_for_itself(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteCharacters {
    ByteCharacters() {
        byte_of.fill(-1);
        uint32_t other = kFirstOther;
        for (uint32_t byte = 0; byte < 256; ++byte) {
            code_of[byte] = stands_for_itself(byte) ? byte : other++;
            byte_of[code_of[byte]] = static_cast<int>(byte);
        }
    }
    std::array<uint32_t, 256> code_of;
    std::array<int, kFirstOther + kNumOthers> byte_of;
};

const ByteCharacters& byte_characters() {
    static const ByteCharacters characters;
    return characters;
}

}  // namespace

std::string characters_of_bytes(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes)
        append_utf8(text, byte_characters().code_of[static_cast<unsigned char>(byte)]);
    return text;
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
    std::string bytes;
    bytes.reserve(text.size());
    for (size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
        const uint32_t code = utf8_code(text.data() + i);
        if (code >= byte_characters().byte_of.size() || byte_characters().byte_of[code] < 0)
            return std::nullopt;
        bytes.push_back(static_cast<char>(byte_characters().byte_of[code]));
    }
    return bytes;
}

}  // namespace argosy::tokenizer
