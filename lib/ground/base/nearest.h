// The word that a user meant by an unknown one.
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

}  // namespace argosy
