#include "plan/machine.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/median.h"
#include "base/units.h"
#include "nccl/comm.h"
#include "observe/peak_flops.h"
#include "ops/attention.h"
#include "ops/float8.h"
#include "ops/glu.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"

namespace argosy::plan {
namespace {

constexpr double kLongBlocksOfProduct = 0.81;  // of the share of other products in float8 (gpus.cpp)

bool is_message(const comm::RecordedOp& op) {
    return op.kind == comm::OpKind::Send || op.kind == comm::OpKind::Receive;
}

/// The route of an all-to-all, if each node has equally many ranks and each other rank gets an equal share of
/// `bytes`.
Route route_of_parts(double bytes, int size, int num_nodes) {
    const double num_others = size - 1, num_in_node = static_cast<double>(size) / num_nodes - 1;
    Route route;
    if (size > num_nodes) route.in_node = {bytes * num_in_node / num_others, 1};
    if (num_nodes > 1) route.between_nodes = {bytes * (num_others - num_in_node) / num_others, 1};
    return route;
}

/// Runs `work` again and again for 0.1 s, and 5 times at least. Returns the median of the times.
double typical_seconds(const std::function<void()>& work) {
    constexpr size_t kMinRuns = 5;
    work();
    std::vector<double> times;
    const double deadline = seconds_now() + 0.1;
    while (times.size() < kMinRuns || seconds_now() < deadline) {
        const double start = seconds_now();
        work();
        times.push_back(seconds_now() - start);
    }
    return upper_median(std::move(times));
}

at::Tensor matrix(int64_t rows, int64_t columns, at::ScalarType type) {
    return at::full({rows, columns}, 0.1, type);
}

/// Copies of a matrix, one after the other, more than a core's caches hold: a step's operands come from
/// memory.
class ColdMatrix {
  public:
    ColdMatrix(int64_t rows, int64_t columns, at::ScalarType type) {
        constexpr double kBytes = 128e6;
        const double bytes = static_cast<double>(rows * columns) * at::elementSize(type);
        const auto count = static_cast<int64_t>(std::clamp(kBytes / bytes, 1.0, 64.0));
        for (int64_t i = 0; i < count; ++i) copies_.push_back(matrix(rows, columns, type));
    }
    const at::Tensor& next() { return copies_[num_taken_++ % copies_.size()]; }

