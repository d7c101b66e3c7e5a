#include "tokenizer/pattern_syntax.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::tokenizer {
namespace {

using Kind = PatternNode::Kind;

constexpr size_t kMaxDepth = 50;  // of nested groups
constexpr uint32_t kMaxRepetitions = 1000;
constexpr uint32_t kLongS = 0x17F, kKelvin = 0x212A;  // the characters beyond ASCII that fold to s and k

bool is_ascii_letter(uint32_t code) { return (code | 0x20) - 'a' < 26; }

class PatternParser {
  public:
    PatternParser(std::string_view text, const std::string& place) : text_(text), place_(place) {
        std::string repaired;
        if (repaired_utf8(text, repaired) != text) refuse("it is not valid UTF-8");
    }

    PatternTree parse() {
        tree_.root = parse_choice(0);
        if (!at_end()) refuse("a ) has no ( before it");
        return std::move(tree_);
    }

  private:
    [[noreturn]] void refuse(const std::string& reason) const {
        throw UserError("{}: the pattern {} is not supported: {}, at byte {}", place_, shown(text_), reason,
                        at_ + 1);
    }

    bool at_end() const { return at_ == text_.size(); }
    char peek() const { return at_end() ? '\0' : text_[at_]; }
    bool take(std::string_view expected) {
        if (!text_.substr(at_).starts_with(expected)) return false;
        at_ += expected.size();
        return true;
    }
    uint32_t take_code() {
        if (at_end()) refuse("it ends too early");
        const uint32_t code = utf8_code(text_.data() + at_);
        at_ += utf8_size(text_[at_]);
        return code;
    }

    PatternNode set_node(const CodeSet& set) {
        const auto place = std::ranges::find(tree_.sets, set);
        const size_t index = place - tree_.sets.begin();
        if (place == tree_.sets.end()) tree_.sets.push_back(set);
        return {.kind = Kind::Set, .set = index, .parts = {}};
    }

    PatternNode parse_choice(size_t depth) {
        if (depth > kMaxDepth) refuse("its groups are nested too deep");
        std::vector<PatternNode> alternatives;
        do alternatives.push_back(parse_sequence(depth));
        while (take("|"));
        if (alternatives.size() == 1) return std::move(alternatives[0]);
        return {.kind = Kind::Choice, .parts = std::move(alternatives)};
    }

    PatternNode parse_sequence(size_t depth) {
        PatternNode sequence;
        before_ = 0;
        while (!at_end() && peek() != '|' && peek() != ')')
            sequence.parts.push_back(parse_quantifiers(parse_atom(depth)));
        return sequence;
    }

    PatternNode parse_atom(size_t depth) {
        const uint32_t before = std::exchange(before_, 0);
        if (peek() == '(') return parse_group(depth);
        if (peek() == '[') return set_node(parse_class());
        if (take("$")) return {.kind = Kind::LineEnd, .parts = {}};
        if (std::string_view("?*+{}^.").find(peek()) != std::string_view::npos)
            refuse(fmt::format("'{}' does not belong there", peek()));
        if (const auto set = parse_set_escape(false)) {
            if (ignore_case_) refuse("(?i:) applies only to characters");
            return set_node(*set);
        }
        const uint32_t code = peek() == '\\' ? parse_escaped_code() : take_code();
        if (ignore_case_) check_folding(before, code);
        before_ = code;
        return set_node(fold(CodeSet({{code, code}})));
    }

    /// Under (?i:) Oniguruma also matches ligatures and the sharp s against these pairs of characters.
    void check_folding(uint32_t before, uint32_t code) const {
        constexpr std::array<std::string_view, 5> kPairs = {"ss", "ff", "fi", "fl", "st"};
        const auto is_pair = [&](std::string_view pair) {
            return (before | 0x20) == static_cast<uint32_t>(pair[0]) &&
                   (code | 0x20) == static_cast<uint32_t>(pair[1]);
        };
        if (std::ranges::any_of(kPairs, is_pair)) refuse("(?i:) does not apply to ss, ff, fi, fl and st");
    }

