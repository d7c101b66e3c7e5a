#include "eval/score.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "eval/windows.h"
#include "interop/memory_source.h"
#include "support/reference.h"

namespace argosy::eval {
namespace {

using testing::MemorySource;
using testing::Reference;

/// A reference in plain doubles, one token after another, over logits that transformers computed.
RecordScore plain_score(const at::Tensor& logits, const Tokens& record) {
    const int64_t vocab_size = logits.size(1);
    RecordScore score;
    for (size_t i = 0; i + 1 < record.size(); ++i) {
        const float* logit = logits.const_data_ptr<float>() + static_cast<int64_t>(i) * vocab_size;
        double sum = 0;
        int64_t likeliest = 0;
        for (int64_t token = 0; token < vocab_size; ++token) {
            sum += std::exp(static_cast<double>(logit[token]));
            if (logit[token] > logit[likeliest]) likeliest = token;
        }
        score.log_likelihood += logit[record[i + 1]] - std::log(sum);
        score.num_greedy += likeliest == record[i + 1];
        ++score.num_predicted;
    }
    return score;
}

struct RecordOptions : ScoreOptions {
    int64_t max_length = 0;  // 0: a window holds the longest record
};

std::vector<RecordScore> score_records(const interop::LayerwiseModel& model, std::span<const Tokens> records,
                                       const RecordOptions& options = {}) {
    std::vector<Window> windows;
    for (size_t i = 0; i < records.size(); ++i) {
        const int64_t size = std::ssize(records[i]);
        append_windows(static_cast<int64_t>(i), size, options.max_length > 0 ? options.max_length : size - 1,
                       windows);
    }
    return score_windows(model, records, windows, options);
}

class AgainstTransformers : public ::testing::TestWithParam<std::string> {};

TEST_P(AgainstTransformers, LogLikelihoods) {
    const Reference reference(GetParam());
    const MemorySource source(reference.spec(), reference.seed());
    const interop::LayerwiseModel model(source, reference.spec(), at::kFloat);
    const at::Tensor tokens = reference.read("tokens")[0], logits = reference.read("logits");
    std::vector<Tokens> records;
    RecordScore expected;
    for (int64_t sample = 0; sample < tokens.size(0); ++sample) {
        const auto* first = tokens[sample].const_data_ptr<int64_t>();
        // Causality: the logits of a prefix are the prefix of the logits.
        records.emplace_back(first, first + tokens.size(1) - 2 * sample);
        const RecordScore score = plain_score(logits[sample].contiguous(), records.back());
        const RecordScore found = score_records(model, std::span(&records.back(), 1))[0];
        EXPECT_NEAR(found.log_likelihood / score.log_likelihood, 1, 1e-6);
        expected = total(std::vector{expected, score});
    }
    const RecordScore found = total(score_records(model, records));
    EXPECT_EQ(found.num_predicted, expected.num_predicted);
    EXPECT_EQ(found.num_greedy, expected.num_greedy);
    EXPECT_NEAR(found.log_likelihood / expected.log_likelihood, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers, ::testing::ValuesIn(Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

class Scores : public ::testing::Test {
  protected:
    static std::vector<Tokens> random_records(int64_t vocab_size) {
        std::mt19937 random(3);
        std::vector<Tokens> records(17);
        for (Tokens& record : records) {
            record.resize(2 + random() % 150);
            for (uint32_t& token : record) token = random() % vocab_size;
        }
        return records;
    }

    const Reference reference_{"qwen3"};
    const MemorySource source_{reference_.spec(), reference_.seed()};
    const interop::LayerwiseModel model_{source_, reference_.spec(), at::kFloat};
    const std::vector<Tokens> records_ = random_records(reference_.spec().vocab_size);
};

/// Results are equal bit for bit: padding comes after the tokens that count, and no sum depends on the rest
/// of the batch.
TEST_F(Scores, DoesNotDependOnBatchesAndRounds) {
    const auto alone = score_records(model_, records_, {{.batch = {1}}});
    for (const int64_t batch_tokens : {64, 300, 100000}) {
        for (const int64_t stream_bytes : {1, 40000, 1 << 29}) {
            const auto found =
                score_records(model_, records_, {{.batch = {batch_tokens}, .stream_bytes = stream_bytes}});
            for (size_t i = 0; i < records_.size(); ++i) {
                EXPECT_EQ(found[i].log_likelihood, alone[i].log_likelihood) << "record " << i;
                EXPECT_EQ(found[i].num_greedy, alone[i].num_greedy) << "record " << i;
                EXPECT_EQ(found[i].num_predicted, std::ssize(records_[i]) - 1) << "record " << i;
            }
        }
    }
}

/// The score of a record in windows is the sum of its windows' scores, each computed as a record whose
/// context does not count.
TEST_F(Scores, LongRecordsAreSplitIntoRollingWindows) {
    const Tokens record(records_[0].begin(), records_[0].begin() + 30);
    const auto likelihood = [&](const Tokens& tokens, int64_t max_length) {
        return score_records(model_, {&tokens, 1}, {{}, max_length})[0].log_likelihood;
    };
    const auto part = [&](int64_t begin, int64_t end) {
        return likelihood(Tokens(record.begin() + begin, record.begin() + end), 0);
    };
    // Inputs 0..11, 12..23, and 17..28, of which only the last five predictions are new.
    const double expected = part(0, 13) + part(12, 25) + part(17, 30) - part(17, 25);
    EXPECT_NEAR(likelihood(record, 12) / expected, 1, 1e-12);
    EXPECT_NE(likelihood(record, 12), part(0, 30));
    EXPECT_EQ(likelihood(record, 29), part(0, 30));
    EXPECT_EQ(score_records(model_, {&record, 1}, {{}, 12})[0].num_predicted, 29);
}

/// Also where the context does not count, which the head leaves out.
TEST_F(Scores, OfAContinuationAreThoseOfTheWholeWithoutItsContext) {
    const Tokens& record = records_[0];
    const int64_t size = std::ssize(record), num_scored = 5;
    const Tokens context(record.begin(), record.end() - num_scored);
    const auto found = score_windows(model_, {&record, 1}, {{0, 0, size - 1, num_scored}}, {})[0];
    const auto whole = score_records(model_, {&record, 1})[0],
               before = score_records(model_, {&context, 1})[0];
    EXPECT_NEAR(found.log_likelihood / (whole.log_likelihood - before.log_likelihood), 1, 1e-9);
    EXPECT_EQ(found.num_greedy, whole.num_greedy - before.num_greedy);
    EXPECT_EQ(found.num_predicted, num_scored);
}

/// Equal bit for bit: the keys and values that a window shares are those that it would compute.
TEST_F(Scores, DoNotDependOnWhatWindowsShare) {
    Tokens text(60);
    for (size_t i = 0; i < text.size(); ++i) text[i] = i * i % 47;
    std::vector<Tokens> records;
    std::vector<Window> windows;
    for (const int64_t context : {40, 40, 40, 25, 1, 60}) {
        Tokens record(text.begin(), text.begin() + context);
        for (uint32_t i = 0; i < 3 + records.size() % 3; ++i) record.push_back((7 * records.size() + i) % 50);
        const int64_t size = std::ssize(record);
        windows.push_back({std::ssize(records), 0, size - 1, size - context});
        records.push_back(std::move(record));
    }
    const auto together = score_windows(model_, records, windows, {});
    const auto packed = in_packed_batches(windows, records, {});
    EXPECT_GT(std::ranges::count_if(packed[0].num_shared, [](int64_t shared) { return shared > 0; }), 3);
    for (size_t i = 0; i < records.size(); ++i) {
        const auto alone = score_windows(model_, records, {windows[i]}, {})[i];
        EXPECT_EQ(together[i].log_likelihood, alone.log_likelihood) << "record " << i;
        EXPECT_EQ(together[i].num_greedy, alone.num_greedy) << "record " << i;
    }
}

TEST(DistinctScores, EqualRecordsAreScoredOnce) {
    const std::vector<Tokens> records = {{1, 2, 3}, {1, 2}, {1, 2, 3}, {1, 2, 3}, {1, 2}};
    const std::vector<Window> windows = {
        {0, 0, 2, 1}, {1, 0, 1, 1}, {2, 0, 2, 2}, {3, 0, 2, 1}, {4, 0, 1, 1}};
    const auto score = [&](std::span<const Tokens> all, const std::vector<Window>& asked) {
        EXPECT_EQ(asked, (std::vector<Window>{windows[0], windows[1], windows[2]}));
        std::vector<RecordScore> scores(all.size());
        for (size_t i = 0; i < 3; ++i) scores[i].log_likelihood = -1.0 - static_cast<double>(i);
        return scores;
    };
    std::vector<double> found;
    for (const RecordScore& each : score_distinct(score, records, windows))
        found.push_back(each.log_likelihood);
    EXPECT_EQ(found, (std::vector<double>{-1, -2, -3, -1, -2}));
}

TEST_F(Scores, ReportsItsProgress) {
    std::vector<double> shares;
    const auto progress = [&](double share) { shares.push_back(share); };
    score_records(model_, records_, {{.batch = {64}, .stream_bytes = 40000, .progress = progress}});
    EXPECT_GE(std::ssize(shares), 2 * model_.num_units()) << "of several rounds";
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_EQ(shares.back(), 1);
}

}  // namespace
}  // namespace argosy::eval
