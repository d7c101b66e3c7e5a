// The evaluation of a task of OutputType::Generation: a text is generated after each document's context,
// greedily, and answers in it are compared with the document's.
#pragma once

#include <functional>

#include "eval/generate.h"
#include "eval/requests.h"
#include "eval/resident_model.h"
#include "eval/task_result.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

/// Calls `progress` with the finished share, 0 to 1, after each document. `end_tokens`: see GenerateOptions.
/// REQUIRES: longest_sequence(work) <= model.max_tokens().
TaskResult evaluate_generation(ResidentModel& model, const tokenizer::Tokenizer& tokenizer, Work work,
                               const tokenizer::Ids& end_tokens,
                               const std::function<void(double share)>& progress);

}  // namespace argosy::eval
