// Checks of values of a config.json, for the sources that read it. Each throws UserError with file, key and
// value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json_field.h"
#include "model/families.h"
#include "model/model_spec.h"

namespace argosy::model {

// The limits are far above any real model, and keep the number of parameters within an int64_t.
inline constexpr int64_t kMaxLayers = 1 << 16, kMaxWidth = 1 << 20, kMaxTokens = 1 << 30;

/// The types of layers.
inline constexpr const char *kWindowed = "sliding_attention", *kFull = "full_attention";

/// A whole number from 1 to `max`.
int64_t size_of(const JsonField& field, int64_t max, std::optional<int64_t> if_null = {});
double above_zero(const JsonField& field, std::optional<double> if_null = {});
/// Throws unless the value is `only`, the one supported value, or null.
void require(const JsonField& field, const nlohmann::ordered_json& only);
/// Throws if keys have a value, and are neither words of `known` nor accepted.
void refuse_unknown(const JsonField& object, const std::string& known, const AcceptedKeys& accepted);

/// Reads the rotary settings. REQUIRES: `spec` has its heads, its window and its context.
void read_rope(const JsonField& config, const Family& family, const AcceptedKeys& accepted, ModelSpec& spec);

}  // namespace argosy::model
