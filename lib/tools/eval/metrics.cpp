#include "eval/metrics.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string_view>

#include "base/error.h"
#include "eval/python_random.h"
#include "eval/text.h"

namespace argosy::eval {
namespace {

double log_likelihood(DocumentScores scores, size_t i = 0) { return scores[i].log_likelihood; }

/// Whether the right choice has the largest log-likelihood divided by length(choice). The first of equal ones
/// counts.
template <class Length>
Term right_choice(const Document& document, DocumentScores scores, Length length) {
    std::vector<double> shares;
    for (size_t i = 0; i < scores.size(); ++i) {
        shares.push_back(log_likelihood(scores, i) / length(document.choices[i]));
    }
    const auto best = std::ranges::max_element(shares) - shares.begin();
    return {best == document.gold ? 1.0 : 0.0};
}

/// The share of the true choices in the probability of all, as TruthfulQA's mc2 has it.
Term true_share(const Document& document, DocumentScores scores) {
    double largest = log_likelihood(scores);
    for (size_t i = 1; i < scores.size(); ++i) largest = std::max(largest, log_likelihood(scores, i));
    double all = 0, of_true = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
        const double share = std::exp(log_likelihood(scores, i) - largest);
        all += share;
        if (document.are_true[i]) of_true += share;
    }
    return {of_true / all};
}

Term acc(const Document& document, DocumentScores scores) {
    if (!document.are_true.empty()) return true_share(document, scores);
    return right_choice(document, scores, [](std::string_view) { return 1.0; });
}
Term acc_norm(const Document& document, DocumentScores scores) {
    return right_choice(document, scores,
                        [](std::string_view choice) { return static_cast<double>(num_code_points(choice)); });
}
Term acc_bytes(const Document& document, DocumentScores scores) {
    return right_choice(document, scores,
                        [](std::string_view choice) { return static_cast<double>(choice.size()); });
}
Term greedy(const Document&, DocumentScores scores) {
    return {scores[0].num_greedy == scores[0].num_predicted ? 1.0 : 0.0};
}
Term likelihood(const Document&, DocumentScores scores) { return {log_likelihood(scores)}; }
const std::string& counted_text(const Document& document) {
    return document.page.empty() ? document.text : document.page;
}
Term per_word(const Document& document, DocumentScores scores) {
    return {log_likelihood(scores), static_cast<double>(num_words(counted_text(document)))};
}
Term per_byte(const Document& document, DocumentScores scores) {
    return {log_likelihood(scores), static_cast<double>(counted_text(document).size())};
}
Term per_token(const Document&, DocumentScores scores) {
    return {log_likelihood(scores), static_cast<double>(scores[0].num_predicted)};
}
Term greedy_tokens(const Document&, DocumentScores scores) {
    return {static_cast<double>(scores[0].num_greedy), static_cast<double>(scores[0].num_predicted)};
}

constexpr Metric kMetrics[] = {
    {"token_accuracy", OutputType::TokenIds, true, Aggregation::WeightedMean, greedy_tokens},
    {"token_perplexity", OutputType::TokenIds, false, Aggregation::WeightedPerplexity, per_token},
    {"word_perplexity", OutputType::Rolling, false, Aggregation::WeightedPerplexity, per_word},
    {"byte_perplexity", OutputType::Rolling, false, Aggregation::WeightedPerplexity, per_byte},
    {"bits_per_byte", OutputType::Rolling, false, Aggregation::BitsPerByte, per_byte},
    {"token_perplexity", OutputType::Rolling, false, Aggregation::WeightedPerplexity, per_token},
    {"acc", OutputType::Continuation, true, Aggregation::Mean, greedy},
    {"perplexity", OutputType::Continuation, false, Aggregation::Perplexity, likelihood},
    {"acc", OutputType::Choices, true, Aggregation::Mean, acc},
    {"acc_norm", OutputType::Choices, true, Aggregation::Mean, acc_norm},
    {"acc_bytes", OutputType::Choices, true, Aggregation::Mean, acc_bytes},
    {"exact_match", OutputType::Generation, true, Aggregation::Mean, nullptr},
};

double mean(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
    const double middle = mean(values);
    double squares = 0;
    for (const double value : values) squares += (value - middle) * (value - middle);
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double perplexity(std::span<const double> values) { return std::exp(-mean(values)); }

/// bootstrap_stderr(perplexity) of the harness: chunk i of the resamples is drawn by Random(i).
double bootstrap_error(std::span<const double> values) {
    constexpr int64_t kNumResamples = 100000, kChunk = 1000;
    std::vector<double> results(kNumResamples);
    at::parallel_for(0, kNumResamples / kChunk, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
        std::vector<double> drawn(values.size());
        for (int64_t chunk = begin; chunk < end; ++chunk) {
            PythonRandom random(static_cast<uint32_t>(chunk));
            for (int64_t i = 0; i < kChunk; ++i) {
                for (double& value : drawn) {
                    const double place = random.uniform() * static_cast<double>(values.size());
                    value = values[static_cast<size_t>(place)];
                }
                results[chunk * kChunk + i] = perplexity(drawn);
            }
        }
    });
    return sample_deviation(results);
}

std::optional<double> standard_error(Aggregation aggregation, std::span<const double> values) {
    if (values.size() < 2) return {};
    if (aggregation == Aggregation::Mean) {
        return sample_deviation(values) / std::sqrt(static_cast<double>(values.size()));
    }
    if (aggregation == Aggregation::Perplexity) return bootstrap_error(values);
    return {};
}

double value_of(Aggregation aggregation, double mean_value) {
    switch (aggregation) {
        case Aggregation::Mean:
        case Aggregation::WeightedMean:
            return mean_value;
        case Aggregation::Perplexity:
        case Aggregation::WeightedPerplexity:
            return std::exp(-mean_value);
        case Aggregation::BitsPerByte:
            return -mean_value / std::numbers::ln2;
    }
    ARGOSY_CHECK(false, "aggregation {}", static_cast<int>(aggregation));
}

}  // namespace

const Metric& find_metric(const std::string& name, OutputType type) {
    const auto found = std::ranges::find_if(
        kMetrics, [&](const Metric& metric) { return metric.name == name && metric.type == type; });
    ARGOSY_CHECK(found != std::end(kMetrics), "there is no metric {}", name);
    return *found;
}

MetricValue aggregate(const Metric& metric, std::span<const Term> terms) {
    std::vector<double> values;
    double sum = 0, weight = 0;
    for (const Term& term : terms) {
        values.push_back(term.value);
        sum += term.value;
        weight += term.weight;
    }
    return {&metric, value_of(metric.aggregation, sum / weight), standard_error(metric.aggregation, values)};
}

}  // namespace argosy::eval
