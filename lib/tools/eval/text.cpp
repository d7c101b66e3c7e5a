#include "eval/text.h"

#include <algorithm>
#include <array>
#include <clocale>
#include <cwctype>
#include <functional>

#include "tokenizer/unicode.h"

namespace argosy::eval {
namespace {

/// The bytes of the whitespace character at the beginning of the text; 0 if there is none. The set is that of
/// str.isspace(), which \s and strip() use too.
size_t space_at(std::string_view text) {
    constexpr std::array<std::string_view, 29> kSpaces = {
        " ",      "\n",     "\t",     "\r",     "\v",     "\f",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
        "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
        "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
    const auto found =
        std::ranges::find_if(kSpaces, [&](std::string_view space) { return text.starts_with(space); });
    return found == kSpaces.end() ? 0 : found->size();
}

/// The locale C.UTF-8, which glibc has without any package for languages. Null on a machine that lacks it:
/// there only the letters of ASCII have two cases.
locale_t letters() {
    static const locale_t only = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return only;
}

uint32_t upper_case(uint32_t code) {
    if (letters()) return towupper_l(code, letters());
    return code >= 'a' && code <= 'z' ? code - 'a' + 'A' : code;
}

uint32_t lower_case(uint32_t code) {
    if (letters()) return towlower_l(code, letters());
    return code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code;
}

}  // namespace

int64_t num_code_points(std::string_view text) {
    return std::ranges::count_if(text, std::not_fn(tokenizer::continues_utf8));
}

std::string_view right_stripped(std::string_view text) {
    while (!text.empty()) {
        size_t last = text.size() - 1;
        while (last > 0 && tokenizer::continues_utf8(text[last])) --last;
        if (space_at(text.substr(last)) == 0) break;
        text = text.substr(0, last);
    }
    return text;
}

std::string_view left_stripped(std::string_view text) {
    while (const size_t size = space_at(text)) text.remove_prefix(size);
    return text;
}

std::string_view stripped(std::string_view text) { return right_stripped(left_stripped(text)); }

int64_t num_words(std::string_view text) {
    int64_t words = 1;
    for (bool after_space = false; !text.empty();) {
        const size_t space = space_at(text);
        if (space > 0 && !after_space) ++words;
        after_space = space > 0;
        text.remove_prefix(std::max<size_t>(space, 1));
    }
    return words;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string result;
    for (size_t at = text.find(from); at != text.npos; at = text.find(from)) {
        result.append(text.substr(0, at)).append(to);
        text.remove_prefix(at + from.size());
    }
    return result.append(text);
}

std::string capitalized(std::string_view text) {
    std::string result;
    for (size_t at = 0; at < text.size(); at += tokenizer::utf8_size(text[at])) {
        const uint32_t code = tokenizer::utf8_code(&text[at]);
        tokenizer::append_utf8(result, at == 0 ? upper_case(code) : lower_case(code));
    }
    return result;
}

}  // namespace argosy::eval
