#include "eval/answers.h"

#include <algorithm>

#include "eval/text.h"

namespace argosy::eval {
namespace {

constexpr std::string_view kMark = "#### ", kDigits = "0123456789";

/// The length of the longest beginning of the text that has only these characters.
size_t span_of(std::string_view text, std::string_view characters) {
    return std::min(text.find_first_not_of(characters), text.size());
}

/// The number that begins the text, by the expression of last_number(); empty if none does.
std::string_view number_at(std::string_view text) {
    const size_t sign = text.starts_with('-') ? 1 : 0;
    const std::string_view rest = text.substr(sign);
    const size_t size = span_of(rest, "$0123456789.,");
    const bool is_number = size >= 2 || (size == 1 && kDigits.find(rest[0]) != kDigits.npos);
    return is_number ? text.substr(0, sign + size) : "";
}

/// A full stop at the end, or before a line break at the end, as Python's `\.$` matches it.
void remove_last_stop(std::string& text) {
    const size_t end = text.size() - (text.ends_with('\n') ? 1 : 0);
    if (end > 0 && text[end - 1] == '.') text.erase(end - 1, 1);
}

std::string normalized(std::string_view text) {
    std::string kept = replaced(replaced(text, ",", ""), "$", "");
    const size_t mark = kept.rfind(kMark);
    if (mark != kept.npos) kept.erase(0, mark + kMark.size());
    remove_last_stop(kept);
    for (char& c : kept) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return kept;
}

}  // namespace

std::string marked_number(std::string_view text) {
    for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1)) {
        const std::string_view rest = text.substr(at + kMark.size());
        const size_t sign = rest.starts_with('-') ? 1 : 0, size = span_of(rest.substr(sign), "0123456789.,");
        if (size > 0) return std::string(rest.substr(0, sign + size));
    }
    return kNoAnswer;
}

std::string last_number(std::string_view text) {
    std::string_view last = kNoAnswer;
    for (size_t at = 0; at < text.size();) {
        const std::string_view number = number_at(text.substr(at));
        if (!number.empty()) last = number;
        at += std::max<size_t>(number.size(), 1);
    }
    return std::string(last);
}

bool is_same_number(std::string_view answer, std::string_view reference) {
    return normalized(answer) == normalized(reference);
}

}  // namespace argosy::eval
