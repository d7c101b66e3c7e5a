#include "tokenizer/jinja.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/jinja_expression.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

constexpr std::string_view kJinjaSpaces = " \t\n\r\f\v";

/// The effect of a statement on the loop around it.
enum class Flow { On, Continue, Break };

/// Writes to the rendering, and sets variables of its scope.
using Statement = std::function<Flow(JinjaScope&, OriginText&)>;

Flow do_nothing(JinjaScope&, OriginText&) { return Flow::On; }

/// Jinja reads \r\n and \r as \n.
std::string with_line_feeds(std::string_view source) {
    std::string lines;
    for (size_t at = 0; at < source.size(); ++at) {
        lines += source[at] == '\r' ? '\n' : source[at];
        if (source.substr(at).starts_with("\r\n")) ++at;
    }
    return lines;
}

/// A part of the template's source: text, or the inside of {{ }} or {% %}.
struct SourcePart {
    enum class Kind { Text, Output, Tag } kind;
    std::string text;
    std::string place;
};

/// Cuts a template into its parts, and removes white space beside tags as Jinja does with trim_blocks and
/// lstrip_blocks.
class SourceCutter {
  public:
    SourceCutter(std::string_view source, const std::string& name) : source_(source), name_(name) {
        if (!is_utf8(source)) throw UserError("{} is not UTF-8", name);
        if (source_.ends_with('\n')) source_.remove_suffix(1);
    }

    std::vector<SourcePart> parts() {
        while (at_ < source_.size()) {
            const size_t begin = next_tag();
            add_text(begin);
            at_ = begin;
            if (begin < source_.size()) add_tag(begin);
        }
        return std::move(parts_);
    }

  private:
    size_t next_tag() const {
        size_t at = at_;
        for (;; ++at) {
            at = source_.find('{', at);
            if (at == source_.npos) return source_.size();
            if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != source_.npos)
                return at;
        }
    }

    /// REQUIRES: `at` does not descend.
    std::string place(size_t at) {
        line_ += std::ranges::count(source_.substr(counted_, at - counted_), '\n');
        counted_ = at;
        return fmt::format("{}:{}", name_, line_);
    }

    void add_text(size_t end) {
        std::string_view text = source_.substr(at_, end - at_);
        const char mark = end + 2 < source_.size() ? source_[end + 2] : ' ';
        if (end < source_.size() && mark == '-') {
            text = text.substr(0, text.find_last_not_of(kJinjaSpaces) + 1);
        } else if (end < source_.size() && mark != '+' && source_[end + 1] != '{') {
            const size_t line = text.rfind('\n') + 1;
            const bool begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
            if (begins_line && text.find_first_not_of(kJinjaSpaces, line) == text.npos)
                text = text.substr(0, line);
        }
        if (!text.empty()) parts_.push_back({SourcePart::Kind::Text, std::string(text), place(at_)});
    }

    /// Returns the place of the tag's closing mark; a string may contain the same characters.
    size_t end_of_tag(size_t begin, std::string_view mark) {
        char quote = 0;
        for (size_t at = begin + 2; at < source_.size(); ++at) {
            const char byte = source_[at];
            if (quote == 0 && source_.substr(at).starts_with(mark)) return at;
            if (mark == "#}") continue;
            if (quote != 0 && byte == '\\') {
                ++at;
            } else if (quote != 0) {
                if (byte == quote) quote = 0;
            } else if (byte == '"' || byte == '\'') {
                quote = byte;
            }
        }
        throw UserError("{}: a tag of the chat template has no end", place(begin));
    }

    void add_tag(size_t begin) {
        const bool is_output = source_[begin + 1] == '{', is_comment = source_[begin + 1] == '#';
        const size_t end = end_of_tag(begin, is_output ? "}}" : is_comment ? "#}" : "%}");
        std::string_view inside = source_.substr(begin + 2, end - begin - 2);
        if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
        const bool strips = inside.ends_with('-'), keeps = inside.ends_with('+');
        if (strips || keeps) inside.remove_suffix(1);
        at_ = end + 2;
        if (strips) {
            at_ = std::min(source_.find_first_not_of(kJinjaSpaces, at_), source_.size());
        } else if (!is_output && !keeps && source_.substr(at_).starts_with('\n')) {
            ++at_;
        }
        if (is_comment) return;
        parts_.push_back({is_output ? SourcePart::Kind::Output : SourcePart::Kind::Tag, std::string(inside),
                          place(begin)});
    }

    std::string_view source_;
    const std::string& name_;
    std::vector<SourcePart> parts_;
    size_t at_ = 0, counted_ = 0;  // line_ is that of counted_
    std::ptrdiff_t line_ = 1;
};

