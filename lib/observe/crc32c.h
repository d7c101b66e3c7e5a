// The checksum of iSCSI (RFC 3720), SCTP and TFRecord.
#pragma once

#include <cstdint>
#include <string_view>

namespace argosy::observe {

/// CRC-32C: polynomial 0x1edc6f41, bits reflected, start and end inverted. Test value: "123456789" gives
/// 0xe3069283.
uint32_t crc32c(std::string_view bytes);

}  // namespace argosy::observe
