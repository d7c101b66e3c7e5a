// One configuration value between its text and a member of JobConfig. Choices are stored as their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace argosy::config {

// A duration in its text form: "90m", "11h30m", "2d", or seconds without a unit.

struct Duration {
    int64_t seconds = 0;
    bool operator==(const Duration&) const = default;
};

/// Numbers with the units d, h, m and s, each at most once and in this order, without spaces; or one number
/// of seconds.
std::optional<Duration> duration_from(std::string_view text);

/// The shortest text that reads back as the same duration: "11h30m".
std::string duration_text(Duration duration);

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
