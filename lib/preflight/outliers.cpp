#include "preflight/outliers.h"

#include <algorithm>
#include <cmath>

namespace argosy::preflight {
namespace {

constexpr double kMaxShare = 0.9, kMinZscore = 3.5;
// The standard deviation of a normal distribution divided by its median absolute deviation.
constexpr double kDeviations = 1.4826;
// Minimum deviation, as a share of the median: a smaller spread says nothing about the normal spread.
constexpr double kMinDeviation = 0.01;

}  // namespace

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<Outlier> slow_ones(std::span<const double> rates) {
    std::vector<Outlier> outliers;
    for (size_t i = 0; i < rates.size(); ++i) {
        std::vector<double> others, deviations;
        for (size_t j = 0; j < rates.size(); ++j) {
            if (j != i && rates[j] > 0) others.push_back(rates[j]);
        }
        if (others.empty() || rates[i] <= 0) continue;
        const double middle = median(others);
        for (const double other : others) deviations.push_back(std::abs(other - middle));
        const double deviation = std::max(kDeviations * median(deviations), kMinDeviation * middle);
        const Outlier one{i, rates[i] / middle, (middle - rates[i]) / deviation};
        if (one.share < kMaxShare && one.zscore > kMinZscore) outliers.push_back(one);
    }
    return outliers;
}

}  // namespace argosy::preflight
