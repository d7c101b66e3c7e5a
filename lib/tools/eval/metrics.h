// The metrics of tasks, with the names, definitions and standard errors of lm-evaluation-harness.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/readers.h"
#include "eval/score.h"

namespace argosy::eval {

/// The contribution of a document to a metric. The sums over documents are aggregated.
struct Term {
    double value = 0;   // a log-likelihood, or 1 for a right answer
    double weight = 1;  // a number of words, bytes or tokens
};

enum class Aggregation {
    Mean,                // of the values; standard error: sample deviation / sqrt(documents)
    Perplexity,          // exp(-mean of the values); standard error: bootstrap
    WeightedMean,        // sum of the values / sum of the weights
    WeightedPerplexity,  // exp(-weighted mean)
    BitsPerByte,         // -weighted mean / ln 2
};

struct Metric {
    const char* name;
    OutputType type;  // the type of the tasks that have it
    bool higher_is_better;
    Aggregation aggregation;
    /// Null for exact_match, whose terms come from answers: see generation_tasks.h.
    Term (*term)(const Document& document, DocumentScores scores);
};

/// The metric of this name for tasks of this type. REQUIRES: there is one.
const Metric& find_metric(const std::string& name, OutputType type);

struct MetricValue {
    const Metric* metric = nullptr;
    double value = 0;
    /// None for one document, and for the aggregations with weights: the harness has none for them.
    std::optional<double> standard_error = {};
    const char* filter = "none";  // the name of the answers' filter
};

/// REQUIRES: there are terms. The bootstrap draws the harness's 100000 resamples with its seeds, on all
/// compute threads.
MetricValue aggregate(const Metric& metric, std::span<const Term> terms);

}  // namespace argosy::eval
