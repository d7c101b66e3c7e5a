// Operators, filters, tests, methods and functions of Jinja, as in Python.
#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/jinja_expression.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

using ValueKind = JinjaValue::Kind;

constexpr const char* kRemedy =
    "which is not supported. Write {\"tokens\", \"loss_mask\"} records with transformers' "
    "apply_chat_template, or put a chat_template.jinja without it beside the tokenizer";

[[noreturn]] void refuse_unsupported(const std::string& place, const std::string& what) {
    throw UserError("{}: the chat template needs {}, {}", place, what, kRemedy);
}

uint32_t code_of(char32_t character) { return character % kOrigin; }

bool is_same_code(char32_t left, char32_t right) { return code_of(left) == code_of(right); }

std::string plain(const OriginText& text) {
    std::string bytes;
    for (const char32_t character : text) append_utf8(bytes, code_of(character));
    return bytes;
}

bool is_equal(const JinjaValue& left, const JinjaValue& right) {
    const auto is_number = [](ValueKind kind) { return kind == ValueKind::Bool || kind == ValueKind::Int; };
    if (is_number(left.kind) && is_number(right.kind)) return left.number == right.number;
    if (left.kind != right.kind) return false;
    if (left.kind == ValueKind::String) return std::ranges::equal(*left.text, *right.text, is_same_code);
    if (left.kind == ValueKind::List) return std::ranges::equal(*left.list, *right.list, is_equal);
    if (left.kind == ValueKind::Map) {
        return std::ranges::equal(*left.map, *right.map, [](const auto& one, const auto& other) {
            return one.first == other.first && is_equal(one.second, other.second);
        });
    }
    return left.map == right.map;
}

size_t find_text(const OriginText& text, const OriginText& part, size_t from = 0) {
    const auto found = std::search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), part.begin(),
                                   part.end(), is_same_code);
    return found == text.end() && !part.empty() ? OriginText::npos : found - text.begin();
}

bool contains(const JinjaValue& whole, const JinjaValue& part, const std::string& place) {
    if (whole.kind == ValueKind::List)
        return std::ranges::any_of(*whole.list, [&](const auto& value) { return is_equal(value, part); });
    if (part.kind == ValueKind::String && whole.kind == ValueKind::Map)
        return whole.map->contains(plain(*part.text));
    if (part.kind == ValueKind::String && whole.kind == ValueKind::String)
        return find_text(*whole.text, *part.text) != OriginText::npos;
    throw UserError("{}: the chat template looks for something in a value that contains nothing", place);
}

/// The ends of a text that a method strips.
enum class Ends { Left, Right, Both };

/// Without `set`, white space is stripped.
OriginText stripped(const OriginText& text, Ends ends, const OriginText* set) {
    static const CodeTable spaces(python_space_set());
    const auto goes = [&](char32_t character) {
        if (!set) return spaces.contains(code_of(character));
        return std::ranges::any_of(*set, [&](char32_t one) { return is_same_code(one, character); });
    };
    size_t begin = 0, end = text.size();
    while (ends != Ends::Right && begin < end && goes(text[begin])) ++begin;
    while (ends != Ends::Left && begin < end && goes(text[end - 1])) --end;
    return text.substr(begin, end - begin);
}

/// The parts between separators; at most `max_cuts` cuts.
std::vector<JinjaValue> split_at(const OriginText& text, const OriginText& separator, int64_t max_cuts) {
    std::vector<JinjaValue> parts;
    size_t begin = 0;
    for (; max_cuts != 0; --max_cuts) {
        const size_t end = find_text(text, separator, begin);
        if (end == OriginText::npos) break;
        parts.push_back(text.substr(begin, end - begin));
        begin = end + separator.size();
    }
    parts.push_back(text.substr(begin));
    return parts;
}

OriginText replaced(const OriginText& text, const OriginText& from, const OriginText& to,
                    const JinjaScope& scope, const std::string& place) {
    const std::vector<JinjaValue> parts = split_at(text, from, -1);
    scope.spend(std::ssize(parts) * std::ssize(to), place);
    OriginText result = *parts.front().text;
    for (size_t i = 1; i < parts.size(); ++i) result += to + *parts[i].text;
    return result;
}

/// The text of an argument, or null if there are not so many.
const OriginText* text_argument(const JinjaArguments& arguments, size_t i, const std::string& place) {
    if (i >= arguments.values.size()) return nullptr;
    const JinjaValue& value = arguments.values[i];
    if (value.kind != ValueKind::String) refuse_unsupported(place, "an argument that is no text");
    return value.text.get();
}

