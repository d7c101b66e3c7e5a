// Token perplexity of records of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/layerwise_model.h"
#include "eval/windows.h"

namespace argosy::eval {

struct PerplexityOptions {
    int64_t max_length = 0;         // inputs that the model sees at once; 0: the longest record's
    int64_t batch_tokens = 2048;    // that a unit computes at once
    int64_t round_bytes = 1 << 29;  // of residual streams that pass a unit before the next one is read
    std::function<void(double share)> progress = {};  // called after each unit with the share that is done
};

/// Of one record: its first token is context, each later one is predicted from those before.
struct RecordScore {
    double log_likelihood = 0;  // in nats
    int64_t num_predicted = 0;
    int64_t num_greedy = 0;  // of these no token was likelier
};

/// The most inputs that the model will see at once.
int64_t longest_window(std::span<const Tokens> records, int64_t max_length);

/// One score for each record. REQUIRES: two tokens at least in each, all of the vocabulary.
std::vector<RecordScore> score_records(const LayerwiseModel& model, std::span<const Tokens> records,
                                       const PerplexityOptions& options);

/// The sum.
RecordScore total(std::span<const RecordScore> scores);

/// exp(-log-likelihood / predicted tokens).
double token_perplexity(const RecordScore& score);

}  // namespace argosy::eval
