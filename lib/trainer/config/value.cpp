#include "config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace argosy::config {
namespace {

template <class Number>
std::optional<Number> number_from(std::string_view word) {
    Number number{};
    const char* end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    return number;
}

template <class Number>
Value number_from_word(std::string_view word) {
    const auto number = number_from<Number>(word);
    return number ? Value(*number) : Value();
}

Value boolean_from(std::string_view word) {
    return word == "true" || word == "false" ? Value(word == "true") : Value();
}

/// true or false, or a name.
Value switch_from(std::string_view word) {
    const Value boolean = boolean_from(word);
    return is_set(boolean) ? boolean : Value(std::string(word));
}

Value duration_value(std::string_view word) {
    const auto duration = duration_from(word);
    return duration ? Value(*duration) : Value();
}

Value string_from(std::string_view word) { return std::string(word); }

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

std::optional<std::string> name_from(std::string_view text) {
    const bool is_quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
    return std::string(is_quoted ? text.substr(1, text.size() - 2) : text);
}

/// Parses "1,2,3" or, in TOML's spelling, "[1, 2, 3]". `element_from` parses one element, or returns none.
template <class Element>
Value list_from(std::string_view word, std::optional<Element> element_from(std::string_view)) {
    if (word.size() >= 2 && word.front() == '[' && word.back() == ']') word = word.substr(1, word.size() - 2);
    std::vector<Element> list;
    if (trimmed(word).empty()) return list;
    for (;;) {
        const std::size_t comma = word.find(',');
        const auto element = element_from(trimmed(word.substr(0, comma)));
        if (!element) return {};
        list.push_back(*element);
        if (comma == std::string_view::npos) return list;
        word.remove_prefix(comma + 1);
    }
}

Value integers_from(std::string_view word) { return list_from(word, number_from<int64_t>); }
Value names_from(std::string_view word) { return list_from(word, name_from); }

/// The place of the first of `letters` in `text` outside of quotes, or npos.
std::size_t find_unquoted(std::string_view text, std::string_view letters) {
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '"') quoted = !quoted;
        if (!quoted && letters.find(text[at]) != std::string_view::npos) return at;
    }
    return std::string_view::npos;
}

constexpr Column kSourceColumns[] = {{.name = "path", .is_text = true, .required = true}, {.name = "weight"}};
constexpr Column kGroupColumns[] = {
    {.name = "part", .is_text = true, .required = true}, {.name = "lr_factor"}, {.name = "weight_decay"}};

/// Parses "path = a.h5, weight = 2", with or without quotes around texts.
std::optional<Row> row_from(std::string_view text, std::span<const Column> columns) {
    Row row;
    for (bool more = true; more;) {
        const std::size_t comma = find_unquoted(text, ","), equals = find_unquoted(text, "=");
        if (equals >= std::min(comma, text.size())) return {};
        const auto column = std::ranges::find(columns, trimmed(text.substr(0, equals)), &Column::name);
        const std::string_view word = trimmed(text.substr(equals + 1, comma - equals - 1));
        if (column == columns.end() || row.contains(std::string(column->name))) return {};
        auto& cell = row[std::string(column->name)];
        if (column->is_text) {
            const auto name = name_from(word);
            if (!name) return {};
            cell = *name;
        } else {
            const auto number = number_from<double>(word);
            if (!number) return {};
            cell = *number;
        }
        more = comma != std::string_view::npos;
        if (more) text.remove_prefix(comma + 1);
    }
    return row;
}

/// Whether the value is a list of rows with these columns alone, and with those that are required.
bool are_rows(const Value& value, std::span<const Column> columns) {
    const auto* rows = std::get_if<std::vector<Row>>(&value);
    return rows != nullptr && std::ranges::all_of(*rows, [&](const Row& row) {
               const auto is_known = [&](const auto& cell) {
                   const auto column = std::ranges::find(columns, cell.first, &Column::name);
                   return column != columns.end() &&
                          column->is_text == std::holds_alternative<std::string>(cell.second);
               };
               const auto is_given = [&](const Column& column) {
                   return !column.required || row.contains(std::string(column.name));
               };
               return std::ranges::all_of(row, is_known) && std::ranges::all_of(columns, is_given);
           });
}

