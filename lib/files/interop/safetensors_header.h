// The header of a safetensors file, which lists the tensors of the file and their offsets. Converts the
// header between text and table, without access to files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace argosy::interop {

/// Bytes of the length field before the header.
inline constexpr int64_t kSafetensorsLengthBytes = 8;
/// The maximum length that the format allows for a header, in bytes.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
    checkpoint::TensorInfo info;
    int64_t at = 0;  // offset in bytes from the end of the header
    bool operator==(const SafetensorsEntry&) const = default;
};

/// Trusts no input: any text gives either a table whose tensors cover `data_bytes` exactly, in the order of
/// their bytes, or a UserError that names `place`, tensor and fault.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                                       const std::string& place);

struct SafetensorsLayout {
    std::string start;        // length field and header, the first bytes of the file
    std::vector<int64_t> at;  // offset of each tensor from the file's start
};

/// Lays out a file like the safetensors package: tensors are sorted by type, wide types first, then by name,
/// and the header is padded to a multiple of 8 bytes.
SafetensorsLayout lay_out_safetensors(const std::vector<checkpoint::TensorInfo>& tensors);

}  // namespace argosy::interop
