#include "bench/results.h"

#include <algorithm>

namespace argosy::bench {

int64_t AxisResults::num_wrong() const {
    int64_t wrong = 0;
    for (const Row& row : rows)
        wrong += row.out_of_place.num_wrong.value_or(0) + row.in_place.num_wrong.value_or(0);
    return wrong;
}

double AxisResults::mean_bus_bandwidth() const {
    double sum = 0;
    for (const Row& row : rows) sum += row.out_of_place.bus_bandwidth + row.in_place.bus_bandwidth;
    return rows.empty() ? 0 : sum / 1e9 / static_cast<double>(2 * rows.size());
}

bool below_minimum(const AxisResults& axis, const Options& options) {
    return options.min_bus_bandwidth && axis.mean_bus_bandwidth() < *options.min_bus_bandwidth;
}

bool Results::passed(const Options& options) const {
    return std::ranges::all_of(axes, [&](const AxisResults& axis) {
        return axis.num_wrong() == 0 && !below_minimum(axis, options);
    });
}

}  // namespace argosy::bench