/// Parses "[{path = a.h5, weight = 2}, {path = b.h5}]".
Value rows_from(std::string_view word, std::span<const Column> columns) {
    if (word.size() < 2 || word.front() != '[' || word.back() != ']') return {};
    word = trimmed(word.substr(1, word.size() - 2));
    std::vector<Row> rows;
    while (!word.empty()) {
        const std::size_t end = find_unquoted(word, "}");
        if (word.front() != '{' || end == std::string_view::npos) return {};
        const auto row = row_from(word.substr(1, end - 1), columns);
        if (!row) return {};
        rows.push_back(*row);
        word = trimmed(word.substr(end + 1));
        if (word.empty()) break;
        if (word.front() != ',' || word.size() == 1) return {};
        word = trimmed(word.substr(1));
    }
    return are_rows(rows, columns) ? Value(rows) : Value();
}

template <const auto& kColumns>
bool holds_rows(const Value& value) {
    return are_rows(value, kColumns);
}

template <const auto& kColumns>
Value rows_with(std::string_view word) {
    return rows_from(word, kColumns);
}

template <class T>
bool holds(const Value& value) {
    return std::holds_alternative<T>(value);
}

bool holds_switch(const Value& value) { return holds<bool>(value) || holds<std::string>(value); }

struct Type {
    ValueType type;
    std::string_view name;
    std::string_view form;  // of a word; {} stands for a range
    bool (*holds)(const Value&);
    Value (*from_word)(std::string_view);
    std::span<const Column> columns = {};  // of the rows, if a value is a list of them
};

constexpr Type kTypes[] = {
    {ValueType::Boolean, "true or false", "true|false", holds<bool>, boolean_from},
    {ValueType::Switch, "true, false or \"auto\"", "true|false|auto", holds_switch, switch_from},
    {ValueType::Integer, "an integer", "integer{}", holds<int64_t>, number_from_word<int64_t>},
    {ValueType::Number, "a number", "number{}", holds<double>, number_from_word<double>},
    {ValueType::String, "a string", "string", holds<std::string>, string_from},
    {ValueType::Choice, "a string", "string", holds<std::string>, string_from},
    {ValueType::Duration, "a duration as 90m, 11h30m, 2d or 3600 (seconds)", "duration{}, as 11h30m",
     holds<Duration>, duration_value},
    {ValueType::IntegerList, "a list of integers", "integers{}, as 4,4,3", holds<std::vector<int64_t>>,
     integers_from},
    {ValueType::ChoiceList, "a list of strings", "strings, as a,b", holds<std::vector<std::string>>,
     names_from},
    {ValueType::Mixture, "a list of sources as {path = \"F.h5\", weight = 2.0}",
     "[{{path=a.h5,weight=2}}, ...]", holds_rows<kSourceColumns>, rows_with<kSourceColumns>, kSourceColumns},
    {ValueType::ParameterGroups, "a list of groups as {part = \"norm\", lr_factor = 0.5, weight_decay = 0.0}",
     "[{{part=norm,lr_factor=0.5}}, ...]", holds_rows<kGroupColumns>, rows_with<kGroupColumns>,
     kGroupColumns},
};

const Type& description_of(ValueType type) {
    const auto* found = std::ranges::find(kTypes, type, &Type::type);
    ARGOSY_CHECK(found != std::end(kTypes), "value type {}", static_cast<int>(type));
    return *found;
}

std::string toml_string(std::string_view text) {
    std::string result = "\"";
    for (const char letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if (letter == '"' || letter == '\\') {
            result += {'\\', letter};
        } else if (code < 0x20 || code == 0x7f) {
            result += fmt::format("\\u{:04x}", code);
        } else {
            result += letter;
        }
    }
    return result + '"';
}

/// fmt prints the shortest digits that read back as the same double, but prints 1.0 as "1", which is an
/// integer in TOML.
std::string number_text(double number) {
    if (std::isnan(number)) return "nan";  // also for a NaN with a sign
    const std::string text = fmt::format("{}", number);
    const bool whole = std::isfinite(number) && text.find_first_of(".e") == std::string::npos;
    return whole ? text + ".0" : text;
}

