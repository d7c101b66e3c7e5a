// One configuration value between its text and a member of JobConfig. Choices are stored as their names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/duration.h"

namespace argosy::config {

enum class ValueType { Boolean, Integer, Number, String, Choice, Duration, IntegerList, ChoiceList };

/// std::monostate: unset, or a value that no key accepts.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Duration, std::vector<int64_t>,
                           std::vector<std::string>>;

bool is_set(const Value& value);

/// "an integer"; used in messages.
std::string_view type_name(ValueType type);

/// Parses a word of the command line as a value of `type`; unset if that fails.
Value value_from_word(ValueType type, std::string_view word);

/// Converts `value` to `type`: an integer becomes a number where a number is expected, an integer or text
/// becomes a duration, and an empty list becomes an empty list of any type. Unset if it does not fit.
Value value_as(ValueType type, const Value& value);

/// The TOML spelling, which reads back as the same value: doubles are printed with all digits. REQUIRES:
/// `value` is set.
std::string toml_text(const Value& value);

}  // namespace argosy::config
