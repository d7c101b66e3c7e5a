#include "data/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"

namespace argosy::data {
namespace {

std::vector<uint32_t> repeated(const std::vector<uint32_t>& cycle, int times) {
    std::vector<uint32_t> tokens;
    for (int i = 0; i < times; ++i) tokens.insert(tokens.end(), cycle.begin(), cycle.end());
    return tokens;
}

TEST(StreamStatistics, NoTokensAndOneToken) {
    StreamStatistics statistics;
    EXPECT_EQ(statistics.unigram_entropy(), 0);
    EXPECT_EQ(statistics.bigram_entropy(), 0);
    statistics.add(std::vector<uint32_t>{5});
    EXPECT_EQ(statistics.unigram_entropy(), 0);
    EXPECT_EQ(statistics.bigram_entropy(), 0);
}

TEST(StreamStatistics, AnAlternatingStreamHasNoBigramEntropy) {
    StreamStatistics statistics;
    statistics.add(repeated({3, 8}, 1000));
    EXPECT_NEAR(statistics.unigram_entropy(), std::log(2), 1e-12);
    EXPECT_NEAR(statistics.bigram_entropy(), 0, 1e-12);
    EXPECT_EQ(statistics.bigram_tokens(), 2000);
}

TEST(StreamStatistics, AUniformStreamHasTheFullEntropy) {
    StreamStatistics statistics;
    RandomStream random(1, "statistics", 0);
    std::vector<uint32_t> tokens(1'000'000);
    for (uint32_t& token : tokens) token = random.below(16);
    statistics.add(tokens);
    EXPECT_NEAR(statistics.unigram_entropy(), std::log(16), 1e-3);
    EXPECT_NEAR(statistics.bigram_entropy(), std::log(16), 1e-3);
}

// In 0 0 1 0 0 1 ... a 0 is followed by 0 or 1 half of the time each, a 1 always by 0.
TEST(StreamStatistics, WeighsEachContextByHowOftenItOccurs) {
    StreamStatistics statistics;
    statistics.add(repeated({0, 0, 1}, 100'000));
    EXPECT_NEAR(statistics.unigram_entropy(), std::log(3) - 2.0 / 3 * std::log(2), 1e-12);
    EXPECT_NEAR(statistics.bigram_entropy(), 2.0 / 3 * std::log(2), 1e-5);
}

TEST(StreamStatistics, DoesNotDependOnHowTheStreamIsCut) {
    RandomStream random(2, "statistics", 0);
    std::vector<uint32_t> tokens(10'000);
    for (uint32_t& token : tokens) token = random.below(random.between(1, 100'000));
    StreamStatistics whole, pieces;
    whole.add(tokens);
    for (size_t begin = 0; begin < tokens.size(); begin += 100)
        pieces.add(std::span(tokens).subspan(begin, 100));
    EXPECT_EQ(whole.unigram_entropy(), pieces.unigram_entropy());
    EXPECT_EQ(whole.bigram_entropy(), pieces.bigram_entropy());
}

TEST(PairCounts, CountsLikeAMapWhileItGrows) {
    PairCounts counts;
    std::map<std::pair<uint32_t, uint32_t>, int64_t> expected, found;
    RandomStream random(3, "pairs", 0);
    for (int i = 0; i < 100'000; ++i) {
        const uint32_t first = random.below(300), second = random.below(300) << 14;
        counts.add(first, second);
        ++expected[{first, second}];
    }
    counts.for_each([&](uint32_t first, uint32_t second, int64_t count) { found[{first, second}] = count; });
    EXPECT_EQ(found, expected);
    EXPECT_EQ(counts.total(), 100'000);
}

TEST(PairCounts, AFullTableHasTheCountsOfTheBeginning) {
    PairCounts counts(16);  // twelve distinct pairs fit
    for (uint32_t i = 0; i < 100; ++i) {
        counts.add(i, i);
        counts.add(0, 0);
    }
    int distinct = 0;
    counts.for_each([&](uint32_t first, uint32_t, int64_t count) {
        EXPECT_EQ(count, first == 0 ? 13 : 1) << first;
        ++distinct;
    });
    EXPECT_EQ(distinct, 12);
    EXPECT_EQ(counts.total(), 24);
}

}  // namespace
}  // namespace argosy::data
