// The form of a file that a user named by mistake.
#pragma once

#include <string>
#include <string_view>

namespace argosy {

/// The kind of bytes that are no text, and of no form that is known here.
inline constexpr std::string_view kBinaryFile = "a binary file";

/// Returns what a file is, for a message to a user who named a wrong one: "a GGUF model". `first` has its
/// first bytes. Empty for text in UTF-8, and for bytes that may be text in an encoding of one byte.
std::string kind_of_content(std::string_view first);

}  // namespace argosy
