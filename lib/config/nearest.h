// Guesses what a misspelt key was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::config {

/// How many letters must be inserted, removed or replaced to turn one word into the other.
int edit_distance(std::string_view one, std::string_view other);

/// The candidate ("section.name", or a bare name) that `key` most likely means: the right name in a wrong
/// section counts as near. Empty where nothing is near.
std::string nearest(std::string_view key, const std::vector<std::string>& candidates);

}  // namespace argosy::config
