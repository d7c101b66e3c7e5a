// One configuration value on its way between text and a member of JobConfig. Choices travel as their names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/duration.h"

namespace argosy::config {

enum class ValueType { Boolean, Integer, Number, String, Choice, Duration, IntegerList, ChoiceList };

/// std::monostate: unset, or nothing that any key takes.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Duration, std::vector<int64_t>,
                           std::vector<std::string>>;

bool is_set(const Value& value);

/// "an integer", as it stands in messages.
std::string_view type_name(ValueType type);

/// What `word` of a command line says to a key of this type; unset where it cannot be read as one.
Value value_from_word(ValueType type, std::string_view word);

/// `value` as a key of this type holds it: an integer where a number is wanted becomes one, an integer or
/// text a duration, and a list without elements is one of anything. Unset where it does not fit.
Value value_as(ValueType type, const Value& value);

/// The TOML spelling, which reads back as the same value: doubles are printed in full.
/// REQUIRES: `value` is set.
std::string toml_text(const Value& value);

}  // namespace argosy::config
