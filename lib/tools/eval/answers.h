// Answers in generated texts: how a task extracts them, and when one matches the reference. The rules are
// those of lm-evaluation-harness's filters and of its exact_match, for the tasks of readers().
#pragma once

#include <string>
#include <string_view>

namespace argosy::eval {

/// A way to extract an answer. A metric is computed for each filter of a task.
struct AnswerFilter {
    const char* name;
    std::string (*apply)(std::string_view text);
};

/// The answer of a text without one.
inline constexpr const char* kNoAnswer = "[invalid]";

/// The number after the first "#### ", as in GSM8K's answers. Regular expression: `#### (\-?[0-9\.\,]+)`.
std::string marked_number(std::string_view text);

/// The last number, wherever it is. Regular expression: `(-?[$0-9.,]{2,})|(-?[0-9]+)`.
std::string last_number(std::string_view text);

/// Whether answer and reference are equal in ASCII's lower case without commas, dollar signs, what precedes
/// the last "#### ", and a full stop at the end.
bool is_same_number(std::string_view answer, std::string_view reference);

}  // namespace argosy::eval
