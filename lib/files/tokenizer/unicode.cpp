#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace argosy::tokenizer {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

/// The order of kCategoryRuns.
constexpr std::array<std::string_view, 29> kCategories = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

/// The result of reading one character of any bytes: its size, or the size of what U+FFFD replaces.
struct Utf8Step {
    bool valid;
    size_t size;
};

/// The standard's table of well-formed sequences (Unicode, table 3-7).
Utf8Step step_at(const unsigned char* text, size_t size) {
    const unsigned char lead = text[0];
    if (lead < 0x80) return {true, 1};
    if (lead < 0xC2 || lead > 0xF4) return {false, 1};
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const unsigned char lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (size < 2 || text[1] < lowest || text[1] > highest) return {false, 1};
    for (size_t i = 2; i < length; ++i) {
        if (i == size || (text[i] & 0xC0) != 0x80) return {false, i};
    }
    return {true, length};
}

bool eight_are_ascii(const char* text) {
    uint64_t word;
    std::memcpy(&word, text, sizeof word);
    return (word & 0x8080808080808080) == 0;
}

/// Returns the offset of the first malformed part at or after `begin`, or the size of the text.
size_t find_malformed(std::string_view text, size_t begin) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    while (begin < text.size()) {
        if (text.size() - begin >= 8 && eight_are_ascii(text.data() + begin)) {
            begin += 8;
            continue;
        }
        const Utf8Step step = step_at(bytes + begin, text.size() - begin);
        if (!step.valid) break;
        begin += step.size;
    }
    return begin;
}

/// The set of (first, last) pairs.
CodeSet set_of_pairs(Numbers numbers) {
    std::vector<CodeRange> ranges;
    for (size_t i = 0; i < numbers.size(); i += 2) ranges.push_back({numbers[i], numbers[i + 1]});
    return CodeSet(std::move(ranges));
}

CodeSet word_set_with(Numbers others) {
    CodeSet set = set_of_pairs(others);
    for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) set.add(category_set(category));
    return set;
}

}  // namespace

void append_utf8(std::string& text, uint32_t code) {
    const auto append = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    const auto append_rest = [&](int shift) { append(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
        append(code);
    } else if (code < 0x800) {
        append(0xC0 | code >> 6);
        append_rest(0);
    } else if (code < 0x10000) {
        append(0xE0 | code >> 12);
        append_rest(6);
        append_rest(0);
    } else {
        append(0xF0 | code >> 18);
        append_rest(12);
        append_rest(6);
        append_rest(0);
    }
}

std::string_view repaired_utf8(std::string_view text, std::string& buffer) {
    size_t malformed = find_malformed(text, 0);
    if (malformed == text.size()) return text;
    buffer.clear();
    for (size_t begin = 0;;) {
        buffer.append(text, begin, malformed - begin);
        if (malformed == text.size()) return buffer;
        const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
        begin = malformed + step_at(bytes + malformed, text.size() - malformed).size;
        append_utf8(buffer, kReplacement);
        malformed = find_malformed(text, begin);
    }
}

CodeSet::CodeSet(std::vector<CodeRange> ranges) {
    std::ranges::sort(ranges, {}, &CodeRange::first);
    for (const CodeRange& range : ranges) {
        if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
            ranges_.back().last = std::max(ranges_.back().last, range.last);
        } else {
            ranges_.push_back(range);
        }
    }
}

void CodeSet::add(const CodeSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    *this = CodeSet(std::move(ranges_));
}

void CodeSet::invert() {
    std::vector<CodeRange> others;
    uint32_t begin = 0;
    for (const CodeRange& range : ranges_) {
        if (range.first > begin) others.push_back({begin, range.first - 1});
        begin = range.last + 1;
    }
    if (begin <= kLastCode) others.push_back({begin, kLastCode});
    ranges_ = std::move(others);
}

bool CodeSet::contains(uint32_t code) const {
    const auto after = std::ranges::upper_bound(ranges_, code, {}, &CodeRange::first);
    return after != ranges_.begin() && code <= std::prev(after)->last;
}

CodeSet category_set(std::string_view name) {
    if (name.empty() || name.size() > 2) return {};
    std::vector<CodeRange> ranges;
    uint32_t begin = 0;
    for (const uint32_t run : kCategoryRuns) {
        const uint32_t end = begin + (run >> 5);
        if (kCategories[run & 31].starts_with(name)) ranges.push_back({begin, end - 1});
        begin = end;
    }
    return CodeSet(std::move(ranges));
}

CodeSet space_set() { return set_of_pairs(kSpaces); }
CodeSet python_space_set() {
    CodeSet spaces = space_set();
    spaces.add(CodeSet({{0x1C, 0x1F}}));
    return spaces;
}
CodeSet word_set() { return word_set_with(kAlsoWord); }
CodeSet word_set_in_class() {
    constexpr uint32_t kLatin1 = 256;
    Numbers others = kAlsoWord;
    while (!others.empty() && others[1] < kLatin1) others = others.subspan(2);
    return word_set_with(others);
}

CodeSet token_neighbor_set() { return word_set_with(kAlsoWordOfTokens); }

CodeTable::CodeTable(const CodeSet& set) : ascii_(256), page_of_((kLastCode + 1) >> 8) {
    std::map<std::array<uint64_t, kWordsOfPage>, uint16_t> pages;  // equal pages are stored once
    auto range = set.ranges().begin();
    for (uint32_t page = 0; page < page_of_.size(); ++page) {
        std::array<uint64_t, kWordsOfPage> bits{};
        const uint32_t first = page << 8, last = first + 255;
        while (range != set.ranges().end() && range->last < first) ++range;
        for (auto other = range; other != set.ranges().end() && other->first <= last; ++other) {
            const uint32_t begin = std::max(first, other->first), end = std::min(last, other->last);
            for (uint32_t word = begin >> 6; word <= end >> 6; ++word) {
                const uint64_t from = word == begin >> 6 ? ~uint64_t{0} << (begin & 63) : ~uint64_t{0};
                const uint64_t up_to = word == end >> 6 ? ~uint64_t{0} >> (63 - (end & 63)) : ~uint64_t{0};
                bits[word & 3] |= from & up_to;
            }
        }
        const auto [place, is_new] = pages.try_emplace(bits, static_cast<uint16_t>(pages.size()));
        if (is_new) bits_.insert(bits_.end(), bits.begin(), bits.end());
        page_of_[page] = place->second;
    }
    for (uint32_t code = 0; code < 128; ++code) ascii_[code] = contains(code);
}

}  // namespace argosy::tokenizer
