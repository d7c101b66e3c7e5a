// Scores windows of tokens: how likely the model finds the tokens that each window predicts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/windows.h"
#include "interop/layerwise_model.h"

namespace argosy::eval {

struct ScoreOptions {
    BatchLimits batch = {};  // what a unit computes at once
    /// Bytes of residual streams that pass a unit before the next unit is read.
    int64_t stream_bytes = 1 << 29;
    /// Called after each unit with the finished share, 0 to 1.
    std::function<void(double share)> progress = {};
};

/// The score of the tokens that the windows of one record predict.
struct RecordScore {
    double log_likelihood = 0;  // in nats
    int64_t num_predicted = 0;
    int64_t num_greedy = 0;  // number of predicted tokens to which the model gives the highest probability
};

/// Scores windows with a model, wherever its weights are: one score per record, the sum over its windows.
using ScoreWindows = std::function<std::vector<RecordScore>(std::span<const Tokens> records,
                                                            const std::vector<Window>& windows)>;

/// Scores equal records once, so that their scores are equal to the last bit: equal choices then count as
/// equal, and the first one wins. Records are equal if they have the same tokens in the same windows.
std::vector<RecordScore> score_distinct(const ScoreWindows& score, std::span<const Tokens> records,
                                        const std::vector<Window>& windows);

/// The scores of a document: one score for its text, or one for each continuation.
using DocumentScores = std::span<const RecordScore>;

/// On a processor, windows are packed, so that what they share is computed once; on a GPU they are padded.
/// One score per record: the sum over its windows. REQUIRES: the tokens are in the vocabulary.
std::vector<RecordScore> score_windows(const interop::LayerwiseModel& model, std::span<const Tokens> records,
                                       const std::vector<Window>& windows, const ScoreOptions& options);

/// The sum of the scores.
RecordScore total(std::span<const RecordScore> scores);

}  // namespace argosy::eval