    /// Adds the characters that differ in case, under (?i:).
    CodeSet fold(CodeSet set) const {
        if (!ignore_case_) return set;
        if (!set.ranges().empty() && set.ranges().back().last > 127)
            refuse("(?i:) applies only to ASCII characters");
        std::vector<CodeRange> added;
        for (uint32_t code = 0; code < 128; ++code) {
            if (!set.contains(code) || !is_ascii_letter(code)) continue;
            added.push_back({code ^ 0x20, code ^ 0x20});
            if ((code | 0x20) == 's') added.push_back({kLongS, kLongS});
            if ((code | 0x20) == 'k') added.push_back({kKelvin, kKelvin});
        }
        set.add(CodeSet(std::move(added)));
        return set;
    }

    PatternNode parse_group(size_t depth) {
        const bool ignored_case = ignore_case_;
        take("(");
        bool is_look = false, negative = false;
        if (take("?")) {
            if (take("=")) {
                is_look = true;
            } else if (take("!")) {
                is_look = negative = true;
            } else if (take("i:")) {
                ignore_case_ = true;
            } else if (!take(":")) {
                refuse("only the groups (?:..), (?i:..), (?=..) and (?!..) are");
            }
        }
        PatternNode inner = parse_choice(depth + 1);
        if (!take(")")) refuse("a ( has no ) after it");
        ignore_case_ = ignored_case;
        before_ = 0;
        if (!is_look) return inner;
        std::vector<PatternNode> parts;
        parts.push_back(std::move(inner));
        return {.kind = Kind::Look, .parts = std::move(parts), .negative = negative};
    }

    PatternNode parse_quantifiers(PatternNode node) {
        PatternNode repeat{.kind = Kind::Repeat, .parts = {}};
        const bool is_interval = peek() == '{';
        if (take("?")) {
            repeat.max = 1;
        } else if (take("*")) {
            repeat.max = PatternNode::kNoLimit;
        } else if (take("+")) {
            repeat.min = 1;
            repeat.max = PatternNode::kNoLimit;
        } else if (is_interval) {
            parse_interval(repeat);
        } else {
            return node;
        }
        before_ = 0;
        if (node.kind == Kind::Look || node.kind == Kind::LineEnd || node.can_be_empty())
            refuse("what is repeated can match nothing");
        if (peek() == '+' && (is_interval || node.kind != Kind::Set))
            refuse("only ?+, *+ and ++ after a single character are possessive");
        if (peek() == '?' && is_interval && repeat.min == repeat.max) refuse("a fixed number cannot be lazy");
        if (take("+")) repeat.greed = PatternNode::Greed::Possessive;
        if (take("?")) repeat.greed = PatternNode::Greed::Lazy;
        if (std::string_view("?*+{").find(peek()) != std::string_view::npos && !at_end())
            refuse("a quantifier follows a quantifier");
        repeat.parts.push_back(std::move(node));
        return repeat;
    }

    void parse_interval(PatternNode& repeat) {
        take("{");
        const auto min = parse_number();
        std::optional<uint32_t> max = min;
        if (take(",")) {
            max = parse_number();
            if (!min && !max) refuse("'{' does not belong there");
            if (!max) max = PatternNode::kNoLimit;
        }
        if (!max || !take("}") || *max == 0 || min.value_or(0) > *max)
            refuse("'{' does not begin {n}, {n,}, {n,m} or {,m}");
        repeat.min = min.value_or(0);
        repeat.max = *max;
    }

    std::optional<uint32_t> parse_number() {
        std::optional<uint32_t> number;
        while (peek() >= '0' && peek() <= '9') {
            number = number.value_or(0) * 10 + (peek() - '0');
            if (*number > kMaxRepetitions) refuse("a number of repetitions is too large");
            ++at_;
        }
        return number;
    }

