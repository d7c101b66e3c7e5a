// model.safetensors.index.json maps each tensor of a model in several files to its file. Converts between
// text and table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace argosy::interop {

/// Maps tensor to file. UserError for files outside the index's folder, duplicate keys, and any other text
/// that is not an index.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& place);

std::string safetensors_index_json(const std::map<std::string, std::string>& file_of_tensor,
                                   int64_t total_bytes);

}  // namespace argosy::interop