struct TomlText {
    std::string operator()(std::monostate) const {
        ARGOSY_CHECK(false, "an unset value has no TOML text");
        return {};
    }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return number_text(value); }
    std::string operator()(const std::string& value) const { return toml_string(value); }
    std::string operator()(const Duration& value) const { return toml_string(duration_text(value)); }
    std::string operator()(const std::vector<int64_t>& value) const {
        return fmt::format("[{}]", fmt::join(value, ", "));
    }
    std::string operator()(const std::vector<std::string>& value) const {
        std::vector<std::string> words;
        for (const std::string& word : value) words.push_back(toml_string(word));
        return fmt::format("[{}]", fmt::join(words, ", "));
    }
    std::string operator()(const std::vector<Row>& value) const {
        std::vector<std::string> rows;
        for (const Row& row : value) {
            std::vector<std::string> cells;
            for (const auto& [name, cell] : row)
                cells.push_back(fmt::format("{} = {}", name, std::visit(*this, cell)));
            rows.push_back(fmt::format("{{{}}}", fmt::join(cells, ", ")));
        }
        return fmt::format("[{}]", fmt::join(rows, ", "));
    }
};

struct Unit {
    char letter;
    int64_t seconds;
};
constexpr Unit kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};

// About three centuries: sums and products of such numbers stay far below the maximum of an int64_t.
constexpr int64_t kMaxSeconds = 9'999'999'999;

/// Takes the number at the start of `text`. Returns none if there is no number or it exceeds kMaxSeconds.
std::optional<int64_t> take_number(std::string_view& text) {
    if (text.empty() || text.front() == '-') return std::nullopt;
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number > kMaxSeconds) return std::nullopt;
    text.remove_prefix(rest - text.data());
    return number;
}

}  // namespace

bool is_set(const Value& value) { return !std::holds_alternative<std::monostate>(value); }

std::span<const Column> columns_of(ValueType type) { return description_of(type).columns; }

std::string_view type_name(ValueType type) { return description_of(type).name; }

std::string form_of_words(ValueType type, const std::string& range) {
    return fmt::format(fmt::runtime(description_of(type).form), range.empty() ? "" : " " + range);
}

std::string_view exceeded_range(ValueType type, std::string_view word) {
    const auto exceeds = [&](auto number) {
        const char* const end = word.data() + word.size();
        const auto [rest, error] = std::from_chars(word.data(), end, number);
        return error == std::errc::result_out_of_range && rest == end;
    };
    if (type == ValueType::Integer && exceeds(int64_t{})) return "between -2^63 and 2^63 - 1";
    if (type == ValueType::Number && exceeds(double{})) return "0 or between 1e-307 and 1e308 in size";
    return "";
}

Value value_from_word(ValueType type, std::string_view word) { return description_of(type).from_word(word); }

Value value_as(ValueType type, const Value& value) {
    const auto* integer = std::get_if<int64_t>(&value);
    if (integer && type == ValueType::Number) return static_cast<double>(*integer);
    if (integer && type == ValueType::Duration) return duration_value(std::to_string(*integer));
    const auto* text = std::get_if<std::string>(&value);
    if (text && type == ValueType::Duration) return duration_value(*text);
    const auto* integers = std::get_if<std::vector<int64_t>>(&value);
    if (integers && integers->empty() && type == ValueType::ChoiceList) return std::vector<std::string>();
    if (integers && integers->empty() && !columns_of(type).empty()) return std::vector<Row>();
    return description_of(type).holds(value) ? value : Value();
}

std::string toml_text(const Value& value) { return std::visit(TomlText{}, value); }

std::optional<Duration> duration_from(std::string_view text) {
    Duration sum;
    const Unit* next = std::begin(kUnits);
    bool is_first = true;
    do {
        const auto number = take_number(text);
        if (!number) return std::nullopt;
        if (is_first && text.empty()) return Duration{*number};
        while (next != std::end(kUnits) && !text.starts_with(next->letter)) ++next;
        if (next == std::end(kUnits)) return std::nullopt;
        sum.seconds += *number * next++->seconds;
        text.remove_prefix(1);
        is_first = false;
    } while (!text.empty());
    return sum.seconds <= kMaxSeconds ? std::optional(sum) : std::nullopt;
}

std::string duration_text(Duration duration) {
    std::string text;
    for (const Unit& unit : kUnits) {
        const int64_t count = duration.seconds / unit.seconds;
        if (count > 0) text += fmt::format("{}{}", count, unit.letter);
        duration.seconds %= unit.seconds;
    }
    return text.empty() ? "0s" : text;
}

}  // namespace argosy::config
