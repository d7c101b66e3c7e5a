// Numbers in the JSON lines that people's tools read.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace argosy::observe {

using Json = nlohmann::ordered_json;

/// JSON has no infinity and no NaN: null.
inline Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace argosy::observe
