// What communication costs a rank that computes meanwhile: a collective is submitted, the rank computes for
// some 50 ms, then it waits. For each size and backend, over the ranks' slowest and the least of some
// repetitions:
//   exposed   the time in submit() and wait(), as the trainer reports it (Communicator::exposed_seconds)
//   CPU       the processor time of the whole beyond that of the computing alone: the price of communicating,
//             whoever pays it, with that of looking for an answer
// Sizes are those of the whole buffer: what is gathered, or what each rank has to be summed up. Results are
// verified before anything is timed. Run on ranks: jobs/mpirun.sh 2 build/tests/bench_comm [--quick]
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/group.h"
#include "mpi/program.h"

namespace argosy::comm {
namespace {

constexpr double kComputeSeconds = 0.05;
constexpr int64_t kSharedMemoryBytes = 64 << 20;

double cpu_seconds() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Cost {
    double exposed_ms = 1e9, cpu_ms = 1e9;
};

/// A fixed amount of work: products that stay in the second-level cache.
class Computing {
  public:
    explicit Computing(Communicator& group) {
        run(1);
        double start = cpu_seconds();
        run(20);
        const double products = kComputeSeconds / ((cpu_seconds() - start) / 20);
        const at::Tensor most = at::full({1}, static_cast<int64_t>(products), at::kLong);
        group.run({OpKind::AllReduce, most, most, Reduction::Max});
        num_products_ = most.item<int64_t>();
        for (int i = 0; i < 10; ++i) {
            start = cpu_seconds();
            run();
            seconds_alone_ = std::min(seconds_alone_, cpu_seconds() - start);
        }
    }
    void run() const { run(num_products_); }
    double seconds_alone() const { return seconds_alone_; }

  private:
    void run(int64_t products) const {
        at::Tensor product;
        for (int64_t i = 0; i < products; ++i) product = at::matmul(a_, a_);
    }
    at::Tensor a_ = at::ones({192, 192});
    int64_t num_products_ = 0;
    double seconds_alone_ = 1e9;
};

Op operation(OpKind kind, int64_t bytes, at::ScalarType type, const Communicator& group) {
    const int64_t piece = bytes / static_cast<int64_t>(c10::elementSize(type)) / group.size();
    const at::Tensor whole = at::ones({piece * group.size()}, type), part = at::ones({piece}, type);
    if (kind == OpKind::AllGather) return {kind, whole, part};
    if (kind == OpKind::ReduceScatter) return {kind, part, whole};
    return {kind, at::empty_like(whole), whole};
}

void verify(Communicator& group, const Op& op) {
    op.out.zero_();
    group.run(op);
    const double expected = op.kind == OpKind::AllGather ? 1 : group.size();
    ARGOSY_CHECK(op.out.eq(expected).all().item<bool>(), "wrong results");
}

double slowest(Communicator& group, double seconds) {
    const at::Tensor most = at::full({1}, seconds, at::kDouble);
    group.run({OpKind::AllReduce, most, most, Reduction::Max});
    return most.item<double>();
}

Cost measure(Communicator& group, const Op& op, const Computing& computing, int repetitions) {
    verify(group, op);
    Cost cost;
    for (int i = 0; i < repetitions; ++i) {
        slowest(group, 0);  // all start together
        const double exposed_before = group.exposed_seconds(), start = cpu_seconds();
        Pending pending = group.submit(op);
        computing.run();
        pending.wait();
        const double more_cpu = cpu_seconds() - start - computing.seconds_alone();
        const double exposed = group.exposed_seconds() - exposed_before;
        cost.exposed_ms = std::min(cost.exposed_ms, 1e3 * slowest(group, exposed));
        cost.cpu_ms = std::min(cost.cpu_ms, 1e3 * slowest(group, more_cpu));
    }
    return cost;
}

struct Row {
    const char* name;
    OpKind kind;
    at::ScalarType type;
};
constexpr Row kRows[] = {
    {"all-gather bf16", OpKind::AllGather, at::kBFloat16},
    {"reduce-scatter fp32", OpKind::ReduceScatter, at::kFloat},
    {"reduce-scatter bf16", OpKind::ReduceScatter, at::kBFloat16},
    {"all-reduce fp32", OpKind::AllReduce, at::kFloat},
};

ExitCode benchmark(const mpi::Comm& ranks, bool quick) {
    const c10::InferenceMode guard;
    const auto by_mpi = make_communicator(mpi::Comm::world(), "mpi");
    const auto by_memory =
        make_communicator(mpi::Comm::world(), "shared", {.shared_memory_bytes = kSharedMemoryBytes});
    const Computing computing(*by_mpi);
    const auto print = [&](const std::string& line) {
        if (ranks.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    };
    print(fmt::format("{} ranks, {:.1f} ms of computing; ms exposed (ms of CPU)", ranks.size(),
                      1e3 * computing.seconds_alone()));
    print(fmt::format("{:20} {:>5} {:>18} {:>18} {:>7}", "", "MiB", "MPI", "shared memory", "ratio"));
    const auto sizes = quick ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2, 4, 8, 16, 32};
    for (const Row& row : kRows) {
        for (const int64_t mib : sizes) {
            const Op op = operation(row.kind, mib << 20, row.type, *by_mpi);
            const Cost mpi = measure(*by_mpi, op, computing, quick ? 1 : 10);
            const Cost memory = measure(*by_memory, op, computing, quick ? 1 : 10);
            print(fmt::format("{:20} {:5} {:8.2f} ({:7.2f}) {:8.2f} ({:7.2f}) {:6.1f}x", row.name, mib,
                              mpi.exposed_ms, mpi.cpu_ms, memory.exposed_ms, memory.cpu_ms,
                              mpi.exposed_ms / memory.exposed_ms));
        }
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy::comm

namespace {

constexpr const char* kHelp =
    "usage: jobs/mpirun.sh N bench_comm [--quick]\n"
    "Time that collectives cost a rank that computes meanwhile, through MPI and through shared memory.\n"
    "  --quick  the smallest size, once: to see that it works\n";

}  // namespace

int main(int argc, char** argv) {
    const std::string option = argc > 1 ? argv[1] : "";
    const bool quick = option == "--quick";
    if (argc > 1 && !quick) {
        std::fputs(kHelp, option == "--help" ? stdout : stderr);
        return static_cast<int>(option == "--help" ? argosy::ExitCode::Done : argosy::ExitCode::BadInput);
    }
    return argosy::mpi::run_program("bench_comm", &argc, &argv,
                                    [&](const argosy::mpi::Comm& ranks, const argosy::Environment&) {
                                        return argosy::comm::benchmark(ranks, quick);
                                    });
}
