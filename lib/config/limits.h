// What a key accepts beyond its type: a range of numbers, or some names. The same data checks a value, and
// says in the help text and in error messages what would have been right.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "config/value.h"

namespace argosy::config {

/// Infinities are outside unless a bound names them.
struct Range {
    double least = std::numeric_limits<double>::lowest();
    double most = std::numeric_limits<double>::max();
    bool least_excluded = false;
    bool most_excluded = false;
    bool or_minus_one = false;  // -1 says "choose for me"
};

struct Limits {
    Range range;
    std::vector<std::string> choices;  // of a Choice or a list of them; for other types empty
};

Limits any();
Limits at_least(double least);
Limits above(double least);  // finite
Limits above_or_infinite(double least);
Limits within(double least, double most);
Limits within_below(double least, double most);  // most itself is excluded
Limits minus_one_or_at_least(double least);
Limits size();  // 1 up to what an int holds, so that a product of two sizes is within an int64_t
Limits minus_one_or_size();

/// ">= 1", "in [0, 1)", "-1 or >= 1"; empty where every number is fine.
std::string range_text(const Range& range);

/// What `value` would have to be, where it breaks the limits: ">= 1", "one of linear, cosine, sqrt". Else
/// empty.
std::string broken_limit(const Limits& limits, const Value& value);

}  // namespace argosy::config
