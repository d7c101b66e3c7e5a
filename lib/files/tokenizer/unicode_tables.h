// Tables of Unicode as numbers. tests/tokenizer/make_unicode_tables.py generates them and describes each;
// only unicode.cpp and nfc.cpp read them.
#pragma once

#include <cstdint>
#include <span>

namespace argosy::tokenizer {

using Numbers = std::span<const uint32_t>;

extern const Numbers kCategoryRuns, kSpaces, kAlsoWord, kAlsoWordOfTokens;
extern const Numbers kCombiningClasses, kSingles, kPairs, kNotComposed;

}  // namespace argosy::tokenizer
