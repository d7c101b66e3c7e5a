// The evaluation of one task: from documents to metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/metrics.h"
#include "eval/requests.h"
#include "eval/score.h"
#include "eval/task_file.h"

namespace argosy::eval {

struct TaskResult {
    Task task;
    std::vector<std::vector<Term>> terms;  // of each metric: one for each document
    std::vector<MetricValue> metrics;
    std::vector<std::vector<RecordScore>> scores;  // of each document; none for OutputType::Generation
    std::vector<std::string> texts;  // of OutputType::Generation: what follows each document's context
    int64_t num_predicted = 0;       // or generated tokens
    int64_t num_cut = 0;             // requests of which the beginning is left out, because they are too long
};

/// A log-likelihood is not finite. The message names the document.
class NotFiniteError : public DamageError {
  public:
    using DamageError::DamageError;
};

/// Scores the requests, which are those of the task's documents. Throws NotFiniteError if a log-likelihood is
/// not finite: no mean would be finite then.
TaskResult evaluate(const ScoreWindows& score, Task task, const Requests& requests);

/// How a task's texts are generated, as the harness's files say it.
nlohmann::ordered_json generation_arguments(const Reader& reader);

/// The lines of a samples file, one JSON object for each document and filter, with the keys of the harness's
/// files except for the hashes: what was asked, what the model answered, and what each metric makes of it.
std::string samples_jsonl(const TaskResult& result);

}  // namespace argosy::eval
