#include "data/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace argosy::data {
namespace {

double log_of(int64_t count) { return std::log(static_cast<double>(count)); }

constexpr int64_t kFirstSlots = 1024;

/// Fibonacci hashing: the top bits of a product with 2^64 over the golden ratio.
size_t hash(uint64_t pair, size_t num_slots) {
    return (pair * 0x9E3779B97F4A7C15) >> (64 - std::countr_zero(num_slots));
}

}  // namespace

void StreamStatistics::add(std::span<const uint32_t> tokens) {
    for (const uint32_t token : tokens) {
        if (token >= counts_.size()) counts_.resize(token + size_t{1});
        ++counts_[token];
        if (num_tokens_++ > 0) pairs_.add(last_, token);
        last_ = token;
    }
}

double StreamStatistics::unigram_entropy() const {
    double sum = 0;
    for (const int64_t count : counts_) {
        if (count > 0) sum += static_cast<double>(count) * (log_of(num_tokens_) - log_of(count));
    }
    return num_tokens_ == 0 ? 0 : sum / static_cast<double>(num_tokens_);
}

double StreamStatistics::bigram_entropy() const {
    std::vector<int64_t> firsts(counts_.size());
    pairs_.for_each([&](uint32_t first, uint32_t, int64_t count) { firsts[first] += count; });
    double sum = 0;
    pairs_.for_each([&](uint32_t first, uint32_t, int64_t count) {
        sum += static_cast<double>(count) * (log_of(firsts[first]) - log_of(count));
    });
    return pairs_.total() == 0 ? 0 : sum / static_cast<double>(pairs_.total());
}

PairCounts::PairCounts(int64_t max_slots) : slots_(std::min(kFirstSlots, max_slots)), max_slots_(max_slots) {}

void PairCounts::add(uint32_t first, uint32_t second) {
    if (full_) return;
    const uint64_t pair = uint64_t{first} << 32 | second;
    Slot* slot = &find(pair);
    if (slot->count == 0) {
        full_ = !make_room();
        if (full_) return;
        slot = &find(pair);  // making room may have moved the slots
        slot->pair = pair;
        ++num_used_;
    }
    ++slot->count;
    ++total_;
}

/// Returns the slot of a pair, or the free slot for it.
PairCounts::Slot& PairCounts::find(uint64_t pair) {
    size_t at = hash(pair, slots_.size());
    while (slots_[at].count > 0 && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
}

/// Returns whether one more distinct pair fits; doubles the table if needed.
bool PairCounts::make_room() {
    const auto num_slots = static_cast<int64_t>(slots_.size());
    if (4 * (num_used_ + 1) <= 3 * num_slots) return true;
    if (2 * num_slots > max_slots_) return false;
    std::vector<Slot> old(2 * num_slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
        if (slot.count > 0) find(slot.pair) = slot;
    }
    return true;
}

}  // namespace argosy::data
