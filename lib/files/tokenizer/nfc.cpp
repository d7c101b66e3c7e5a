// Normalization Form C. Text is changed only between stable characters. A stable character has combining
// class 0, does not change by itself, and never composes with a character before it; most characters are
// stable. A part from one stable character up to the next is normalized by itself: it is decomposed, its
// marks are sorted by combining class, and its characters are composed.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

// Syllables of Hangul are computed (Unicode, section 3.12).
constexpr uint32_t kSyllable = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr uint32_t kNumLeading = 19, kNumVowels = 21, kNumTrailing = 28;
constexpr uint32_t kNumSyllables = kNumLeading * kNumVowels * kNumTrailing;

struct Character {
    uint32_t code;
    uint32_t combining_class;
};
using Characters = std::vector<Character>;

uint64_t pair_key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

class NormalForm {
  public:
    NormalForm() : stable_(read_tables()) {}

    bool is_stable(const char* text) const { return stable_.contains_at(text); }

    void append_normalized(std::string_view part, std::string& text) const {
        Characters characters;
        for (size_t i = 0; i < part.size(); i += utf8_size(part[i]))
            decompose(utf8_code(part.data() + i), characters);
        sort_marks(characters);
        compose(characters);
        for (const Character& character : characters) append_utf8(text, character.code);
    }

  private:
    /// Fills the maps and returns the stable characters.
    CodeSet read_tables() {
        std::vector<CodeRange> unstable;
        uint32_t code = 0;
        for (size_t i = 0; i < kCombiningClasses.size(); i += 3) {
            code += kCombiningClasses[i];
            const uint32_t last = code + kCombiningClasses[i + 1] - 1;
            unstable.push_back({code, last});
            for (uint32_t mark = code; mark <= last; ++mark) classes_[mark] = kCombiningClasses[i + 2];
        }
        code = 0;
        for (size_t i = 0; i < kSingles.size(); i += 2) {
            code += kSingles[i];
            decompositions_[code] = {kSingles[i + 1], 0};
            unstable.push_back({code, code});
        }
        code = 0;
        for (size_t i = 0; i < kPairs.size(); i += 3) {
            code += kPairs[i];
            const uint32_t first = kPairs[i + 1], second = kPairs[i + 2];
            decompositions_[code] = {first, second};
            if (std::ranges::binary_search(kNotComposed, code)) {
                unstable.push_back({code, code});
            } else {
                compositions_[pair_key(first, second)] = code;
                unstable.push_back({second, second});
            }
        }
        unstable.push_back({kVowel, kVowel + kNumVowels - 1});
        unstable.push_back({kTrailing + 1, kTrailing + kNumTrailing - 1});
        CodeSet set(std::move(unstable));
        set.invert();
        return set;
    }

    void decompose(uint32_t code, Characters& characters) const {
        if (code - kSyllable < kNumSyllables) {
            const uint32_t syllable = code - kSyllable, trailing = syllable % kNumTrailing;
            characters.push_back({kLeading + syllable / kNumTrailing / kNumVowels, 0});
            characters.push_back({kVowel + syllable / kNumTrailing % kNumVowels, 0});
            if (trailing != 0) characters.push_back({kTrailing + trailing, 0});
            return;
        }
        const auto found = decompositions_.find(code);
        if (found == decompositions_.end()) {
            const auto mark = classes_.find(code);
            characters.push_back({code, mark == classes_.end() ? 0 : mark->second});
            return;
        }
        decompose(found->second.first, characters);
        if (found->second.second != 0) decompose(found->second.second, characters);
    }

    static void sort_marks(Characters& characters) {
        for (auto begin = characters.begin(); begin != characters.end();) {
            const auto is_starter = [](const Character& character) { return character.combining_class == 0; };
            begin = std::find_if_not(begin, characters.end(), is_starter);
            const auto end = std::find_if(begin, characters.end(), is_starter);
            std::stable_sort(begin, end, [](const Character& left, const Character& right) {
                return left.combining_class < right.combining_class;
            });
            begin = end;
        }
    }

    /// Returns the composite of two characters, or 0.
    uint32_t composite(uint32_t first, uint32_t second) const {
        if (first - kLeading < kNumLeading && second - kVowel < kNumVowels)
            return kSyllable + ((first - kLeading) * kNumVowels + second - kVowel) * kNumTrailing;
        if (first - kSyllable < kNumSyllables && (first - kSyllable) % kNumTrailing == 0 &&
            second - kTrailing - 1 < kNumTrailing - 1)
            return first + second - kTrailing;
        const auto found = compositions_.find(pair_key(first, second));
        return found == compositions_.end() ? 0 : found->second;
    }

    /// A character composes with the last starter before it unless a character between them, which was kept,
    /// is a starter or has at least the same combining class.
    void compose(Characters& characters) const {
        constexpr size_t kNone = -1;
        size_t starter = kNone, size = 0;
        for (const Character character : characters) {
            const bool blocked =
                starter == kNone ||
                (size > starter + 1 && characters[size - 1].combining_class >= character.combining_class);
            const uint32_t code = blocked ? 0 : composite(characters[starter].code, character.code);
            if (code != 0) {
                characters[starter].code = code;
                continue;
            }
            if (character.combining_class == 0) starter = size;
            characters[size++] = character;
        }
        characters.resize(size);
    }

    struct Parts {
        uint32_t first, second;  // second is 0 if there is one part
    };
    std::unordered_map<uint32_t, uint32_t> classes_;
    std::unordered_map<uint32_t, Parts> decompositions_;
    std::unordered_map<uint64_t, uint32_t> compositions_;
    CodeTable stable_;
};

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
    static const NormalForm form;
    const char* const end = text.data() + text.size();
    const char* done = text.data();         // what is before `done` is in the buffer
    const char* last_stable = text.data();  // the last stable character, or the begin of the text
    buffer.clear();
    for (const char* at = text.data(); at != end;) {
        if (form.is_stable(at)) {
            last_stable = at;
            at += utf8_size(*at);
            continue;
        }
        while (at != end && !form.is_stable(at)) at += utf8_size(*at);
        buffer.append(done, last_stable);
        form.append_normalized({last_stable, at}, buffer);
        done = at;
    }
    if (done == text.data()) return text;
    buffer.append(done, end);
    return buffer;
}

}  // namespace argosy::tokenizer
