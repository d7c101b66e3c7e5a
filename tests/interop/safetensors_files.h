// Safetensors files made by hand, sound and not.
#pragma once

#include <cstdint>
#include <string>

namespace argosy::interop {

/// A file of that header and that many bytes of data, which count up from 0.
inline std::string safetensors_bytes(const std::string& header, int64_t data_bytes) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    bytes += header;
    for (int64_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
    return bytes;
}

}  // namespace argosy::interop
