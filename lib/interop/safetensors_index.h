// model.safetensors.index.json: which file holds which tensor of a model in several files. Text in, table
// out, and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace argosy::interop {

/// File by tensor. UserError for files that do not lie beside the index, keys that are there twice, and
/// whatever else is no index.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& place);

std::string safetensors_index_json(const std::map<std::string, std::string>& file_of_tensor,
                                   int64_t total_bytes);

}  // namespace argosy::interop
