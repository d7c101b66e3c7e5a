// The measurements between the ranks of a job, with the backends of nccl-bench.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/clock.h"
#include "bench/backend.h"
#include "bench/collective.h"
#include "bench/measure.h"
#include "observe/peak_flops.h"
#include "preflight/speed.h"

namespace argosy::preflight {
namespace {

constexpr int kProductRounds = 3;        // the best round counts; the others may be disturbed
constexpr size_t kTrialBytes = 4 << 20;  // a trial of this size predicts the time of larger operations
constexpr double kMaxIterations = 10000;
constexpr size_t kMaxPairBytes = 64 << 20;

class RankMeter : public Meter {
  public:
    RankMeter(const mpi::Comm& world, const bench::ControlChannel& control, const std::vector<Node>& nodes,
              const SpeedOptions& options, double started)
        : world_(world),
          control_(control),
          nodes_(nodes),
          options_(options),
          started_(started),
          choice_(bench::choose_backend(world, control, options.backend)) {}

    std::string library() const override { return choice_.library; }
    std::vector<cuda::Device> devices() const override { return choice_.devices; }
    /// The device of the matrix products. A CPU build of LibTorch computes on CPUs only, even where the
    /// tests' stand-ins for GPUs exist.
    c10::Device device() const override {
        if (choice_.devices.empty() || !c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return c10::kCPU;
        return {c10::kCUDA, static_cast<c10::DeviceIndex>(choice_.devices[world_.rank()].number)};
    }

    double seconds_passed() override { return control_.exchange(seconds_now() - started_).front(); }

    std::vector<double> products() override {
        std::vector<double> best(world_.size());
        for (int round = 0; round < kProductRounds; ++round) {
            control_.barrier("matrix products");
            const auto peak = observe::measure_gemm_peak(options_.type, options_.seconds_each, device());
            for (int rank = 0; const double other : control_.exchange(peak.flops_per_second)) {
                best[rank] = std::max(best[rank], other);
                ++rank;
            }
        }
        return best;
    }

    OperationSpeed operation(const StepOperation& operation) override {
        const Measured measured = measure(operation.kind, backend_of(operation.groups));
        OperationSpeed speed{operation, {}, measured.num_wrong};
        speed.operation.kind = measured.kind;
        for (const std::vector<int>& group : operation.groups) {
            double slowest = 0;
            for (const int rank : group) slowest = std::max(slowest, measured.seconds[rank]);
            const double factor = operation.kind.collective->bus_factor(static_cast<int>(group.size()));
            speed.bus_bandwidths.push_back(static_cast<double>(measured.kind.bytes) * factor / slowest);
        }
        return speed;
    }

    std::vector<PairSpeed> pairs(const Round& round) override {
        const size_t bytes = std::min(kMaxPairBytes, options_.max_bytes);
        const bench::Case kind{.collective = &bench::collective_named("sendrecv"),
                               .type = ElementType::Float32,
                               .chunk_elements = bytes / sizeof(float),
                               .bytes = bytes};
        const Measured measured = measure(kind, *backend_on(pair_of_own(round)));
        std::vector<PairSpeed> pairs;
        for (int node = 0; node < std::ssize(nodes_); ++node) {
            if (node < round[node]) pairs.push_back(pair_speed(node, round[node], measured));
        }
        return pairs;
    }

  private:
    struct Measured {
        bench::Case kind;                // with as many bytes as the time allows
        std::vector<double> seconds;     // time of one operation by rank, the median of its iterations
        std::vector<int64_t> num_wrong;  // elements by rank
    };

    using Groups = std::vector<std::vector<int>>;

    /// COLLECTIVE: the backend of this rank's group. Backends are kept, because NCCL takes seconds to connect
    /// a large group. The key is the list of all groups, so all ranks agree on whether to make a new backend.
    bench::Backend& backend_of(const Groups& groups) {
        std::unique_ptr<bench::Backend>& backend = backends_[groups];
        if (!backend) {
            const auto is_own = [&](const auto& group) {
                return std::ranges::binary_search(group, world_.rank());
            };
            backend = backend_on(*std::ranges::find_if(groups, is_own));
        }
        return *backend;
    }

    std::unique_ptr<bench::Backend> backend_on(const std::vector<int>& members) const {
        return bench::make_backend(world_, control_, members, choice_, options_.timeout_seconds);
    }

    /// COLLECTIVE: each group measures on its own backend. After the trial of affordable(), the first
    /// measurement has two iterations, verifies the result, and shows how many iterations fit into
    /// `seconds_each`. The second has so many.
    Measured measure(const bench::Case& wanted, bench::Backend& backend) const {
        bench::Options options{.iterations = 2};
        bench::Measurement measurement(backend, world_, control_, options, wanted.bytes);
        const bench::Case kind = affordable(wanted, measurement, backend.size());
        const bench::Timing first = measurement.measure(kind, bench::Placement::OutOfPlace);
        // `measurement` refers to `options`
        options.iterations =
            static_cast<int>(std::clamp(options_.seconds_each / first.slowest.mean, 1.0, kMaxIterations));
        options.checks = 0;
        const bench::Timing timed = measurement.measure(kind, bench::Placement::OutOfPlace);
        return {kind, control_.exchange(timed.own_seconds), control_.exchange(first.own_wrong)};
    }

    /// COLLECTIVE: returns `wanted`, or the same case with fewer bytes if one operation of `wanted` would
    /// take longer than `seconds_each`. Fewer bytes saturate such a slow link, too. All ranks get the same
    /// case, because the trial's time is the same on all ranks.
    bench::Case affordable(const bench::Case& wanted, bench::Measurement& measurement, int num_ranks) const {
        if (wanted.bytes <= kTrialBytes) return wanted;
        const auto trial = bench::case_of(wanted, kTrialBytes, num_ranks);
        if (!trial) return wanted;
        const double seconds = measurement.measure(*trial, bench::Placement::OutOfPlace).slowest.mean;
        const double bytes = static_cast<double>(trial->bytes) * options_.seconds_each / seconds;
        if (bytes >= static_cast<double>(wanted.bytes)) return wanted;
        return bench::case_of(wanted, static_cast<size_t>(bytes), num_ranks).value_or(*trial);
    }

    /// This rank and the rank with the same index on the partner node; this rank alone if no such rank
    /// exists.
    std::vector<int> pair_of_own(const Round& round) const {
        for (size_t node = 0; node < nodes_.size(); ++node) {
            const auto own = std::ranges::find(nodes_[node].ranks, world_.rank());
            if (own == nodes_[node].ranks.end()) continue;
            const auto number = static_cast<size_t>(own - nodes_[node].ranks.begin());
            const Node& partner = nodes_[round[node]];
            if (number >= partner.ranks.size() || partner.ranks[number] == *own) break;
            return {std::min(*own, partner.ranks[number]), std::max(*own, partner.ranks[number])};
        }
        return {world_.rank()};
    }

    PairSpeed pair_speed(int first, int second, const Measured& measured) const {
        const auto& [kind, seconds, num_wrong] = measured;
        const std::vector<int>&own = nodes_[first].ranks, &others = nodes_[second].ranks;
        PairSpeed pair{first, second};
        for (size_t i = 0; i < std::min(own.size(), others.size()); ++i) {
            pair.rails.push_back(static_cast<double>(kind.bytes) /
                                 std::max(seconds[own[i]], seconds[others[i]]));
            pair.num_wrong += num_wrong[own[i]] + num_wrong[others[i]];
        }
        return pair;
    }

    const mpi::Comm& world_;
    const bench::ControlChannel& control_;
    const std::vector<Node>& nodes_;
    const SpeedOptions& options_;
    double started_;
    bench::BackendChoice choice_;
    std::map<Groups, std::unique_ptr<bench::Backend>> backends_;
};

}  // namespace

std::unique_ptr<Meter> make_meter(const mpi::Comm& world, const bench::ControlChannel& control,
                                  const std::vector<Node>& nodes, const SpeedOptions& options,
                                  double started) {
    return std::make_unique<RankMeter>(world, control, nodes, options, started);
}

}  // namespace argosy::preflight
