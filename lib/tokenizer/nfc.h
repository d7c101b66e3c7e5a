// Normalization Form C.
#pragma once

#include <string>
#include <string_view>

namespace argosy::tokenizer {

/// Returns `text` itself if it is in NFC, else `buffer`, filled with its NFC. REQUIRES: valid UTF-8.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace argosy::tokenizer