/// Reads an expression. One that cannot be read is refused when a rendering comes to it.
JinjaExpression expression_of(JinjaReader& reader, bool is_last, bool with_condition = true) {
    try {
        JinjaExpression expression = reader.expression(with_condition);
        if (is_last && !reader.at_end()) reader.refuse("an operator or this syntax is not supported");
        return expression;
    } catch (const UserError& error) {
        return [what = std::string(error.what())](const JinjaScope&) -> JinjaValue {
            throw UserError("the chat template cannot be read: {}", what);
        };
    }
}

JinjaValue loop_value(const std::vector<JinjaValue>& list, size_t at) {
    const auto number = [](size_t value) { return JinjaValue(static_cast<int64_t>(value)); };
    std::map<std::string, JinjaValue> loop = {{"index0", number(at)},
                                              {"index", number(at + 1)},
                                              {"revindex0", number(list.size() - at - 1)},
                                              {"revindex", number(list.size() - at)},
                                              {"length", number(list.size())},
                                              {"depth", number(1)},  // recursive loops are not supported
                                              {"depth0", number(0)},
                                              {"first", JinjaValue(at == 0)},
                                              {"last", JinjaValue(at + 1 == list.size())}};
    if (at > 0) loop["previtem"] = list[at - 1];
    if (at + 1 < list.size()) loop["nextitem"] = list[at + 1];
    return JinjaValue::object(std::move(loop));
}

/// Makes statements of the parts.
class BlockReader {
  public:
    explicit BlockReader(std::vector<SourcePart> parts) : parts_(std::move(parts)) {}

    Statement whole() {
        Statement statement = statements_until({});
        if (next_ < parts_.size()) refuse_tag(parts_[next_]);
        return statement;
    }

  private:
    [[noreturn]] static void refuse_tag(const SourcePart& part) {
        throw UserError("{}: the tag {} of the chat template has no begin or is not supported", part.place,
                        shown(part.text));
    }

    static std::string keyword(const SourcePart& part) {
        const size_t begin = std::min(part.text.find_first_not_of(kJinjaSpaces), part.text.size());
        const auto is_letter = [](unsigned char byte) { return std::isalnum(byte) || byte == '_'; };
        const auto first = part.text.begin() + static_cast<std::ptrdiff_t>(begin);
        return {first, std::find_if_not(first, part.text.end(), is_letter)};
    }

    void go_deeper() {
        constexpr int kMaxDepth = 100;  // so that the stack suffices
        if (++depth_ <= kMaxDepth) return;
        throw UserError("{}: blocks of the chat template are more than {} deep", parts_[next_ - 1].place,
                        kMaxDepth);
    }

    /// The statements before a tag with one of these keywords, or before the end of the template.
    Statement statements_until(std::initializer_list<std::string_view> ends) {
        go_deeper();
        std::vector<Statement> all;
        const size_t begin = next_;
        for (; next_ < parts_.size(); ++next_) {
            const SourcePart& part = parts_[next_];
            if (part.kind == SourcePart::Kind::Text) {
                all.push_back(plain(part));
            } else if (part.kind == SourcePart::Kind::Output) {
                all.push_back(output(part));
            } else if (std::ranges::find(ends, keyword(part)) != ends.end()) {
                break;
            } else {
                all.push_back(block(part));
            }
        }
        if (next_ == parts_.size() && ends.size() > 0) {
            throw UserError("{}: a block of the chat template has no {}", parts_[begin - 1].place,
                            *(ends.end() - 1));
        }
        --depth_;
        const std::string place = begin < parts_.size() ? parts_[begin].place : "";
        return [all = std::move(all), place](JinjaScope& scope, OriginText& out) {
            for (const Statement& statement : all) {
                scope.spend(1, place);
                if (const Flow flow = statement(scope, out); flow != Flow::On) return flow;
            }
            return Flow::On;
        };
    }

    /// The statements up to a tag with one keyword, which is passed.
    Statement body_until(std::string_view end) {
        ++next_;
        return statements_until({end});
    }

    static Statement plain(const SourcePart& part) {
        return [text = with_origin(part.text), place = part.place](JinjaScope& scope, OriginText& out) {
            scope.spend(std::ssize(text), place);
            out += text;
            return Flow::On;
        };
    }

    static Statement output(const SourcePart& part) {
        JinjaReader reader(part.text, part.place);
        return [value = expression_of(reader, true), place = part.place](JinjaScope& scope, OriginText& out) {
            const std::optional<OriginText> text = printed(value(scope));
            if (!text) throw UserError("{}: the chat template prints a list or a map", place);
            scope.spend(std::ssize(*text), place);
            out += *text;
            return Flow::On;
        };
    }

    /// The block or single tag at next_, which becomes its last tag.
    Statement block(const SourcePart& part) {
        const std::string word = keyword(part);
        JinjaReader reader(part.text, part.place);
        reader.take(word);
        if (word == "if") return condition(reader);
        if (word == "for") return loop(reader, part);
        if (word == "set") return assignment(reader, part);
        if (word == "generation") return body_until("endgeneration");
        if (word == "macro") {  // a call of it is refused
            body_until("endmacro");
            return do_nothing;
        }
        if ((word == "break" || word == "continue") && num_loops_ > 0 && reader.at_end()) {
            const Flow flow = word == "break" ? Flow::Break : Flow::Continue;
            return [flow](JinjaScope&, OriginText&) { return flow; };
        }
        refuse_tag(part);
    }

