// The values that a key accepts beyond its type: a range of numbers, or some names. The same data checks a
// value and describes the accepted values in the help text and in error messages.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "config/value.h"

namespace argosy::config {

/// Infinities are outside unless one is given as a bound.
struct Range {
    double least = std::numeric_limits<double>::lowest();
    double most = std::numeric_limits<double>::max();
    bool least_excluded = false;
    bool most_excluded = false;
    bool or_minus_one = false;  // -1 means "choose for me"
};

struct Limits {
    Range range;
    std::vector<std::string> choices;  // for a Choice or a list of them; empty for other types
};

Limits any();
Limits at_least(double least);
Limits above(double least);  // finite
Limits above_or_infinite(double least);
Limits within(double least, double most);
Limits within_below(double least, double most);  // `most` itself is excluded
Limits minus_one_or_at_least(double least);
Limits size();  // 1 to the maximum int, so that a product of two sizes fits an int64_t
Limits minus_one_or_size();

/// ">= 1", "in [0, 1)", "-1 or >= 1"; empty if every number is allowed.
std::string range_text(const Range& range);

/// The limit that `value` breaks: ">= 1", "one of linear, cosine, sqrt". Empty if it breaks none.
std::string broken_limit(const Limits& limits, const Value& value);

}  // namespace argosy::config
