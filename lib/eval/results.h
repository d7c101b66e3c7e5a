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
    RecordScore score;      // the sum over all records
    int64_t num_short = 0;  // records that were left out, because they have fewer than two tokens
};

struct Evaluation {
    std::string model, dtype;
    std::string device = "cpu";  // or "cuda:0", the first GPU
    int64_t num_parameters = 0;
    int64_t batch_tokens = 0, max_length = 0;  // max_length: of a window; 0: no limit
    double started = 0;                        // seconds since 1970, UTC
    double seconds = 0;
    std::vector<TaskResult> tasks;
};

/// A results file begins with this mark. A later evaluation replaces only files with this mark.
inline constexpr const char* kResultsMark = "argosy evaluation";

/// Returns the results as JSON, with two metrics for each task:
///   token_perplexity  exp(-sum of log-likelihoods / number of predicted tokens), over all records
///   token_accuracy    the share of predicted tokens to which the model gives the highest probability
/// The standard errors are "N/A", as in the harness: it has one for a plain mean over records and for metrics
/// that it bootstraps, and none for a mean in which longer records weigh more. `n-samples` counts the records
/// of the file as "original" and the scored ones as "effective"; `n-short` counts those that were left out.
std::string results_json(const Evaluation& evaluation);

/// Returns a Markdown table with a row for each metric of each task. The text ends with a line break.
std::string results_table(const Evaluation& evaluation);

}  // namespace argosy::eval
