#include "data/statistics.h"

#include <cmath>

namespace argosy::data {
namespace {

double log_of(int64_t count) { return std::log(static_cast<double>(count)); }

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

}  // namespace argosy::data
