// Token perplexity over records of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/layerwise_model.h"
#include "eval/windows.h"

namespace argosy::eval {

struct PerplexityOptions {
    int64_t max_length = 0;       // maximum inputs of a window; 0: the longest record's
    int64_t batch_tokens = 2048;  // tokens that a unit computes at once
    /// Bytes of residual streams that pass a unit before the next unit is read.
    int64_t stream_bytes = 1 << 29;
    /// Called after each unit with the finished share, 0 to 1.
    std::function<void(double share)> progress = {};
};

/// The score of one record. The first token is context; each later token is predicted from those before it.
struct RecordScore {
    double log_likelihood = 0;  // in nats
    int64_t num_predicted = 0;
    int64_t num_greedy = 0;  // number of predicted tokens to which the model gives the highest probability
};

/// The maximum number of inputs in a window.
int64_t longest_window(std::span<const Tokens> records, int64_t max_length);

/// One score per record. REQUIRES: each record has at least two tokens, all in the vocabulary.
std::vector<RecordScore> score_records(const LayerwiseModel& model, std::span<const Tokens> records,
                                       const PerplexityOptions& options);

/// The sum of the scores.
RecordScore total(std::span<const RecordScore> scores);

/// exp(-log-likelihood / predicted tokens).
double token_perplexity(const RecordScore& score);

}  // namespace argosy::eval
