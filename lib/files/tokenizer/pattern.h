// A regular expression that cuts texts into pieces, as tokenizers use it: compiled to a small program, which
// a backtracking matcher runs.
//
// Syntax and meaning are those of Oniguruma, the library that the package `tokenizers` uses, as far as they
// are here: literals; escapes \r \n \t \f \v \a \e, \s \d \w and their negations, \p{..} and \P{..} of
// general categories, escaped punctuation; classes [..] and [^..]; groups (..), (?:..) and (?i:..) of ASCII
// characters; alternatives in order; ? * + {m,n}, greedy, lazy, or possessive for single characters; (?=..)
// and (?!..); $. A pattern that can match the empty text is refused.
//
// Cost: linear in the text for the patterns of published tokenizers. A loop over one class is one
// instruction, and one entry of the stack remembers all its shorter matches. A limit on the number of steps
// of each text turns exponential patterns into an error.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace argosy::tokenizer {

class PatternSearch;

class Pattern {
  public:
    /// Throws UserError, which begins with `place`, if the expression is wrong or not supported.
    Pattern(std::string_view expression, const std::string& place);

    enum class Op : uint8_t {
        Byte,        // matches the byte `byte`
        Set,         // matches one character of sets[target]
        Loop,        // matches min to max characters of sets[target], as many as possible, then fewer
        Possessive,  // the same, but never fewer
        Branch,      // tries the next instruction, then `target`
        Jump,        // goes on at `target`
        Ahead,       // runs the next instructions up to Accept, moves nothing, and goes on at `target`
        NotAhead,    // the same if they do not match
        LineEnd,     // matches at the end and before a line feed
        Accept,
    };
    struct Instruction {
        Op op;
        char byte = 0;
        uint32_t target = 0;
        uint32_t min = 0, max = 0;
    };

  private:
    friend class PatternSearch;

    std::string place_;
    std::vector<Instruction> program_;
    std::vector<CodeTable> sets_;
    /// The first instructions of the alternatives that a text beginning with this byte may match, in order.
    std::array<std::vector<uint32_t>, 256> alternatives_;
};

/// Finds the matches of a pattern in a text, from left to right. The text is valid UTF-8 and outlives the
/// search.
class PatternSearch {
  public:
    PatternSearch(const Pattern& pattern, std::string_view text);

    /// Finds the next match. Returns false at the end of the text. UserError if the limit of steps is
    /// reached.
    bool next(std::string_view& match);

  private:
    struct Entry {
        uint32_t target;
        const char *at,
            *shortest;  // the matcher goes back to `at`, then to each character down to `shortest`
    };

    /// Returns the end of the match at `at`, or null.
    const char* match(uint32_t instruction, const char* at);
    bool step(const Pattern::Instruction& instruction, uint32_t& next, const char*& at);
    bool loop(const Pattern::Instruction& instruction, uint32_t next, const char*& at);
    void push(const Entry& entry);
    void count_steps(int64_t steps);

    const Pattern& pattern_;
    const char *text_, *at_, *end_;
    int64_t steps_left_;
    std::vector<Entry>& stack_;  // of this thread; the entries from `height_` on are free
    size_t height_ = 0;
};

}  // namespace argosy::tokenizer
