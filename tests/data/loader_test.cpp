#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

constexpr int64_t kSeqLen = 7, kNumTokens = 150, kNumSamples = 21;  // (150 - 1) / 7

class LoaderTest : public testing::Test {
  protected:
    struct Samples {
        std::vector<int64_t> tokens, targets;
    };

    /// The number of each sample, which equals its first token.
    static std::vector<int64_t> order(const Loader& loader, int64_t first, int64_t count) {
        const Samples samples = read(loader, first, count);
        std::vector<int64_t> numbers;
        for (int64_t row = 0; row < count; ++row) numbers.push_back(samples.tokens[row * kSeqLen] / kSeqLen);
        return numbers;
    }

    static Samples read(const Loader& loader, int64_t first, int64_t count) {
        Samples samples{std::vector<int64_t>(count * kSeqLen), std::vector<int64_t>(count * kSeqLen)};
        loader.read(first, count, samples.tokens.data(), samples.targets.data());
        return samples;
    }

    Loader loader(uint64_t seed, bool shuffle) const {
        return Loader(file_, {.seq_len = kSeqLen, .seed = seed, .shuffle = shuffle});
    }

    static std::filesystem::path written(const std::filesystem::path& path) {
        write_tokens(path, counted_tokens(kNumTokens), kNumTokens);
        return path;
    }

    ScratchFolder folder_;
    TokenFile file_{written(folder_ / "a.h5")};
};

TEST_F(LoaderTest, TargetsAreTheTokensThatFollow) {
    const Samples samples = read(loader(1, true), 5, 3);
    for (int64_t row = 0; row < 3; ++row) {
        const int64_t begin = samples.tokens[row * kSeqLen];
        EXPECT_EQ(begin % kSeqLen, 0);
        for (int64_t i = 0; i < kSeqLen; ++i) {
            EXPECT_EQ(samples.tokens[row * kSeqLen + i], begin + i);
            EXPECT_EQ(samples.targets[row * kSeqLen + i], begin + i + 1);
        }
    }
}

TEST_F(LoaderTest, WithoutShufflingRepeatsTheFileInOrder) {
    const Loader plain = loader(1, false);
    EXPECT_EQ(plain.num_samples(), kNumSamples);
    const std::vector<int64_t> numbers = order(plain, 0, 3 * kNumSamples);
    for (int64_t position = 0; position < 3 * kNumSamples; ++position) {
        EXPECT_EQ(numbers[position], position % kNumSamples);
    }
}

TEST_F(LoaderTest, EveryEpochHasEverySampleOnceInItsOwnOrder) {
    const Loader shuffled = loader(1, true);
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
        std::vector<int64_t> numbers = order(shuffled, epoch * kNumSamples, kNumSamples);
        for (const auto& other : epochs) EXPECT_NE(numbers, other);
        epochs.push_back(numbers);
        std::sort(numbers.begin(), numbers.end());
        for (int64_t i = 0; i < kNumSamples; ++i) EXPECT_EQ(numbers[i], i) << "epoch " << epoch;
    }
}

TEST_F(LoaderTest, OrderDependsOnTheSeed) {
    const std::vector<int64_t> numbers = order(loader(1, true), 0, kNumSamples);
    EXPECT_EQ(order(loader(1, true), 0, kNumSamples), numbers);
    EXPECT_NE(order(loader(2, true), 0, kNumSamples), numbers);
}

// A rank's samples do not depend on how its positions are divided into reads, not even across the end of an
// epoch.
TEST_F(LoaderTest, ReadsOfAnySizeGiveTheSameSamples) {
    const Loader shuffled = loader(3, true);
    const std::vector<int64_t> whole = order(shuffled, 0, 3 * kNumSamples);
    for (const int64_t batch : {1, 4, 20}) {
        for (int64_t first = 0; first + batch <= 3 * kNumSamples; first += batch) {
            const std::vector<int64_t> numbers = order(shuffled, first, batch);
            EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), whole.begin() + first))
                << batch << " at " << first;
        }
    }
}

TEST_F(LoaderTest, ReachesFarPositionsAtOnce) {
    const Loader plain = loader(1, false), shuffled = loader(1, true);
    const int64_t far = (int64_t{1} << 50) * kNumSamples;
    EXPECT_EQ(order(plain, far + 4, 1)[0], 4);
    std::vector<int64_t> numbers = order(shuffled, far, kNumSamples);
    EXPECT_NE(numbers, order(shuffled, 0, kNumSamples));
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(numbers, order(plain, 0, kNumSamples));
}

/// The positions that the loader gives for all samples of a file, in the file's order.
std::vector<int64_t> positions_of(const TokenFile& file, int64_t seq_len) {
    const Loader loader(file, {.seq_len = seq_len, .shuffle = false, .attend_across_documents = false});
    const int64_t count = loader.num_samples();
    std::vector<int64_t> tokens(count * seq_len), targets(tokens), positions(tokens);
    loader.read(0, count, tokens.data(), targets.data(), positions.data());
    return positions;
}

// Documents begin anywhere: at and inside of samples, several in one sample, empty ones, one over three
// samples.
TEST_F(LoaderTest, PositionsBeginAgainWithEachDocumentAndSample) {
    const std::filesystem::path path = folder_ / "documents.h5";
    std::vector<int64_t> expected;
    TokenWriter writer(path, 100);
    for (const int64_t length : {2, 1, 0, 5, 4, 0, 0, 11, 6}) {
        writer.append_document(std::vector<uint32_t>(length, 9));
        for (int64_t position = 0; position < length; ++position) expected.push_back(position);
    }
    writer.commit(
        {.vocab_size = 100, .end_of_text = kNoEndOfText, .tokenizer = "none", .tokenizer_digest = ""});
    for (const int64_t seq_len : {1, 3, 4, 7, 28}) {
        std::vector<int64_t> of_samples((static_cast<int64_t>(expected.size()) - 1) / seq_len * seq_len);
        for (int64_t i = 0; i < std::ssize(of_samples); ++i)
            of_samples[i] = std::min(expected[i], i % seq_len);
        EXPECT_EQ(positions_of(TokenFile(path), seq_len), of_samples) << seq_len;
    }
}

TEST_F(LoaderTest, ManyDocumentsAreFoundFromAnyToken) {
    const std::filesystem::path path = folder_ / "many.h5";
    TokenWriter writer(path, 100);
    for (int i = 0; i < 1000; ++i) writer.append_document(std::vector<uint32_t>(i % 7, 1));
    writer.commit(
        {.vocab_size = 100, .end_of_text = kNoEndOfText, .tokenizer = "none", .tokenizer_digest = ""});
    const TokenFile file(path);
    std::vector<int64_t> whole(file.size()), part(9);
    file.copy_positions(0, file.size(), whole.data());
    for (int64_t begin = 0; begin + 9 <= file.size(); ++begin) {
        file.copy_positions(begin, 9, part.data());
        for (int64_t i = 0; i < 9; ++i)
            ASSERT_EQ(part[i], std::min(whole[begin + i], i)) << begin << " " << i;
    }
}

TEST_F(LoaderTest, RefusesSequencesLongerThanTheFile) {
    EXPECT_EQ(Loader(file_, {.seq_len = 149}).num_samples(), 1);
    EXPECT_ERROR(Loader(file_, {.seq_len = 150}), UserError, "a.h5", "150 tokens", "needs 151");
    EXPECT_ERROR(Loader(file_, {.seq_len = 0}), UserError, "0", "1 or more");
    EXPECT_ERROR(read(loader(1, true), -1, 1), RunError, "-1");
}

}  // namespace
}  // namespace argosy::data
