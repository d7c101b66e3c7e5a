// The results of an evaluation in lm-evaluation-harness's layout: a JSON object, and a table for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/perplexity.h"

namespace argosy::eval {

struct TaskResult {
    std::string name, path;
    int64_t num_records = 0;
    RecordScore score;  // of all records together
};

struct Evaluation {
    std::string model, dtype;
    std::string device = "cpu";  // "cuda:0": the first GPU
    int64_t num_parameters = 0;
    int64_t batch_tokens = 0, max_length = 0;
    double started = 0;  // seconds since 1970, UTC
    double seconds = 0;
    std::vector<TaskResult> tasks;
};

/// The JSON results begin with this mark. A later evaluation replaces only files that have it.
inline constexpr const char* kResultsMark = "argosy evaluation";

/// The metrics of each task:
///   token_perplexity  exp(-sum of log-likelihoods / number of predicted tokens), over all records
///   token_accuracy    the share of predicted tokens to which the model gives the highest probability
/// Neither is a mean over records, so their standard errors are "N/A".
std::string results_json(const Evaluation& evaluation);

/// The table in Markdown; the text ends with a line break.
std::string results_table(const Evaluation& evaluation);

}  // namespace argosy::eval