    Statement condition(JinjaReader& reader) {
        const JinjaExpression truth = expression_of(reader, true);
        ++next_;
        go_deeper();
        const Statement body = statements_until({"elif", "else", "endif"});
        Statement otherwise = do_nothing;
        if (keyword(parts_[next_]) == "elif") {
            JinjaReader next(parts_[next_].text, parts_[next_].place);
            next.take("elif");
            otherwise = condition(next);
        } else if (keyword(parts_[next_]) == "else") {
            otherwise = body_until("endif");
        }
        --depth_;
        return [truth, body, otherwise](JinjaScope& scope, OriginText& out) {
            return is_true(truth(scope)) ? body(scope, out) : otherwise(scope, out);
        };
    }

    Statement loop(JinjaReader& reader, const SourcePart& part) {
        const std::string name = reader.name();
        const bool has_one_name = reader.take("in");
        const JinjaExpression values = expression_of(reader, false, false);
        const JinjaExpression filter = reader.take("if") ? expression_of(reader, true) : JinjaExpression();
        const bool is_whole = has_one_name && reader.at_end();
        ++next_;
        ++num_loops_;
        const Statement body = statements_until({"else", "endfor"});
        --num_loops_;
        const Statement otherwise =
            keyword(parts_[next_]) == "else" ? body_until("endfor") : Statement(do_nothing);
        return [=, place = part.place](JinjaScope& outer, OriginText& out) {
            if (!is_whole) throw UserError("{}: this loop of the chat template is not supported", place);
            const auto inner = [&](JinjaVariables variables) {
                return JinjaScope{.variables = std::move(variables), .outer = &outer, .budget = outer.budget};
            };
            const JinjaValue value = values(outer);
            if (value.kind != JinjaValue::Kind::List && value.kind != JinjaValue::Kind::Undefined)
                throw UserError("{}: a loop of the chat template over what is no list", place);
            std::vector<JinjaValue> list;
            if (value.list) outer.spend(std::ssize(*value.list), place);
            for (size_t at = 0; value.list && at < value.list->size(); ++at) {
                const JinjaValue& one = (*value.list)[at];
                if (!filter || is_true(filter(inner({{name, one}})))) list.push_back(one);
            }
            JinjaScope alone = inner({});
            if (list.empty()) return otherwise(alone, out);
            for (size_t at = 0; at < list.size(); ++at) {
                JinjaScope scope = inner({{name, list[at]}, {"loop", loop_value(list, at)}});
                if (body(scope, out) == Flow::Break) break;
            }
            return Flow::On;
        };
    }

    Statement assignment(JinjaReader& reader, const SourcePart& part) {
        const std::string name = reader.name(), member = reader.take(".") ? reader.name() : "";
        JinjaExpression value;
        const bool has_filter = reader.take("|");
        if (reader.take("=")) {
            value = expression_of(reader, true);
        } else if (has_filter || reader.at_end()) {
            const int num_loops = std::exchange(num_loops_, 0);  // a break inside is refused
            const Statement body = body_until("endset");
            num_loops_ = num_loops;
            value = [body](const JinjaScope& outer) {
                JinjaScope scope{.variables = {}, .outer = &outer, .budget = outer.budget};
                OriginText text;
                body(scope, text);
                return JinjaValue(std::move(text));
            };
        }
        return [=, place = part.place](JinjaScope& scope, OriginText&) {
            if (has_filter || !value)
                throw UserError("{}: this set of the chat template is not supported", place);
            if (member.empty()) {
                scope.variables[name] = value(scope);
                return Flow::On;
            }
            const JinjaValue owner = scope.find(name), content = value(scope);
            if (owner.kind != JinjaValue::Kind::Object)
                throw UserError("{}: {} of the chat template is no namespace", place, name);
            refuse_object(content, place);
            (*owner.map)[member] = content;
            return Flow::On;
        };
    }

    std::vector<SourcePart> parts_;
    size_t next_ = 0;
    int depth_ = 0, num_loops_ = 0;  // around next_
};

}  // namespace

struct JinjaTemplate::Parts {
    Statement whole;
};

JinjaTemplate::JinjaTemplate(std::string_view source, std::string name)
    : parts_(std::make_unique<Parts>(
          Parts{BlockReader(SourceCutter(with_line_feeds(source), name).parts()).whole()})) {}

JinjaTemplate::~JinjaTemplate() = default;

OriginText JinjaTemplate::render(const JinjaVariables& variables, int64_t limit) const {
    JinjaBudget budget{.limit = limit};
    JinjaScope scope{.variables = variables, .outer = nullptr, .budget = &budget};
    OriginText text;
    parts_->whole(scope, text);
    return text;
}

}  // namespace argosy::tokenizer
