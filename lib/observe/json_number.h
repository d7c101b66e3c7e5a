// Numbers in the JSON lines that other tools read.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace argosy::observe {

using Json = nlohmann::ordered_json;

/// Null for infinity and NaN, which JSON lacks, and for an unknown value.
inline Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
inline Json json_number(const std::optional<double>& value) {
    return value ? json_number(*value) : Json(nullptr);
}

}  // namespace argosy::observe
