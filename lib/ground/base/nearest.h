// The word that a user meant by an unknown one, and the form of a file that a user named by mistake.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy {

/// The number of letters to insert, remove or replace, and of neighbours to swap, to turn one word into the
/// other.
int edit_distance(std::string_view one, std::string_view other);

/// The candidate ("section.name", or a bare name) nearest to `word`; the right name in a wrong section counts
/// as near. Empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns what a file is, for a message to a user who named a wrong one: "a GGUF model". `first` has its
/// first bytes. Empty for text in UTF-8, and for bytes that may be text in an encoding of one byte.
std::string kind_of_content(std::string_view first);

}  // namespace argosy
