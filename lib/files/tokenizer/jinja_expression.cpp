#include "tokenizer/jinja_expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

using ValueKind = JinjaValue::Kind;

bool begins_name(char byte) { return std::isalpha(static_cast<unsigned char>(byte)) || byte == '_'; }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

std::string plain_key(const JinjaValue& key) {
    std::string bytes;
    for (const char32_t character : *key.text) append_utf8(bytes, character % kOrigin);
    return bytes;
}

/// value[key], which is undefined if there is no such key.
JinjaValue element(const JinjaValue& value, const JinjaValue& key, const std::string& place) {
    if (value.kind == ValueKind::Undefined || value.kind == ValueKind::None)
        throw UserError("{}: the chat template reads a part of a value that is not there", place);
    if ((value.kind == ValueKind::Map || value.kind == ValueKind::Object) && key.kind == ValueKind::String) {
        const auto found = value.map->find(plain_key(key));
        return found == value.map->end() ? JinjaValue() : found->second;
    }
    if (key.kind != ValueKind::Int || (value.kind != ValueKind::List && value.kind != ValueKind::String))
        return {};
    const int64_t size = value.kind == ValueKind::List ? std::ssize(*value.list) : std::ssize(*value.text);
    const int64_t at = key.number < 0 ? key.number + size : key.number;
    if (at < 0 || at >= size) return {};
    if (value.kind == ValueKind::List) return (*value.list)[at];
    return value.text->substr(at, 1);
}

/// The bounds of value[begin:end:step], each of them perhaps absent.
struct SliceBounds {
    std::optional<int64_t> begin, end, step;
};

template <class Sequence>
Sequence slice(const Sequence& whole, const SliceBounds& bounds) {
    const int64_t size = std::ssize(whole);
    const int64_t step = std::clamp(bounds.step.value_or(1), -size - 1, size + 1);
    const auto place_of = [&](std::optional<int64_t> bound, int64_t absent) {
        if (!bound) return absent;
        const int64_t at = *bound < 0 ? *bound + size : *bound;
        return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    const int64_t begin = place_of(bounds.begin, step > 0 ? 0 : size - 1);
    const int64_t end = place_of(bounds.end, step > 0 ? size : -1);
    Sequence part;
    for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) part.push_back(whole[at]);
    return part;
}

JinjaExpression constant(JinjaValue value) {
    return [value = std::move(value)](const JinjaScope&) { return value; };
}

}  // namespace

JinjaValue JinjaScope::find(const std::string& name) const {
    for (const JinjaScope* scope = this; scope != nullptr; scope = scope->outer) {
        const auto found = scope->variables.find(name);
        if (found != scope->variables.end()) return found->second;
    }
    return {};
}

JinjaReader::JinjaReader(std::string_view text, std::string place) : place_(std::move(place)) {
    read_tokens(text);
}

void JinjaReader::refuse(const std::string& what) const { throw UserError("{}: {}", place_, what); }

void JinjaReader::read_tokens(std::string_view text) {
    constexpr std::array<std::string_view, 6> kLongSigns = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        if (std::isspace(static_cast<unsigned char>(text[at]))) {
            ++at;
        } else if (begins_name(text[at])) {
            while (at < text.size() && (begins_name(text[at]) || is_digit(text[at]))) ++at;
            tokens_.push_back({Kind::Name, std::string(text.substr(begin, at - begin))});
        } else if (is_digit(text[at])) {
            while (at < text.size() && is_digit(text[at])) ++at;
            tokens_.push_back({Kind::Integer, std::string(text.substr(begin, at - begin))});
        } else if (text[at] == '"' || text[at] == '\'') {
            tokens_.push_back({Kind::String, read_string(text, at)});
        } else {
            const auto sign = std::ranges::find(kLongSigns, text.substr(at, 2));
            at += sign == kLongSigns.end() ? 1 : 2;
            tokens_.push_back({Kind::Sign, std::string(text.substr(begin, at - begin))});
        }
    }
}

std::string JinjaReader::read_string(std::string_view text, size_t& at) const {
    constexpr std::string_view kEscapes = "n\nt\tr\r\\\\''\"\"";
    std::string value;
    const char quote = text[at++];
    for (; at < text.size() && text[at] != quote; ++at) {
        if (text[at] != '\\' || at + 1 == text.size()) {
            value += text[at];
            continue;
        }
        const char escaped = text[++at];
        size_t pair = 0;
        while (pair < kEscapes.size() && kEscapes[pair] != escaped) pair += 2;
        if (pair < kEscapes.size()) {
            value += kEscapes[pair + 1];
        } else if (escaped == 'u' && at + 4 < text.size()) {
            uint32_t code = 0;
            const char* digits = text.data() + at + 1;
            if (std::from_chars(digits, digits + 4, code, 16).ptr != digits + 4)
                refuse("\\u needs four digits");
            append_utf8(value, code);
            at += 4;
        } else {
            refuse(fmt::format("the escape \\{} is not supported", escaped));
        }
    }
    if (at == text.size()) refuse("a string has no end");
    ++at;
    return value;
}

