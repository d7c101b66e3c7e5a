#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"
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
    std::filesystem::path file_ = written(folder_ / "a.h5");
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
std::vector<int64_t> positions_of(const std::filesystem::path& file, int64_t seq_len) {
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
        EXPECT_EQ(positions_of(path, seq_len), of_samples) << seq_len;
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

/// The sources of a mixture whose files hold the tokens 0 .. 99, 100 .. 299 and 300 .. 349.
class MixtureTest : public testing::Test {
  protected:
    std::shared_ptr<const TokenSource> source(const char* name, uint32_t first, uint32_t count,
                                              const TokenInfo& info) const {
        std::vector<uint32_t> tokens(count);
        std::iota(tokens.begin(), tokens.end(), first);
        TokenWriter writer(folder_ / name, 350);
        writer.append_document(tokens);
        writer.commit(info);
        return std::make_shared<TokenSource>(folder_ / name);
    }

    std::vector<WeightedSource> sources(double a, double b, double c) const {
        const TokenInfo info{.vocab_size = 350, .tokenizer = "none"};
        return {{source("a.h5", 0, 100, info), a},
                {source("b.h5", 100, 200, info), b},
                {source("c.h5", 300, 50, info), c}};
    }

    /// The first token of each sample.
    static std::vector<int64_t> first_tokens(const Loader& loader, int64_t first, int64_t count) {
        std::vector<int64_t> tokens(count * kSeqLen), targets(tokens), firsts;
        loader.read(first, count, tokens.data(), targets.data());
        for (int64_t row = 0; row < count; ++row) {
            firsts.push_back(tokens[row * kSeqLen]);
            EXPECT_EQ(targets[row * kSeqLen], firsts.back() + 1);
        }
        return firsts;
    }

    static int source_of(int64_t token) { return token < 100 ? 0 : token < 300 ? 1 : 2; }

    ScratchFolder folder_;
};

TEST_F(MixtureTest, NoSampleComesTwiceInAnEpochOfItsSource) {
    const Loader loader(sources(0.2, 0.5, 0.3), {.seq_len = kSeqLen, .seed = 4});
    const int64_t num_samples[] = {14, 28, 7};
    EXPECT_EQ(loader.num_samples(), 14 + 28 + 7);
    constexpr int64_t kCount = 1000;
    const std::vector<int64_t> firsts = first_tokens(loader, 0, kCount);
    std::map<int64_t, int64_t> times;  // of each sample, in all epochs
    int64_t of_source[3] = {};
    for (int64_t position = 0; position < kCount; ++position) {
        const int64_t first = firsts[position];
        const int number = source_of(first);
        // Before its source's epoch e ends, a sample came e + 1 times at most; when it ends, exactly.
        const int64_t epoch = of_source[number]++ / num_samples[number];
        EXPECT_EQ(times[first]++, epoch) << "sample " << first << " at " << position;
    }
    EXPECT_EQ(of_source[0], 200);
    EXPECT_EQ(of_source[1], 500);
    EXPECT_EQ(of_source[2], 300);
}

TEST_F(MixtureTest, ReadsOfAnySizeFromAnywhereGiveTheSameSamples) {
    const Loader loader(sources(3, 1, 2), {.seq_len = kSeqLen, .seed = 4});
    const std::vector<int64_t> whole = first_tokens(loader, 0, 300);
    const Loader again(sources(3, 1, 2), {.seq_len = kSeqLen, .seed = 4});
    for (const int64_t first : {0, 1, 17, 111, 280}) {
        const std::vector<int64_t> part = first_tokens(again, first, 20);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
    }
}

TEST_F(MixtureTest, SamplesAreNumberedFromSourceToSource) {
    const Loader loader(sources(1, 1, 1), {.seq_len = kSeqLen, .shuffle = false});
    EXPECT_EQ(loader.sample_at(0), 0);
    EXPECT_EQ(loader.sample_at(1), 14);
    EXPECT_EQ(loader.sample_at(2), 42);
    EXPECT_EQ(loader.sample_at(3), 1);
    EXPECT_EQ(loader.sample_at(3 * 14), 0) << "the first source's second epoch";
}

TEST_F(MixtureTest, OneSourceIsOrderedAsAlways) {
    const TokenInfo info{.vocab_size = 350, .tokenizer = "none"};
    const Loader mixture({{source("a.h5", 0, 200, info), 0.7}}, {.seq_len = kSeqLen, .seed = 9});
    const Permutation order(28, 9, 1);
    for (int64_t i = 0; i < 28; ++i) EXPECT_EQ(mixture.sample_at(28 + i), order.at(i));
}

TEST_F(MixtureTest, RefusesOtherTokenizers) {
    const TokenInfo none{.vocab_size = 350, .tokenizer = "none"},
        one{.vocab_size = 350, .tokenizer = "x", .tokenizer_digest = "0a"},
        other{.vocab_size = 350, .tokenizer = "x", .tokenizer_digest = "0b"},
        bytes{.vocab_size = 350, .tokenizer = "bytes"};
    const auto load = [&](const TokenInfo& first, const TokenInfo& second) {
        return Loader({{source("a.h5", 0, 100, first)}, {source("b.h5", 100, 100, second)}},
                      {.seq_len = kSeqLen});
    };
    EXPECT_ERROR(load(one, other), UserError, "a.h5", "b.h5", "different tokenizers", "0a", "0b");
    EXPECT_ERROR(load(bytes, other), UserError, "different tokenizers");
    EXPECT_EQ(load(one, one).num_samples(), 28);
    const auto validation = source("v.h5", 0, 100, other);
    EXPECT_ERROR(load(none, one).check_tokenizer(validation->files()[0]), UserError, "v.h5", "b.h5",
                 "different tokenizers");
    EXPECT_EQ(load(none, one).file_with_tokenizer()->path, folder_ / "b.h5");
    EXPECT_EQ(load(none, none).file_with_tokenizer(), nullptr);
    EXPECT_NO_THROW(load(one, one).check_tokenizer(source("v.h5", 0, 100, none)->files()[0]));
    EXPECT_EQ(load(none, one).num_samples(), 28);
}

TEST_F(MixtureTest, FingerprintsTellTheDataApart) {
    const LoaderOptions options{.seq_len = kSeqLen};
    const std::string known = Loader(sources(1, 2, 3), options).fingerprint();
    EXPECT_EQ(known.size(), 16);
    EXPECT_EQ(Loader(sources(2, 4, 6), options).fingerprint(), known);
    EXPECT_NE(Loader(sources(1, 2, 4), options).fingerprint(), known);
    std::vector<WeightedSource> swapped = sources(1, 2, 3);
    std::swap(swapped[0].source, swapped[2].source);
    EXPECT_NE(Loader(swapped, options).fingerprint(), known);
}

TEST_F(LoaderTest, RefusesSequencesLongerThanTheFile) {
    EXPECT_EQ(Loader(file_, {.seq_len = 149}).num_samples(), 1);
    EXPECT_ERROR(Loader(file_, {.seq_len = 150}), UserError, "a.h5", "150 tokens", "needs 151");
    EXPECT_ERROR(Loader(file_, {.seq_len = 0}), UserError, "0", "1 or more");
    EXPECT_ERROR(read(loader(1, true), -1, 1), RunError, "-1");
}

}  // namespace
}  // namespace argosy::data
