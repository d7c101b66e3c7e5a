// The results of an evaluation in lm-evaluation-harness's layout: a JSON object, and a table for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/task_result.h"

namespace argosy::eval {

struct Evaluation {
    std::string model, dtype;
    std::string device = "cpu";  // or "cuda:0", the first GPU
    int64_t num_parameters = 0;
    std::string tokenizer = {};  // as on the command line; empty: none
    int64_t batch_tokens = 0, batch_size = 0;
    int64_t max_length = 0;  // of a window; 0: the model's, and no limit for records of tokens
    int64_t limit = 0;       // documents of a task; 0: all
    double started = 0;      // seconds since 1970, UTC
    double seconds = 0;
    std::vector<TaskResult> tasks;
};

/// A results file begins with this mark. A later evaluation replaces only files with this mark.
inline constexpr const char* kResultsMark = "argosy evaluation";

/// Returns the results as JSON, with the metrics of each task's reader. A standard error that does not exist
/// is "N/A". `n-samples` counts the records of the file as "original" and the scored ones as "effective".
/// Keys that the harness does not have: `n-short` counts records of tokens that predict nothing, `n-cut`
/// requests that were too long, `n-tokens` predicted tokens.
std::string results_json(const Evaluation& evaluation);

/// Returns a Markdown table with a row for each metric of each task. The text ends with a line break.
std::string results_table(const Evaluation& evaluation);

}  // namespace argosy::eval
