// Reads the text of a regular expression into a tree. Only pattern.cpp uses it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace argosy::tokenizer {

struct PatternNode {
    enum class Kind { Set, Sequence, Choice, Repeat, Look, LineEnd };
    enum class Greed { Greedy, Lazy, Possessive };
    static constexpr uint32_t kNoLimit = UINT32_MAX;

    Kind kind = Kind::Sequence;
    size_t set = 0;                  // Set: its index
    std::vector<PatternNode> parts;  // of a Sequence or Choice; the only part of a Repeat or Look
    uint32_t min = 0, max = 0;       // of a Repeat
    Greed greed = Greed::Greedy;     // of a Repeat
    bool negative = false;           // of a Look

    /// Whether the node can match the empty text.
    bool can_be_empty() const;
};

struct PatternTree {
    PatternNode root;
    std::vector<CodeSet> sets;  // without duplicates
};

/// Throws UserError, which begins with `place`, if the expression is wrong or not supported.
PatternTree parse_pattern(std::string_view expression, const std::string& place);

}  // namespace argosy::tokenizer
