#include "eval/metrics.h"

#include <gtest/gtest.h>

#include "eval/python_random.h"
#include "eval/text.h"

namespace argosy::eval {
namespace {

// The expected values of this file are Python 3.11's.

TEST(PythonRandom, DrawsTheNumbersOfPython) {
    PythonRandom random(1234);  // random.Random(1234)
    EXPECT_EQ(random.uniform(), 0.9664535356921388);
    EXPECT_EQ(random.uniform(), 0.4407325991753527);
    EXPECT_EQ(PythonRandom(0).uniform(), 0.8444218515250481);
    EXPECT_EQ(PythonRandom(99).uniform(), 0.40397807494366633);
}

TEST(PythonRandom, Samples) {
    EXPECT_EQ(PythonRandom(1234).sample(10, 4), (std::vector<size_t>{7, 1, 0, 9}));
    EXPECT_EQ(PythonRandom(1234).sample(1000, 6), (std::vector<size_t>{989, 796, 451, 119, 7, 92}));
    EXPECT_EQ(PythonRandom(7).sample(21, 21).size(), 21u);
}

TEST(Text, IsCountedAsPythonDoes) {
    EXPECT_EQ(num_code_points("a\u00e4\u4eca\U0001f6a2"), 4);
    EXPECT_EQ(num_words(""), 1);
    EXPECT_EQ(num_words("one"), 1);
    EXPECT_EQ(num_words(" one  two\n\n"), 4);
    EXPECT_EQ(num_words("a\u00a0b\u2003\u3000c\x1c"
                        "d\u200be"),
              4)
        << "a zero-width space is no whitespace";
    EXPECT_EQ(stripped("\u2003 a b\u0085\n"), "a b");
    EXPECT_EQ(left_stripped("\u2003 a b \n"), "a b \n");
    EXPECT_EQ(right_stripped("\u00e4 \u3000"), "\u00e4");
    EXPECT_EQ(stripped(" \t"), "");
    EXPECT_EQ(replaced("aXbXXc", "X", "--"), "a--b----c");
}

Term term(const char* name, OutputType type, const Document& document, std::vector<RecordScore> scores) {
    return find_metric(name, type).term(document, scores);
}

TEST(Metrics, ChoicesAreNormalisedByCodePointsOrBytes) {
    const Document document{.choices = {"ab", "\u4eca\u65e5\u306f"}, .gold = 1};
    const auto value = [&](const char* name, double first, double second) {
        return term(name, OutputType::Choices, document, {{first}, {second}}).value;
    };
    EXPECT_EQ(value("acc", -4, -5), 0);
    EXPECT_EQ(value("acc_norm", -4, -5), 1) << "-2 and -1.67 for a code point";
    EXPECT_EQ(value("acc_norm", -4, -6.1), 0);
    EXPECT_EQ(value("acc_bytes", -4, -17.9), 1) << "-2 and -1.99 for a byte";
    EXPECT_EQ(value("acc_bytes", -4, -18.1), 0);
    EXPECT_EQ(value("acc", -4, -4), 0) << "the first of equal ones";
}

/// statistics.stdev([1, 0, 0, 1, 1]) / math.sqrt(5), and the harness's bootstrap_stderr(perplexity, ...).
TEST(Metrics, StandardErrors) {
    const Metric& acc = find_metric("acc", OutputType::Choices);
    const std::vector<Term> right = {{1}, {0}, {0}, {1}, {1}};
    EXPECT_DOUBLE_EQ(aggregate(acc, right).value, 0.6);
    EXPECT_DOUBLE_EQ(aggregate(acc, right).standard_error.value(), 0.24494897427831783);
    EXPECT_FALSE(aggregate(acc, std::vector<Term>{{1}}).standard_error.has_value());
    const std::vector<Term> likelihoods = {{-1.5}, {-0.25}, {-3}};
    const MetricValue found = aggregate(find_metric("perplexity", OutputType::Continuation), likelihoods);
    EXPECT_NEAR(found.value, 4.871165999245474, 1e-12);
    EXPECT_NEAR(found.standard_error.value(), 4.141879746606333, 1e-9);
}

TEST(Metrics, LongerDocumentsWeighMore) {
    const std::vector<Term> terms = {{-6, 2}, {-1, 5}};
    const MetricValue found = aggregate(find_metric("bits_per_byte", OutputType::Rolling), terms);
    EXPECT_NEAR(found.value, 1 / 0.69314718055994531, 1e-12);
    EXPECT_FALSE(found.standard_error.has_value());
    EXPECT_NEAR(aggregate(find_metric("byte_perplexity", OutputType::Rolling), terms).value,
                2.718281828459045, 1e-12);
}

}  // namespace
}  // namespace argosy::eval
