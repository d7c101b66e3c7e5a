// The evaluation of a task of OutputType::Generation: a text is generated after each document's context,
// greedily, and answers in it are compared with the document's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
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

}  // namespace argosy::eval