    /// Reads an escape that stands for a set, if there is one.
    std::optional<CodeSet> parse_set_escape(bool in_class) {
        if (peek() != '\\' || at_ + 1 == text_.size()) return std::nullopt;
        const char letter = text_[at_ + 1];
        if (std::string_view("sSdDwWpP").find(letter) == std::string_view::npos) return std::nullopt;
        at_ += 2;
        CodeSet set;
        bool inverted = letter >= 'A' && letter <= 'Z';
        switch (letter | 0x20) {
            case 's':
                set = space_set();
                break;
            case 'd':
                set = category_set("Nd");
                break;
            case 'w':
                set = in_class ? word_set_in_class() : word_set();
                break;
            default:
                set = parse_property(inverted);
        }
        if (inverted) set.invert();
        return set;
    }

    CodeSet parse_property(bool& inverted) {
        const size_t end = text_.find('}', at_);
        if (!take("{") || end == text_.npos) refuse("\\p is not followed by {..}");
        if (take("^")) inverted = !inverted;
        const std::string_view name = text_.substr(at_, end - at_);
        CodeSet set = category_set(name);
        if (set.ranges().empty()) refuse(fmt::format("the property {} is no general category", shown(name)));
        at_ = end + 1;
        return set;
    }

    uint32_t parse_escaped_code() {
        take("\\");
        constexpr std::string_view kLetters = "rntfvae", kCodes = "\r\n\t\f\v\a\x1b";
        const uint32_t code = take_code();
        if (const size_t found = code < 128 ? kLetters.find(static_cast<char>(code)) : kLetters.npos;
            found != kLetters.npos)
            return kCodes[found];
        if (code < '!' || code > '~' || is_ascii_letter(code) || (code >= '0' && code <= '9'))
            refuse("this escape is not known");
        return code;
    }

    CodeSet parse_class() {
        take("[");
        const bool inverted = take("^");
        if (peek() == ']') refuse("a class begins with ]");
        CodeSet set;
        while (!take("]")) parse_class_item(set);
        set = fold(std::move(set));
        if (inverted && ignore_case_) refuse("(?i:) does not apply to [^..]");
        if (inverted) set.invert();
        if (set.ranges().empty()) refuse("a class is empty");
        return set;
    }

    void parse_class_item(CodeSet& set) {
        if (peek() == '[' || text_.substr(at_).starts_with("&&"))
            refuse("a class within a class, and &&, are unknown");
        if (const auto escaped = parse_set_escape(true)) {
            if (peek() == '-' && !text_.substr(at_).starts_with("-]")) refuse("a range begins with a set");
            return set.add(*escaped);
        }
        const uint32_t first = parse_class_code();
        uint32_t last = first;
        if (peek() == '-' && !text_.substr(at_).starts_with("-]")) {
            take("-");
            if (peek() == '[') refuse("a class within a class, and &&, are unknown");
            last = parse_class_code();
            if (last < first) refuse("a range ends before its begin");
        }
        set.add(CodeSet({{first, last}}));
    }

    uint32_t parse_class_code() { return peek() == '\\' ? parse_escaped_code() : take_code(); }

    const std::string_view text_;
    const std::string& place_;
    size_t at_ = 0;
    bool ignore_case_ = false;
    uint32_t before_ = 0;  // the character just read under (?i:), or 0
    PatternTree tree_;
};

}  // namespace

bool PatternNode::can_be_empty() const {
    const auto empty = [](const PatternNode& part) { return part.can_be_empty(); };
    switch (kind) {
        case Kind::Set:
            return false;
        case Kind::Sequence:
            return std::ranges::all_of(parts, empty);
        case Kind::Choice:
            return std::ranges::any_of(parts, empty);
        case Kind::Repeat:
            return min == 0;
        default:
            return true;
    }
}

PatternTree parse_pattern(std::string_view expression, const std::string& place) {
    return PatternParser(expression, place).parse();
}

}  // namespace argosy::tokenizer
