// A value between the text of a configuration and a member of JobConfig. Choices are stored as their names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace argosy::config {

// A duration. Examples of its text are "90m", "11h30m", "2d", and seconds without a unit.

struct Duration {
    int64_t seconds = 0;
    bool operator==(const Duration&) const = default;
};

/// Parses numbers with the units d, h, m and s, each at most once and in this order, without spaces; or one
/// number of seconds. Returns none for other text and for durations over three centuries.
std::optional<Duration> duration_from(std::string_view text);

/// Returns a text that reads back as the same duration, with the largest units first: "11h30m".
std::string duration_text(Duration duration);

/// A table in a list of them, such as an entry of data.mixture: the columns that it gives.
using Cell = std::variant<double, std::string>;
using Row = std::map<std::string, Cell>;

/// A column that rows of a type may have, or must have.
struct Column {
    std::string_view name;
    bool is_text = false, required = false;
};

enum class ValueType {
    Boolean,
    Switch,  // a bool, or the string "auto"
    Integer,
    Number,
    String,
    Choice,
    Duration,
    IntegerList,
    ChoiceList,
    Mixture,
    ParameterGroups
};

/// std::monostate stands for an unset value, or for one that no key accepts.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Duration, std::vector<int64_t>,
                           std::vector<std::string>, std::vector<Row>>;

bool is_set(const Value& value);

/// The columns of a type whose values are lists of rows; none for other types.
std::span<const Column> columns_of(ValueType type);

/// Returns the type's name for messages: "an integer".
std::string_view type_name(ValueType type);

/// The words of a type for the help text: "integer >= 1", with the range ">= 1" if it is not empty.
std::string form_of_words(ValueType type, const std::string& range);

/// If `word` is a number that is too large or too small for `type`: the range of the type, for messages; else
/// empty.
std::string_view exceeded_range(ValueType type, std::string_view word);

/// Parses a word of the command line as a value of `type`. Returns an unset value if that fails.
Value value_from_word(ValueType type, std::string_view word);

/// Converts `value` to `type`: an integer becomes a number or a duration, text becomes a duration, and an
/// empty list becomes an empty list of any type. Returns an unset value if `value` does not fit.
Value value_as(ValueType type, const Value& value);

/// Returns the TOML spelling, which reads back as the same value; a double has as many digits as that needs.
/// REQUIRES: `value` is set.
std::string toml_text(const Value& value);

}  // namespace argosy::config