bool JinjaReader::is_next(std::string_view token) const {
    return !at_end() && tokens_[next_].kind != Kind::String && tokens_[next_].text == token;
}

bool JinjaReader::take(std::string_view token) {
    const bool taken = is_next(token);
    next_ += taken;
    return taken;
}

void JinjaReader::expect(std::string_view token) {
    if (take(token)) return;
    refuse(fmt::format("{} must be {}", at_end() ? "the end" : shown(tokens_[next_].text), shown(token)));
}

std::string JinjaReader::name() {
    if (!is_next(Kind::Name)) refuse("a name is missing");
    return tokens_[next_++].text;
}

JinjaExpression JinjaReader::expression(bool with_condition) {
    if (++depth_ > kMaxDepth || tokens_.size() > kMaxTokens) refuse("the expression is too long or too deep");
    JinjaExpression value = disjunction();
    while (with_condition && take("if")) {
        const JinjaExpression condition = disjunction();
        const JinjaExpression other = take("else") ? expression() : constant({});
        value = [value = std::move(value), condition, other](const JinjaScope& scope) {
            return is_true(condition(scope)) ? value(scope) : other(scope);
        };
    }
    --depth_;
    return value;
}

JinjaExpression JinjaReader::disjunction() {
    JinjaExpression left = conjunction();
    while (take("or")) {
        left = [left = std::move(left), right = conjunction()](const JinjaScope& scope) {
            const JinjaValue value = left(scope);
            return is_true(value) ? value : right(scope);
        };
    }
    return left;
}

JinjaExpression JinjaReader::conjunction() {
    JinjaExpression left = negation();
    while (take("and")) {
        left = [left = std::move(left), right = negation()](const JinjaScope& scope) {
            const JinjaValue value = left(scope);
            return is_true(value) ? right(scope) : value;
        };
    }
    return left;
}

JinjaExpression JinjaReader::negation() {
    if (!take("not")) return comparison();
    return [value = negation()](const JinjaScope& scope) { return JinjaValue(!is_true(value(scope))); };
}

JinjaExpression JinjaReader::comparison() {
    JinjaExpression left = operations(0);
    for (int num_compared = 0;; ++num_compared) {
        std::string sign;
        const bool negated = is_next("not");
        if (negated) ++next_;
        for (const char* one : {"==", "!=", "<=", ">=", "<", ">", "in"})
            if (sign.empty() && take(one)) sign = one;
        if (sign.empty()) {
            if (negated) --next_;
            return left;
        }
        if (num_compared > 0) refuse("a chain of comparisons is not supported");
        left = [left = std::move(left), right = operations(0), sign, negated,
                place = place_](const JinjaScope& scope) {
            const JinjaValue value = operate(sign, left(scope), right(scope), scope, place);
            return negated ? JinjaValue(!is_true(value)) : value;
        };
    }
}

/// The operators that bind more than comparisons, from loose to tight.
JinjaExpression JinjaReader::operations(size_t level) {
    static const std::array<std::vector<const char*>, 3> kLevels = {{{"+", "-"}, {"~"}, {"*", "//", "%"}}};
    if (level == kLevels.size()) return unary();
    JinjaExpression left = operations(level + 1);
    for (;;) {
        const auto& signs = kLevels[level];
        const auto sign = std::ranges::find_if(signs, [&](const char* one) { return take(one); });
        if (sign == signs.end()) return left;
        left = [left = std::move(left), right = operations(level + 1), sign = std::string(*sign),
                place = place_](const JinjaScope& scope) {
            return operate(sign, left(scope), right(scope), scope, place);
        };
    }
}

JinjaExpression JinjaReader::unary(bool with_filter) {
    JinjaExpression value;
    if (take("-")) {
        value = [positive = unary(false), place = place_](const JinjaScope& scope) {
            return operate("-", JinjaValue(int64_t{0}), positive(scope), scope, place);
        };
    } else {
        value = postfix(primary());
    }
    return with_filter ? filtered(value) : value;
}

JinjaExpression JinjaReader::primary() {
    if (take("(")) {
        if (take(")")) return constant(std::vector<JinjaValue>());
        JinjaExpression value = expression();
        if (take(")")) return value;
        expect(",");
        return list_until(")", {std::move(value)});
    }
    if (take("[")) return list_until("]", {});
    if (at_end()) refuse("a value is missing");
    const Token token = tokens_[next_++];
    if (token.kind == Kind::String) {
        std::string text = token.text;
        while (is_next(Kind::String)) text += tokens_[next_++].text;
        return constant(with_origin(text));
    }
    if (token.kind == Kind::Integer && token.text.size() < 19)
        return constant(static_cast<int64_t>(std::stoll(token.text)));
    if (token.kind != Kind::Name) refuse(fmt::format("{} is not supported here", shown(token.text)));
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant(JinjaValue::none());
    if (!is_next("(")) return [name = token.text](const JinjaScope& scope) { return scope.find(name); };
    return [name = token.text, arguments = call(), place = place_](const JinjaScope& scope) {
        return call_function(name, arguments.evaluate(scope), place);
    };
}

