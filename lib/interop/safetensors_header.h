// The header of a safetensors file: which tensors it holds, and where. Text in, table out, and back; no
// files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace argosy::interop {

/// The length of the header, before it.
inline constexpr int64_t kSafetensorsLengthBytes = 8;
/// The longest header that the format allows.
inline constexpr int64_t kMostSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
    checkpoint::TensorInfo info;
    int64_t at = 0;  // bytes from the first one after the header
    bool operator==(const SafetensorsEntry&) const = default;
};

/// Trusts nothing: whatever the text is, the result is a table whose tensors cover `data_bytes` exactly, in
/// the order of their bytes, or a UserError that names `place`, tensor and what is wrong.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                                       const std::string& place);

struct SafetensorsLayout {
    std::string start;        // length and header, with which the file begins
    std::vector<int64_t> at;  // of each tensor, from the file's start
    int64_t file_bytes = 0;
};

/// As the safetensors package does it: wide types first, then by name; the header padded to a multiple of 8
/// bytes.
SafetensorsLayout lay_out_safetensors(const std::vector<checkpoint::TensorInfo>& tensors);

}  // namespace argosy::interop
