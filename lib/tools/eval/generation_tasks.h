// The evaluation of a task of OutputType::Generation: a text is generated after each document's context,
// greedily, and answers in it are compared with the document's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/generate.h"
#include "eval/requests.h"
#include "eval/resident_model.h"
#include "eval/task_result.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

struct GeneratedText {
    std::string text;
    int64_t num_tokens = 0;
};

/// The maximum number of texts that are generated side by side, unless --batch-size says it.
inline constexpr int64_t kSideBySide = 16;

/// Continues contexts, as many side by side as the model has sequences. A step of the model reads contexts of
/// at most `context_tokens` tokens together, or one that is longer. Calls `progress` with the share of
/// finished contexts, 0 to 1, after each step. REQUIRES: each context and its continuation fit into
/// model.max_tokens().
std::vector<GeneratedText> continue_contexts(ResidentModel& model, const tokenizer::Tokenizer& tokenizer,
                                             std::span<const Tokens> contexts, const GenerateOptions& options,
                                             int64_t context_tokens,
                                             const std::function<void(double share)>& progress);

/// Continues contexts with a model, wherever its weights are.
using GenerateTexts = std::function<std::vector<GeneratedText>(std::span<const Tokens> contexts,
                                                               const GenerateOptions& options)>;

/// `requests` are those of the task's documents. `end_tokens`: see GenerateOptions.
TaskResult evaluate_generation(const GenerateTexts& generate, Task task, const Requests& requests,
                               const tokenizer::Ids& end_tokens);

// Answers in generated texts: how a task extracts them, and when one matches the reference. The rules are
// those of lm-evaluation-harness's filters and of its exact_match, for the tasks of readers().

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
