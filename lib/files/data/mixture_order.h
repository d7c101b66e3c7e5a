// Mixes streams in given proportions. The position in the mixture and the weights alone determine the stream
// and the element of it that comes there.
//
// The k-th element of a stream of weight w has the time (2k + 1) / 2w, the middle of the k-th of w equal
// parts of each unit of time; the mixture is all elements in the order of their times (equal times: in the
// order of the streams). Invariants, for S streams whose weights are whole numbers of sum W:
//   1. Positions iW .. (i+1)W-1 hold w elements of a stream of weight w, for every i.
//   2. Before position p, a stream has had p w / W elements, give or take 1/2 + S w / (2 W).
// Cost: at() takes O(S^2).
#pragma once

#include <cstdint>
#include <vector>

namespace argosy::data {

class MixtureOrder {
  public:
    /// `weights` are positive and in any unit. Their decimal digits count: 0.7 and 0.3 mean exactly 7 and 3.
    /// Throws UserError if the digits are too many for that, such as those of 1e9 and 1e-9.
    explicit MixtureOrder(const std::vector<double>& weights);

    struct Element {
        int64_t stream = 0;
        int64_t number = 0;  // within the stream, from 0
        bool operator==(const Element&) const = default;
    };

    /// REQUIRES: position >= 0.
    Element at(int64_t position) const;

    /// The weights as the smallest whole numbers.
    const std::vector<int64_t>& weights() const { return weights_; }

  private:
    std::vector<int64_t> weights_;
    int64_t total_ = 0;
};

}  // namespace argosy::data
