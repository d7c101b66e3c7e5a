#include "train/trailing_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace argosy::train {
namespace {

// Minimum deviation as a fraction of the mean: with constant values, rounding must not count as a spike.
constexpr double kMinDeviation = 1e-4;

}  // namespace

void TrailingWindow::add(double value) {
    values_.push_back(value);
    if (static_cast<int>(values_.size()) > size_) values_.pop_front();
}

double TrailingWindow::mean() const {
    return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double TrailingWindow::deviation() const {
    const double middle = mean();
    double squares = 0;
    for (const double value : values_) squares += (value - middle) * (value - middle);
    const double deviation = std::sqrt(squares / static_cast<double>(values_.size() - 1));
    return std::max(deviation, kMinDeviation * std::abs(middle));
}

double TrailingWindow::value_at(double zscore) const {
    if (!has_enough()) return std::numeric_limits<double>::infinity();
    return mean() + zscore * deviation();
}

double TrailingWindow::zscore_of(double value) const {
    if (!has_enough()) return std::numeric_limits<double>::quiet_NaN();
    return (value - mean()) / deviation();
}

}  // namespace argosy::train