JinjaValue call_text_method(const OriginText& text, const std::string& name, const JinjaArguments& arguments,
                            const JinjaScope& scope, const std::string& place) {
    const OriginText* first = text_argument(arguments, 0, place);
    const size_t num_arguments = arguments.values.size();
    scope.spend(std::ssize(text) + (first ? std::ssize(*first) : 0), place);
    if (num_arguments <= 1 && name == "strip") return stripped(text, Ends::Both, first);
    if (num_arguments <= 1 && name == "lstrip") return stripped(text, Ends::Left, first);
    if (num_arguments <= 1 && name == "rstrip") return stripped(text, Ends::Right, first);
    if (num_arguments == 1 && !first->empty()) {
        const size_t size = first->size();
        if (name == "startswith") return text.size() >= size && find_text(text.substr(0, size), *first) == 0;
        if (name == "endswith")
            return text.size() >= size && find_text(text.substr(text.size() - size), *first) == 0;
        if (name == "split") return split_at(text, *first, -1);
    }
    if (num_arguments == 2 && !first->empty()) {
        if (name == "split" && arguments.values[1].kind == ValueKind::Int)
            return split_at(text, *first, arguments.values[1].number);
        if (name == "replace")
            return replaced(text, *first, *text_argument(arguments, 1, place), scope, place);
    }
    refuse_unsupported(place, "the method " + name + "() of a text with these arguments");
}

int64_t size_of(const JinjaValue& value, const std::string& place) {
    if (value.kind == ValueKind::String) return std::ssize(*value.text);
    if (value.kind == ValueKind::List) return std::ssize(*value.list);
    if (value.kind == ValueKind::Map) return std::ssize(*value.map);
    throw UserError("{}: the chat template asks for the length of a value without one", place);
}

/// Nothing for another operator, a number beyond 64 bits, and a divisor that is not positive. Quotients round
/// down, as in Python.
std::optional<int64_t> calculated(const std::string& sign, int64_t left, int64_t right) {
    int64_t result = 0;
    if (sign == "+" && !__builtin_add_overflow(left, right, &result)) return result;
    if (sign == "-" && !__builtin_sub_overflow(left, right, &result)) return result;
    if (sign == "*" && !__builtin_mul_overflow(left, right, &result)) return result;
    if ((sign != "%" && sign != "//") || right <= 0) return std::nullopt;
    const bool rounds_up = left % right < 0;
    return sign == "%" ? left % right + (rounds_up ? right : 0) : left / right - rounds_up;
}

}  // namespace

OriginText with_origin(std::string_view text, uint32_t origin) {
    OriginText characters;
    for (size_t at = 0; at < text.size(); at += utf8_size(text[at]))
        characters += utf8_code(text.data() + at) + kOrigin * origin;
    return characters;
}

JinjaValue JinjaValue::none() {
    JinjaValue value;
    value.kind = Kind::None;
    return value;
}

JinjaValue JinjaValue::object(std::map<std::string, JinjaValue> members) {
    JinjaValue value(std::move(members));
    value.kind = Kind::Object;
    return value;
}

void JinjaScope::spend(int64_t amount, const std::string& place) const {
    budget->spent += amount;
    if (budget->spent <= budget->limit) return;
    throw UserError(
        "{}: the chat template has run more than {} statements or characters for these messages, so it may "
        "never end; {}",
        place, budget->limit, "put another chat_template.jinja beside the tokenizer");
}

int64_t cost_of(const JinjaValue& value, const std::string& place, int depth) {
    constexpr int kMaxDepth = 100;  // so that the stack suffices
    if (depth > kMaxDepth) throw UserError("{}: lists of the chat template are too deep", place);
    if (value.kind == ValueKind::String) return std::ssize(*value.text) + 1;
    int64_t cost = 1;
    if (value.kind == ValueKind::List)
        for (const JinjaValue& part : *value.list) cost += cost_of(part, place, depth + 1);
    if (value.kind == ValueKind::Map)
        for (const auto& [key, part] : *value.map) cost += cost_of(part, place, depth + 1);
    return cost;
}

void refuse_object(const JinjaValue& value, const std::string& place) {
    if (value.kind == ValueKind::Object) refuse_unsupported(place, "a namespace or a loop in another value");
}

bool is_true(const JinjaValue& value) {
    switch (value.kind) {
        case ValueKind::Undefined:
        case ValueKind::None:
            return false;
        case ValueKind::String:
            return !value.text->empty();
        case ValueKind::List:
            return !value.list->empty();
        case ValueKind::Map:
            return !value.map->empty();
        case ValueKind::Object:
            return true;
        default:
            return value.number != 0;
    }
}

