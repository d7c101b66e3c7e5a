// Entropy of a token stream under the two simplest models, fitted to that stream itself: one knows how often
// each token occurs, the other also knows the token before. A trained model must get below the second value
// to have learned more than pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/pair_counts.h"

namespace argosy::data {

class StreamStatistics {
  public:
    void add(std::span<const uint32_t> tokens);

    /// Sum over tokens of -p log p, in nats per token.
    double unigram_entropy() const;

    /// The mean of -log p(token | token before), in nats per token, over all adjacent pairs, including those
    /// across document borders. If the stream has too many distinct pairs for the table, only its beginning
    /// counts.
    double bigram_entropy() const;

    /// The number of tokens that `bigram_entropy` covers.
    int64_t bigram_tokens() const { return pairs_.total() + (num_tokens_ > 0 ? 1 : 0); }

  private:
    std::vector<int64_t> counts_;  // by token
    PairCounts pairs_;
    int64_t num_tokens_ = 0;
    uint32_t last_ = 0;
};

}  // namespace argosy::data
