// Entropy of a token stream under the two simplest models, fitted to that stream: the unigram model knows how
// often each token occurs, and the bigram model also knows the token before. A trained model has learned more
// than pairs only if its loss is below the bigram entropy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace argosy::data {

// Counts pairs of tokens in a hash table with open addressing, which grows up to a fixed size (256 MiB).
// Counting stops at the first pair that does not fit, so the counts describe the beginning of the stream.

class PairCounts {
  public:
    /// `max_slots` is a power of two; at most three quarters of the slots are used.
    explicit PairCounts(int64_t max_slots = int64_t{1} << 24);

    void add(uint32_t first, uint32_t second);

    /// Number of counted pairs, including repeats.
    int64_t total() const { return total_; }

    /// Calls visit(first, second, count) for each distinct pair.
    template <class Visit>
    void for_each(Visit visit) const {
        for (const Slot& slot : slots_) {
            if (slot.count == 0) continue;
            visit(static_cast<uint32_t>(slot.pair >> 32), static_cast<uint32_t>(slot.pair), slot.count);
        }
    }

  private:
    struct Slot {
        uint64_t pair = 0;
        int64_t count = 0;  // 0: a free slot
    };
    Slot& find(uint64_t pair);
    bool make_room();

    std::vector<Slot> slots_;
    int64_t max_slots_;
    int64_t num_used_ = 0, total_ = 0;
    bool full_ = false;
};

class StreamStatistics {
  public:
    void add(std::span<const uint32_t> tokens);

    /// Sum over distinct tokens of -p log p, in nats per token.
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
