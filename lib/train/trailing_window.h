// The newest values of a series, and the z-score of another value: its distance above their mean, in standard
// deviations.
#pragma once

#include <deque>
#include <vector>

namespace argosy::train {

class TrailingWindow {
  public:
    /// Keeps the newest `size` values, and gives no z-scores before it has `least` values.
    /// REQUIRES: 2 <= least <= size.
    TrailingWindow(int size, int least) : size_(size), least_(least) {}

    void add(double value);
    std::vector<double> values() const { return {values_.begin(), values_.end()}; }  // oldest first

    /// The value that has this z-score; infinite while the window has fewer than `least` values.
    double value_at(double zscore) const;
    /// The inverse of value_at(); NaN while the window has fewer than `least` values.
    double zscore_of(double value) const;
    double mean() const;

  private:
    bool knows() const { return static_cast<int>(values_.size()) >= least_; }
    double deviation() const;

    int size_, least_;
    std::deque<double> values_;
};

}  // namespace argosy::train