  private:
    std::vector<at::Tensor> copies_;
    size_t num_taken_ = 0;
};

/// The operation of a size, to be timed. None if it would take long or much memory.
std::function<void()> operation(const Machine::Size& size, at::ScalarType type) {
    constexpr double kMaxElements = 1e8, kMaxFlops = 2e10;
    const auto rows = static_cast<double>(size.rows), columns = static_cast<double>(size.columns),
               terms = static_cast<double>(size.terms);
    const bool is_product = size.kind == ops::WorkKind::Product;
    const double flops = 2 * rows * columns * (is_product ? terms : 5 * rows / 2);
    if (flops > kMaxFlops || rows * columns + (rows + columns) * terms > kMaxElements) return nullptr;
    if (is_product) {
        return
            [x = ColdMatrix(size.rows, size.terms, type),
             w = ColdMatrix(size.columns, size.terms, type)]() mutable { ops::linear(x.next(), w.next()); };
    }
    const auto shape = ops::AttentionShape::of_whole_sequences(1, size.rows, size.terms);
    ColdMatrix q(size.rows, size.columns, type);
    if (size.kind == ops::WorkKind::Attention)
        return [q, shape]() mutable { ops::attention(q.next(), q.next(), q.next(), shape); };
    return [q, shape, output = ops::attention(q.next(), q.next(), q.next(), shape)]() mutable {
        ops::attention_backward(q.next(), q.next(), q.next(), q.next(), output, shape);
    };
}

/// Calls `run` once and returns its Work.
ops::Work work_of(const std::function<void()>& run) {
    ops::Work found;
    const ops::WorkObserver observer([&](const ops::Work& each) { found = each; });
    run();
    return found;
}

Machine::Size size_of(const ops::Work& work) { return {work.kind, work.rows, work.columns, work.terms}; }

}  // namespace

double Machine::peak(at::ScalarType type) const {
    if (ops::is_float8(type)) return float8_flops;
    if (type == at::kBFloat16) return narrow_flops;
    return type == at::kDouble ? fp64_flops : fp32_flops;
}

double Machine::seconds(const ops::Work& work) const {
    const double in_memory = work.bytes / (memory_speed * pass_share);
    if (work.kind == ops::WorkKind::Pass) return in_memory + launch_seconds;
    const double share = work.by_flash                         ? flash_share
                         : work.kind != ops::WorkKind::Product ? attention_share
                         : work.in_long_blocks                 ? kLongBlocksOfProduct * product_share
                                                               : product_share;
    const auto measured = measured_flops.find(size_of(work));
    const double speed = measured == measured_flops.end() ? peak(work.type) * share : measured->second;
    return std::max(in_memory, work.flops * slowest_of_ranks / speed) + launch_seconds;
}

int Machine::num_nodes(const std::vector<int>& world_ranks) const {
    std::set<int> nodes;
    for (const int rank : world_ranks) nodes.insert(rank / ranks_per_node);
    return static_cast<int>(nodes.size());
}

double Machine::seconds(std::span<const comm::RecordedOp> launch, const std::vector<int>& world_ranks) const {
    const int num_nodes_of_group = num_nodes(world_ranks);
    double in_node_seconds = 0, between_seconds = 0, latency = 0;
    for (const comm::RecordedOp& op : launch) {
        const auto [near, far] =
            route_of(op, is_message(op) ? num_nodes({world_ranks[op.rank], world_ranks[op.peer]})
                                        : num_nodes_of_group);
        const Link &near_link = in_node.of(op.kind), &far_link = between_nodes.of(op.kind);
        in_node_seconds += near.bytes / near_link.bytes_per_second;
        between_seconds += far.bytes / far_link.bytes_per_second;
        latency =
            std::max(latency, near.hops * near_link.latency_seconds + far.hops * far_link.latency_seconds);
    }
    return latency + std::max(in_node_seconds, between_seconds);
}

double Machine::held_by_collective() const {
    return multiprocessors > 0 ? static_cast<double>(collective_channels) / multiprocessors : 0;
}

int64_t Machine::bytes_of(const comm::RecordedConnections& made) const {
    return nccl::kChannelBytes *
           (made.collectives * collective_channels + made.messages_in * message_channels);
}

const Link& Links::of(comm::OpKind kind) const {
    const auto found = measured.find(kind);
    return found == measured.end() ? usual : found->second;
}

Route route_of(const comm::RecordedOp& op, int num_nodes) {
    const comm::MovedBytes moved = comm::moved_bytes(op);
    const auto bytes = static_cast<double>(std::max(moved.sent, moved.received));
    if (is_message(op))
        return num_nodes == 1 ? Route{.in_node = {bytes, 1}} : Route{.between_nodes = {bytes, 1}};
    if (op.kind == comm::OpKind::AllToAll) return route_of_parts(bytes, op.size, num_nodes);
    const int rounds = op.kind == comm::OpKind::AllReduce ? 2 : 1;  // of the ring
    const int hops_between = num_nodes > 1 ? num_nodes : 0;
    Route route;
    if (op.size > num_nodes) route.in_node = {bytes, rounds * std::max(0, op.size - 1 - hops_between)};
    if (num_nodes > 1) route.between_nodes = {bytes * num_nodes / op.size, rounds * hops_between};
    return route;
}

double expected_largest(int count) {
    // The integral of the probability to be above x over x > 0, less that to be below x over x < 0. Beyond 9
    // there is nothing for any number of GPUs.
    constexpr double kEnd = 9, kStep = 1e-3;
    double sum = 0;
    for (double x = kStep / 2; x < kEnd; x += kStep) {
        const auto all_below = [&](double bound) {
            return std::pow(std::erfc(-bound / std::sqrt(2)) / 2, count);
        };
        sum += (1 - all_below(x) - all_below(-x)) * kStep;
    }
    return sum;
}

Machine measure_processor(std::span<const ops::Work> work, at::ScalarType type, int num_ranks) {
    const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
    const double crowded = std::max(1.0, static_cast<double>(num_ranks * ops::num_threads()) / num_cores);
    const std::function<void()> pass = [x = ColdMatrix(512, 2048, type)]() mutable {
        ops::glu(x.next(), ops::Activation::Silu);
    };
    Machine machine{.name = "cpu",
                    .ranks_per_node = num_ranks,
                    .memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE) / num_ranks,
                    .memory_speed = work_of(pass).bytes / typical_seconds(pass) / crowded,
                    .launch_seconds = 1e-6};
    for (const ops::Work& each : work) {
        if (each.kind == ops::WorkKind::Pass || machine.measured_flops.contains(size_of(each))) continue;
        const std::function<void()> run = operation(size_of(each), type);
        if (run) machine.measured_flops[size_of(each)] = work_of(run).flops / typical_seconds(run) / crowded;
    }
    const double peak = observe::measure_gemm_peak(type).flops_per_second / crowded;
    machine.narrow_flops = machine.fp32_flops = machine.fp64_flops = peak;
    machine.product_share = machine.attention_share = machine.flash_share =
        0.8;  // of sizes that are too large to be measured
    machine.in_node.usual =
        machine.between_nodes.usual = {machine.memory_speed / 4, 2e-5, "a quarter of the memory's speed"};
    return machine;
}

}  // namespace argosy::plan
