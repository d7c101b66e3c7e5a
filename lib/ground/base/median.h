// Medians, which differ for an even number of values.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace argosy {

/// The middle value, or the lower of two middle values. REQUIRES: `values` is not empty.
inline double lower_median(std::vector<double> values) {
    const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// The middle value, or the upper of two middle values; 0 if `values` is empty.
inline double upper_median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// lower_median() and upper_median(); both are 0 if there are no values. More than half of the values are at
/// least the lower one. Perhaps only half of the values are at least the upper one.
struct Medians {
    double lower = 0, upper = 0;
};
inline Medians both_medians(const std::vector<double>& values) {
    if (values.empty()) return {};
    return {lower_median(values), upper_median(values)};
}

/// The middle value, or the mean of the two middle values. REQUIRES: `values` is not empty.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::ranges::nth_element(values, middle);
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace argosy