std::optional<OriginText> printed(const JinjaValue& value) {
    if (value.kind == ValueKind::String) return *value.text;
    if (value.kind == ValueKind::Undefined) return OriginText();
    if (value.kind == ValueKind::None) return with_origin("None");
    if (value.kind == ValueKind::Bool) return with_origin(value.number ? "True" : "False");
    if (value.kind == ValueKind::Int) return with_origin(std::to_string(value.number));
    return std::nullopt;
}

JinjaValue call_method(const JinjaValue& value, const std::string& name, const JinjaArguments& arguments,
                       const JinjaScope& scope, const std::string& place) {
    if (!arguments.named.empty()) refuse_unsupported(place, "named arguments of " + name + "()");
    if (value.kind == ValueKind::String) return call_text_method(*value.text, name, arguments, scope, place);
    const OriginText* key = text_argument(arguments, 0, place);
    if (value.kind == ValueKind::Map && name == "get" && key != nullptr && arguments.values.size() <= 2) {
        const auto found = value.map->find(plain(*key));
        if (found != value.map->end()) return found->second;
        return arguments.values.size() > 1 ? arguments.values[1] : JinjaValue::none();
    }
    refuse_unsupported(place, "the method " + name + "()");
}

JinjaValue call_function(const std::string& name, const JinjaArguments& arguments, const std::string& place) {
    if (name == "namespace" && arguments.values.empty()) {
        for (const auto& [key, value] : arguments.named) refuse_object(value, place);
        return JinjaValue::object(arguments.named);
    }
    if (name == "raise_exception" && arguments.values.size() == 1 && arguments.named.empty())
        throw UserError("the chat template ({}) says: {}", place, plain(*text_argument(arguments, 0, place)));
    refuse_unsupported(place, "the function " + name + "()");
}

JinjaValue apply_filter(const JinjaValue& value, const std::string& name, const JinjaArguments& arguments,
                        const JinjaScope& scope, const std::string& place) {
    if (value.kind == ValueKind::String) scope.spend(std::ssize(*value.text), place);
    if (arguments.values.empty() && arguments.named.empty()) {
        if (name == "length" || name == "count") return size_of(value, place);
        const std::optional<OriginText> text = printed(value);
        if (name == "trim" && text) return stripped(*text, Ends::Both, nullptr);
        if ((name == "string" || name == "safe") && text) return *text;
    }
    refuse_unsupported(place, "the filter " + name);
}

bool passes_test(const JinjaValue& value, const std::string& name, const std::string& place) {
    const ValueKind kind = value.kind;
    const bool has_parts = kind == ValueKind::String || kind == ValueKind::List || kind == ValueKind::Map;
    if (name == "defined") return kind != ValueKind::Undefined;
    if (name == "undefined") return kind == ValueKind::Undefined;
    if (name == "none") return kind == ValueKind::None;
    if (name == "string") return kind == ValueKind::String;
    if (name == "mapping") return kind == ValueKind::Map;
    if (name == "iterable") return has_parts || kind == ValueKind::Undefined;  // Undefined has no elements
    if (name == "sequence") return has_parts || kind == ValueKind::Undefined;
    if (name == "boolean") return kind == ValueKind::Bool;
    if (name == "number") return kind == ValueKind::Bool || kind == ValueKind::Int;
    if (name == "true") return kind == ValueKind::Bool && value.number != 0;
    if (name == "false") return kind == ValueKind::Bool && value.number == 0;
    refuse_unsupported(place, "the test " + name);
}

JinjaValue operate(const std::string& sign, const JinjaValue& left, const JinjaValue& right,
                   const JinjaScope& scope, const std::string& place) {
    scope.spend(cost_of(left, place) + cost_of(right, place), place);
    if (sign == "==") return is_equal(left, right);
    if (sign == "!=") return !is_equal(left, right);
    if (sign == "in") return contains(right, left, place);
    if (sign == "~") {
        const auto one = printed(left), other = printed(right);
        if (one && other) return *one + *other;
    }
    if (left.kind == ValueKind::String && right.kind == ValueKind::String && sign == "+")
        return *left.text + *right.text;
    if (left.kind == ValueKind::List && right.kind == ValueKind::List && sign == "+") {
        std::vector<JinjaValue> both = *left.list;
        both.insert(both.end(), right.list->begin(), right.list->end());
        return both;
    }
    if (left.kind == ValueKind::Int && right.kind == ValueKind::Int) {
        const int64_t one = left.number, other = right.number;
        if (const auto number = calculated(sign, one, other)) return *number;
        if (sign == "<") return one < other;
        if (sign == ">") return one > other;
        if (sign == "<=") return one <= other;
        if (sign == ">=") return one >= other;
    }
    refuse_unsupported(place, "the operator " + sign + " between these values, which Jinja may refuse too");
}

}  // namespace argosy::tokenizer