/// `values` are the first elements, which have been read.
JinjaExpression JinjaReader::list_until(std::string_view end, std::vector<JinjaExpression> values) {
    while (!take(end)) {
        values.push_back(expression());
        if (!is_next(end)) expect(",");
    }
    return [values, place = place_](const JinjaScope& scope) {
        std::vector<JinjaValue> list;
        for (const JinjaExpression& value : values) refuse_object(list.emplace_back(value(scope)), place);
        const JinjaValue whole(std::move(list));
        scope.spend(cost_of(whole, place), place);
        return whole;
    };
}

JinjaExpression JinjaReader::postfix(JinjaExpression value) {
    for (;;) {
        if (take("[")) {
            value = subscript(value);
        } else if (take(".")) {
            const std::string member = name();
            if (is_next("(")) {
                value = [value = std::move(value), member, arguments = call(),
                         place = place_](const JinjaScope& scope) {
                    return call_method(value(scope), member, arguments.evaluate(scope), scope, place);
                };
            } else {
                value = [value = std::move(value), key = JinjaValue(with_origin(member)), place = place_](
                            const JinjaScope& scope) { return element(value(scope), key, place); };
            }
        } else {
            return value;
        }
    }
}

JinjaExpression JinjaReader::subscript(JinjaExpression value) {
    std::array<JinjaExpression, 3> bounds;
    size_t num_bounds = 0;
    while (!is_next("]") && num_bounds < bounds.size()) {
        if (!is_next(":")) bounds[num_bounds] = expression();
        if (!take(":")) break;
        ++num_bounds;
    }
    const bool is_slice = num_bounds > 0;
    expect("]");
    if (!is_slice && !bounds[0]) refuse("[] is empty");
    if (!is_slice) {
        return [value, key = bounds[0], place = place_](const JinjaScope& scope) {
            return element(value(scope), key(scope), place);
        };
    }
    return [value, bounds, place = place_](const JinjaScope& scope) {
        const auto bound = [&](const JinjaExpression& expression) -> std::optional<int64_t> {
            if (!expression) return std::nullopt;
            const JinjaValue number = expression(scope);
            if (number.kind != JinjaValue::Kind::Int)
                throw UserError("{}: a bound of a slice is not a whole number", place);
            return number.number;
        };
        const SliceBounds range = {bound(bounds[0]), bound(bounds[1]), bound(bounds[2])};
        if (range.step == 0) throw UserError("{}: the step of a slice is 0", place);
        const JinjaValue whole = value(scope);
        scope.spend(whole.list ? std::ssize(*whole.list) : whole.text ? std::ssize(*whole.text) : 0, place);
        if (whole.kind == JinjaValue::Kind::List) return JinjaValue(slice(*whole.list, range));
        if (whole.kind == JinjaValue::Kind::String) return JinjaValue(slice(*whole.text, range));
        throw UserError("{}: only a list or a text has slices", place);
    };
}

JinjaExpression JinjaReader::filtered(JinjaExpression value) {
    for (;;) {
        if (take("|")) {
            const std::string filter = name();
            const Call arguments = is_next("(") ? call() : Call();
            value = [value = std::move(value), filter, arguments, place = place_](const JinjaScope& scope) {
                return apply_filter(value(scope), filter, arguments.evaluate(scope), scope, place);
            };
        } else if (take("is")) {
            const bool negated = take("not");
            value = [value = std::move(value), negated, test = name(),
                     place = place_](const JinjaScope& scope) {
                return JinjaValue(passes_test(value(scope), test, place) != negated);
            };
        } else {
            return value;
        }
    }
}

JinjaReader::Call JinjaReader::call() {
    Call call;
    expect("(");
    while (!take(")")) {
        if (is_next(Kind::Name) && next_ + 1 < tokens_.size() && tokens_[next_ + 1].text == "=" &&
            tokens_[next_ + 1].kind == Kind::Sign) {
            const std::string key = name();
            expect("=");
            call.named[key] = expression();
        } else {
            call.values.push_back(expression());
        }
        if (!is_next(")")) expect(",");
    }
    return call;
}

JinjaArguments JinjaReader::Call::evaluate(const JinjaScope& scope) const {
    JinjaArguments arguments;
    for (const JinjaExpression& value : values) arguments.values.push_back(value(scope));
    for (const auto& [key, value] : named) arguments.named[key] = value(scope);
    return arguments;
}

}  // namespace argosy::tokenizer
