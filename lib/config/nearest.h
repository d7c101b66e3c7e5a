// Guesses the intended key of a misspelt one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::config {

/// The number of letters to insert, remove or replace to turn one word into the other.
int edit_distance(std::string_view one, std::string_view other);

/// The candidate ("section.name", or a bare name) nearest to `key`; the right name in a wrong section counts
/// as near. Empty if none is near.
std::string nearest(std::string_view key, const std::vector<std::string>& candidates);

}  // namespace argosy::config
