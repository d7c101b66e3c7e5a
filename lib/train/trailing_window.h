// The newest values of a series, and how far above them another one stands, in standard deviations: its
// z-score.
#pragma once

#include <deque>
#include <vector>

namespace argosy::train {

class TrailingWindow {
  public:
    /// Of the newest `size` values; says nothing before it holds `least` of them. REQUIRES: 2 <= least <=
    /// size.
    TrailingWindow(int size, int least) : size_(size), least_(least) {}

    void add(double value);
    std::vector<double> values() const { return {values_.begin(), values_.end()}; }  // the oldest first

    /// The value of that z-score; infinite while the window says nothing.
    double value_at(double zscore) const;
    /// The inverse; NaN while the window says nothing.
    double zscore_of(double value) const;
    double mean() const;

  private:
    bool knows() const { return static_cast<int>(values_.size()) >= least_; }
    double deviation() const;

    int size_, least_;
    std::deque<double> values_;
};

}  // namespace argosy::train
