#include "plan/tensor_collectives.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "layout/mesh_shape.h"

namespace argosy::plan {
namespace {

/// Seconds of products before a launch, between it and its wait, and after the wait.
struct Neighbours {
    double before = 0, meanwhile = 0, after = 0;
};

std::vector<Neighbours> neighbours_of(const RankTrace& trace) {
    std::vector<Neighbours> found(trace.launches.size());
    std::vector<double> at_launch(trace.launches.size());
    double products = 0;  // so far
    for (size_t i = 0; i < trace.events.size(); ++i) {
        const Event& event = trace.events[i];
        const auto products_of = [&](size_t index) {
            return index < trace.events.size() ? trace.events[index].product_seconds : 0;
        };
        if (event.kind == Event::Kind::Compute) {
            products += event.product_seconds;
        } else if (event.kind == Event::Kind::Launch) {
            at_launch[event.launch] = products;
            found[event.launch].before = products_of(i - 1);  // i = 0: no event has such a number
        } else {
            found[event.launch].meanwhile = products - at_launch[event.launch];
            found[event.launch].after = products_of(i + 1);
        }
    }
    return found;
}

/// Why collectives like the launch, with these neighbours, do not overlap. `any_in_parts`: others of the step
/// are in parts.
std::string why_not(comm::OpKind kind, const Launch& launch, const Neighbours& products, bool any_in_parts) {
    if (!launch.is_beside) return "processors move the data themselves";
    if (products.meanwhile > 0) return "";
    if (kind == comm::OpKind::ReduceScatter && products.before == 0) return "no product before it";
    if (kind == comm::OpKind::AllGather && products.after == 0) return "no product after it";
    const bool of_layers = launch.pass != std::string_view(observe::name_of(observe::ComputeKind::Other));
    const bool can_be_in_parts =
        of_layers && (kind == comm::OpKind::ReduceScatter || kind == comm::OpKind::AllGather);
    if (can_be_in_parts && !any_in_parts) return "enable_async_tensor_parallel is off";
    return "the next operation needs all of it";
}

bool is_listed(const Launch& launch, int num_tensor_ranks) {
    const std::string tensor = layout::AxisSet(layout::Axis::Tensor).name();
    const bool of_tensors = launch.group == "world" || launch.group.ends_with(tensor);
    return launch.purpose.work == std::string_view("experts") || (num_tensor_ranks > 1 && of_tensors);
}

bool is_in_parts(const Launch& launch) { return launch.purpose.part_of.has_value(); }

}  // namespace

std::vector<TensorCollective> tensor_collectives(const RankTrace& trace, const RankTime& time,
                                                 int num_tensor_ranks) {
    const bool any_in_parts = std::ranges::any_of(trace.launches, is_in_parts);
    const std::vector<Neighbours> neighbours = neighbours_of(trace);
    std::vector<TensorCollective> found;
    std::vector<Neighbours> sums;         // of the rows
    std::vector<const Launch*> launches;  // the first of each row
    for (size_t i = 0; i < trace.launches.size(); ++i) {
        const Launch& launch = trace.launches[i];
        // 1. the row of the launch
        if (!is_listed(launch, num_tensor_ranks)) continue;
        const comm::OpKind kind = launch.purpose.part_of.value_or(launch.kind);
        const auto key = [](const TensorCollective& of) {
            return std::tie(of.group, of.pass, of.work, of.kind, of.in_parts);
        };
        TensorCollective one{launch.group, launch.pass, launch.purpose.work, kind, is_in_parts(launch)};
        auto row = std::ranges::find(found, key(one), key);
        if (row == found.end()) {
            row = found.insert(row, std::move(one));
            sums.emplace_back();
            launches.push_back(&launch);
        }
        // 2. its figures
        ++row->number;
        row->moved.sent += launch.moved.sent;
        row->moved.received += launch.moved.received;
        row->seconds += launch.seconds;
        row->exposed_seconds += time.exposed_of_launches[i];
        Neighbours& sum = sums[row - found.begin()];
        sum.before += neighbours[i].before;
        sum.meanwhile += neighbours[i].meanwhile;
        sum.after += neighbours[i].after;
    }
    for (size_t i = 0; i < found.size(); ++i) {
        found[i].product_seconds = sums[i].meanwhile;
        found[i].why_not = why_not(found[i].kind, *launches[i], sums[i], any_in_parts);
        if (found[i].in_parts) found[i].number /= num_tensor_ranks - 1;
    }
    return found;
}

}  // namespace argosy::plan
