// The newest values of a series, and the z-score of another value: its distance above their mean, in standard
// deviations.
#pragma once

#include <deque>
#include <vector>

namespace argosy::train {

class TrailingWindow {
  public:
    /// Keeps the newest `size` values, and gives no z-scores before it has `min_values` values.
    /// REQUIRES: 2 <= min_values <= size.
    TrailingWindow(int size, int min_values) : size_(size), min_values_(min_values) {}

    void add(double value);
    std::vector<double> values() const { return {values_.begin(), values_.end()}; }  // oldest first

    /// The value that has this z-score; infinite while the window has fewer than `min_values` values.
    double value_at(double zscore) const;
    /// The inverse of value_at(); NaN while the window has fewer than `min_values` values.
    double zscore_of(double value) const;
    double mean() const;

  private:
    bool has_enough() const { return static_cast<int>(values_.size()) >= min_values_; }
    double deviation() const;

    int size_, min_values_;
    std::deque<double> values_;
};

}  // namespace argosy::train
