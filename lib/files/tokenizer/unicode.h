// Unicode as the Python package `tokenizers` knows it: UTF-8, sets of code points, and the properties that
// regular expressions name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::tokenizer {

inline constexpr uint32_t kLastCode = 0x10FFFF;

// UTF-8. Except for repaired_utf8(), the functions require valid text.

/// The number of bytes of the character that begins with `lead`.
inline size_t utf8_size(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at `text`.
inline uint32_t utf8_code(const char* text) {
    const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(text[i])}; };
    const auto next = [&](size_t i) { return byte(i) & 0x3F; };
    switch (utf8_size(text[0])) {
        case 1:
            return byte(0);
        case 2:
            return (byte(0) & 0x1F) << 6 | next(1);
        case 3:
            return (byte(0) & 0x0F) << 12 | next(1) << 6 | next(2);
        default:
            return (byte(0) & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3);
    }
}

/// Whether a byte is not the first of its character.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

void append_utf8(std::string& text, uint32_t code);

/// Returns `text` itself if it is valid UTF-8. Otherwise returns `buffer`, filled with the text in which
/// U+FFFD replaces each malformed part, as Python's bytes.decode(errors="replace") does.
std::string_view repaired_utf8(std::string_view text, std::string& buffer);

/// Returns `text` itself if it is in Normalization Form C, else `buffer`, filled with its NFC.
std::string_view to_nfc(std::string_view text, std::string& buffer);

struct CodeRange {
    uint32_t first, last;
    bool operator==(const CodeRange&) const = default;
};

/// A set of code points. The ranges are sorted, and neither overlap nor touch.
class CodeSet {
  public:
    CodeSet() = default;
    explicit CodeSet(std::vector<CodeRange> ranges);
    void add(const CodeSet& other);
    void invert();
    bool contains(uint32_t code) const;
    const std::vector<CodeRange>& ranges() const { return ranges_; }
    bool operator==(const CodeSet&) const = default;

  private:
    std::vector<CodeRange> ranges_;
};

/// The set of a general category such as "Lu", or of a letter's categories such as "L". Empty if there is no
/// such category.
CodeSet category_set(std::string_view name);

CodeSet space_set();           // \s
CodeSet python_space_set();    // white space for Python's str.isspace() and str.strip()
CodeSet word_set();            // \w outside of [..]
CodeSet word_set_in_class();   // \w in [..], where Oniguruma leaves out some signs of Latin-1
CodeSet token_neighbor_set();  // the characters beside which an added token with single_word is not found

/// A set of code points for fast look-ups: a byte for each ASCII character, and pages of 256 bits.
class CodeTable {
  public:
    explicit CodeTable(const CodeSet& set);

    bool contains_ascii(char byte) const { return ascii_[static_cast<unsigned char>(byte)]; }
    bool contains(uint32_t code) const {
        const uint64_t* page = bits_.data() + kWordsOfPage * page_of_[code >> 8];
        return page[code >> 6 & 3] >> (code & 63) & 1;
    }

    /// Whether the set contains the character at `text`.
    bool contains_at(const char* text) const {
        return *text >= 0 ? contains_ascii(*text) : contains(utf8_code(text));
    }

    /// Returns the end of the characters from `begin` on that the set contains, at most `end`.
    const char* skip(const char* begin, const char* end) const {
        while (begin != end && contains_at(begin)) begin += utf8_size(*begin);
        return begin;
    }

  private:
    static constexpr size_t kWordsOfPage = 4;

    std::vector<uint8_t> ascii_;     // of each byte; false for the bytes of longer characters
    std::vector<uint16_t> page_of_;  // of each 256 code points
    std::vector<uint64_t> bits_;
};

// Tables of Unicode as numbers, which only unicode.cpp and nfc.cpp read.
// tests/tokenizer/make_unicode_tables.py generates them and describes each.

using Numbers = std::span<const uint32_t>;

extern const Numbers kCategoryRuns, kSpaces, kAlsoWord, kAlsoWordOfTokens;
extern const Numbers kCombiningClasses, kSingles, kPairs, kNotComposed;

}  // namespace argosy::tokenizer
