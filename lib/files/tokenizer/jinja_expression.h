// The expressions of Jinja, which jinja.cpp alone uses.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja.h"

namespace argosy::tokenizer {

/// The work of a rendering, and its limit (JinjaTemplate::render).
struct JinjaBudget {
    int64_t limit, spent = 0;
};

/// The variables of a loop or of the template, which hide those of the scope around it.
struct JinjaScope {
    JinjaVariables variables;
    const JinjaScope* outer = nullptr;
    JinjaBudget* budget = nullptr;

    JinjaValue find(const std::string& name) const;
    /// Throws UserError, which begins with `place`, if the rendering's budget is spent.
    void spend(int64_t amount, const std::string& place) const;
};

using JinjaExpression = std::function<JinjaValue(const JinjaScope&)>;

/// The arguments of a filter, a method or a function.
struct JinjaArguments {
    std::vector<JinjaValue> values;
    std::map<std::string, JinjaValue> named;
};

/// Reads the inside of a tag from left to right. `place` is the tag's file and line, with which errors begin.
class JinjaReader {
  public:
    JinjaReader(std::string_view text, std::string place);

    [[noreturn]] void refuse(const std::string& what) const;
    bool at_end() const { return next_ == tokens_.size(); }
    /// Whether the next token is this one, which is then taken.
    bool take(std::string_view token);
    void expect(std::string_view token);
    std::string name();
    /// A condition a if b else c may follow the operators only where `with_condition`.
    JinjaExpression expression(bool with_condition = true);

  private:
    enum class Kind { Name, Integer, String, Sign };
    struct Token {
        Kind kind;
        std::string text;
    };
    struct Call {
        std::vector<JinjaExpression> values;
        std::map<std::string, JinjaExpression> named;
        JinjaArguments evaluate(const JinjaScope& scope) const;
    };
    using Level = JinjaExpression (JinjaReader::*)();

    void read_tokens(std::string_view text);
    std::string read_string(std::string_view text, size_t& at) const;
    bool is_next(std::string_view token) const;
    bool is_next(Kind kind) const { return !at_end() && tokens_[next_].kind == kind; }

    JinjaExpression disjunction();
    JinjaExpression conjunction();
    JinjaExpression negation();
    JinjaExpression comparison();
    JinjaExpression operations(size_t level);
    JinjaExpression unary(bool with_filter = true);
    JinjaExpression primary();
    JinjaExpression list_until(std::string_view end, std::vector<JinjaExpression> values);
    JinjaExpression postfix(JinjaExpression value);
    JinjaExpression subscript(JinjaExpression value);
    JinjaExpression filtered(JinjaExpression value);
    Call call();

    static constexpr int kMaxDepth = 100;  // of parentheses; with kMaxTokens, so that the stack suffices
    static constexpr size_t kMaxTokens = 2000;

    std::string place_;
    std::vector<Token> tokens_;
    size_t next_ = 0;
    int depth_ = 0;
};

/// Whether `if` takes the value for true.
bool is_true(const JinjaValue& value);
/// The text that `{{ value }}` prints. Nothing for a list or a map, whose text Python would make.
std::optional<OriginText> printed(const JinjaValue& value);

// Each throws UserError, which begins with `place`, for what is not supported.

/// The number of characters and elements in a value with its parts.
int64_t cost_of(const JinjaValue& value, const std::string& place, int depth = 0);
void refuse_object(const JinjaValue& value, const std::string& place);
JinjaValue call_method(const JinjaValue& value, const std::string& name, const JinjaArguments& arguments,
                       const JinjaScope& scope, const std::string& place);
JinjaValue call_function(const std::string& name, const JinjaArguments& arguments, const std::string& place);
JinjaValue apply_filter(const JinjaValue& value, const std::string& name, const JinjaArguments& arguments,
                        const JinjaScope& scope, const std::string& place);
bool passes_test(const JinjaValue& value, const std::string& name, const std::string& place);
/// `sign` is an operator between two values, but for `and` and `or`.
JinjaValue operate(const std::string& sign, const JinjaValue& left, const JinjaValue& right,
                   const JinjaScope& scope, const std::string& place);

}  // namespace argosy::tokenizer
