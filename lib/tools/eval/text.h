// Properties of a text as Python defines them, on which the definitions of lm-evaluation-harness rest: its
// code points, its whitespace, its words, its case. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace argosy::eval {

/// len(text).
int64_t num_code_points(std::string_view text);

/// The texts without whitespace at both ends, at the left end and at the right end: text.strip(),
/// text.lstrip(), text.rstrip().
std::string_view stripped(std::string_view text);
std::string_view left_stripped(std::string_view text);
std::string_view right_stripped(std::string_view text);

/// len(re.split(r"\s+", text)).
int64_t num_words(std::string_view text);

/// text.capitalize(): the first character in upper case, all others in lower case. The result
/// differs from Python's for the letters that apps/EVAL.md names.
std::string capitalized(std::string_view text);

/// text.replace(from, to).
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace argosy::eval
