#include "bench/benchmark.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/backend.h"

namespace argosy::bench {
namespace {

/// All ranks pause after each print. If ranks occupy every core, the launcher (mpirun) takes a core from a
/// rank to forward the printed text, and the next measurement must not begin before the text is forwarded.
/// All ranks pause, not only rank 0, because the kernel's scheduler would favour the only rank that had
/// paused.
constexpr std::chrono::milliseconds kTimeToForward{2};

using Print = std::function<void(const std::string&)>;

/// The arguments that are the same for all mesh axes of a run.
struct Run {
    const mpi::Comm& world;
    const ControlChannel& control;
    const Options& options;
    const BackendChoice& choice;
    const Print& print;
    const MakeBackend& make;
};

/// A mesh axis and this rank's group on it.
struct Axis {
    std::string name;
    int num_groups;
    std::vector<int> members;
};

std::vector<int> numbers(int first, int step, int count) {
    std::vector<int> result(count);
    for (int i = 0; i < count; ++i) result[i] = first + i * step;
    return result;
}

/// The mesh axes to measure. An axis of size 1 is left out, because a collective on one rank measures
/// nothing. "all" is left out if it equals the only other axis.
std::vector<Axis> axes_of(const Options& options, int rank, int num_ranks) {
    const Axis all = {"all", 1, numbers(0, 1, num_ranks)};
    if (!options.mesh) return {all};
    const auto [across, within] = *options.mesh;
    std::vector<Axis> axes;
    if (within > 1) axes.push_back({"within", across, numbers(rank / within * within, 1, within)});
    if (across > 1) axes.push_back({"across", within, numbers(rank % within, within, across)});
    if (axes.size() != 1) axes.push_back(all);
    return axes;
}

/// Warns when the ranks of a mesh row are not all on one node.
void warn_of_rows_across_nodes(const GroupShape& mesh, const std::vector<RankInfo>& ranks) {
    for (int row = 0; row < mesh.across; ++row) {
        std::set<std::string> hosts;
        for (int i = 0; i < mesh.within; ++i) hosts.insert(ranks[row * mesh.within + i].host);
        if (hosts.size() == 1) continue;
        spdlog::warn(
            "--mesh {}x{}: ranks {} to {} are on {} nodes (one is {}), so \"within\" is not within a node; "
            "start as many ranks on each node as a row has",
            mesh.across, mesh.within, row * mesh.within, (row + 1) * mesh.within - 1, hosts.size(),
            *hosts.begin());
        return;
    }
}

void warn_of_nccl_tests_variables() {
    for (const auto& [name, value] : communication_variables()) {
        if (!name.starts_with("NCCL_TESTS_")) continue;
        spdlog::warn(
            "nccl-bench ignores {}={}: --mesh splits the ranks, --min-busbw sets the minimum bandwidth", name,
            value);
    }
}

std::vector<Case> cases_without_size(const Collective& collective, const Options& options, int group_size) {
    std::vector<std::optional<Reduction>> reductions = {std::nullopt};
    if (collective.reduces) reductions.assign(options.reductions.begin(), options.reductions.end());
    std::vector<int> roots = {options.root.value_or(0)};
    if (collective.rooted && !options.root) roots = numbers(0, 1, group_size);
    std::vector<Case> kinds;
    for (const ElementType type : options.types) {
        for (const auto reduction : reductions) {
            for (const int root : roots) kinds.push_back({&collective, type, reduction, root, 0, 0});
        }
    }
    return kinds;
}

/// All cases to measure on a mesh axis, in order.
std::vector<Case> cases_of(const Collective& collective, const Options& options, const Axis& axis) {
    const int size = static_cast<int>(axis.members.size());
    if (collective.rooted && options.root && *options.root >= size) {
        throw UserError("--root {}: the groups of mesh axis {} have {} ranks; take a root below that, or all",
                        *options.root, axis.name, size);
    }
    std::vector<Case> cases;
    size_t too_small = 0;
    for (const Case& kind : cases_without_size(collective, options, size)) {
        for (const size_t bytes : sizes_of(options.sweep)) {
            if (const auto one = case_of(kind, bytes, size)) {
                cases.push_back(*one);
            } else {
                too_small = std::max(too_small, bytes);
            }
        }
    }
    if (too_small > 0 && !cases.empty()) {
        spdlog::info("left out some sizes up to {} bytes: too small for one element on each of {} ranks",
                     too_small, size);
    }
    if (cases.empty()) {
        throw UserError(
            "{} on {} ranks: --maxbytes {} is too small; each rank needs at least one element of {}",
            collective.name, size, options.sweep.max_bytes, name(options.types.front()));
    }
    return cases;
}

/// Describes how a group is connected over MPI: within a node, or across a number of nodes. MPI tells no
/// more.
std::string describe_mpi_transport(const Axis& axis, const std::vector<RankInfo>& ranks) {
    std::set<std::string> hosts;
    for (const int member : axis.members) hosts.insert(ranks[member].host);
    return hosts.size() == 1 ? "host memory, within a node"
                             : fmt::format("host memory, across {} nodes", hosts.size());
}

/// COLLECTIVE: describes the connections between the ranks of all groups of a mesh axis.
std::vector<std::string> transport_of(const Run& run, const Axis& axis, const Backend& backend) {
    const bool on_host = run.choice.devices.empty();
    const std::vector<std::string> found =
        on_host ? std::vector{describe_mpi_transport(axis, run.control.ranks())} : backend.connections();
    std::set<std::string> all;
    for (const std::string& other : run.control.exchange_texts(fmt::format("{}", fmt::join(found, "\n")))) {
        std::istringstream lines(other);
        for (std::string line; std::getline(lines, line);) all.insert(line);
    }
    return {all.begin(), all.end()};
}

ProductOptions product_options(const Run& run) {
    ProductOptions options{.max_multiprocessors = run.options.product_multiprocessors};
    const auto& devices = run.choice.devices;
    if (!devices.empty()) options.device = devices[run.world.rank()].number;
    if (options.device || options.max_multiprocessors == 0) return options;
    throw UserError("--product-sms {} is for products on GPUs, and this run has none",
                    options.max_multiprocessors);
}

AxisResults run_axis(const Run& run, const Axis& axis) {
    const auto& [world, control, options, choice, print, make] = run;
    const std::vector<Case> cases = cases_of(collective_named(options.collective), options, axis);
    const auto backend = make(world, control, axis.members, choice, options.timeout_seconds);
    size_t max_bytes = 0;
    for (const Case& one : cases) max_bytes = std::max(max_bytes, one.bytes);
    Measurement measurement(*backend, world, control, options, max_bytes);
    // NCCL may choose a connection by the size of an operation, and reports a connection only after its first
    // use. The smallest and the largest case therefore run once.
    for (const Case& one : {cases.front(), cases.back()}) measurement.connect(one);
    AxisResults results{axis.name, axis.num_groups, static_cast<int>(axis.members.size())};
    results.transport = transport_of(run, axis, *backend);
    std::optional<Products> products;
    if (options.beside_products) products.emplace(product_options(run));
    print(table_header(results, options));
    for (const Case& one : cases) {
        Row row{.kind = one};
        row.out_of_place = measurement.measure(one, Placement::OutOfPlace);
        row.in_place = measurement.measure(one, Placement::InPlace);
        if (products) row.beside = measurement.measure_beside(one, row.out_of_place, *products);
        row.ended = Clock::now();
        print(table_row(row, options));
        results.rows.push_back(row);
    }
    print(table_footer(results, options));
    return results;
}

}  // namespace

Results run_benchmark(const mpi::Comm& world, const ControlChannel& control, const Options& options,
                      const Print& print, const MakeBackend& make) {
    Results results;
    results.started = Clock::now();
    const Print print_once = [&](const std::string& text) {
        if (world.rank() == 0) print(text);
        std::this_thread::sleep_for(kTimeToForward);
    };
    if (world.rank() == 0) warn_of_nccl_tests_variables();
    if (options.mesh && world.rank() == 0) warn_of_rows_across_nodes(*options.mesh, control.ranks());
    results.choice = choose_backend(world, control, options.backend);
    print_once(preamble(options, results.choice, control.ranks()));
    const Run run{world, control, options, results.choice, print_once, make};
    for (const Axis& axis : axes_of(options, world.rank(), world.size())) {
        results.axes.push_back(run_axis(run, axis));
    }
    print_once(epilogue(options));
    results.ended = Clock::now();
    return results;
}

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
