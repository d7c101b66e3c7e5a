// Ranks over NCCL's stand-in that run a scenario with a fault:
// watchdog_ranks SCENARIO FLIGHT_FOLDER FAN_OUT_OF_WATCHDOGS.
// watchdog_test.py starts them and checks their messages, exit codes and files.
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "mpi/program.h"
#include "support/fake_gpus.h"
#include "watch/host_waits.h"

namespace argosy {
namespace {

using comm::Op;
using comm::OpKind;
using testing::fake_gpus;

constexpr double kTimeoutSeconds = 2;
constexpr int64_t kCount = 64;

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
[[noreturn]] void be_stuck() {
    for (;;) sleep_for(1);
}

struct Ranks {
    std::unique_ptr<comm::Communicator> world;
    std::shared_ptr<void> between;              // destroyed after `shard` and before `world`
    std::unique_ptr<comm::Communicator> shard;  // of all ranks
    int rank;
    std::string flight_folder;

    Op sum(int64_t count = kCount) const {
        const at::Tensor both = at::zeros({count});
        return {OpKind::AllReduce, both, both};
    }
    void run() const { shard->run(sum()); }
    /// Waits like a rank that reads a result on the host.
    void wait_on_host(comm::Pending pending) const {
        pending.wait();
        shard->wait_for_gpu();
    }
    /// Submits an operation that never ends although all ranks take part.
    void start_stalled(const Op& op) const {
        fake_gpus().stall_next_operation = true;
        wait_on_host(shard->submit(op));
    }
};

void absent(const Ranks& ranks) {
    if (ranks.rank == 1) be_stuck();
    ranks.run();
}

/// Operations that the watchdog aborts fail on the GPU as well.
void broken(const Ranks& ranks) {
    if (ranks.rank == 1) be_stuck();
    fake_gpus().fails_after_abort = true;
    fake_gpus().seconds_to_abort = 0.3;
    testing::make_waiting(gpu::current_stream(), false);
    const Op sum = ranks.sum();
    ranks.wait_on_host(ranks.shard->submit(sum));
}

void stopped(const Ranks& ranks, int who) {
    if (ranks.rank == who) raise(SIGSTOP);
    ranks.run();
}

/// Rank 0 stops twice. It goes on after the first time once the others have written their files.
void stopped_first_twice(const Ranks& ranks) {
    const std::string file = ranks.flight_folder + "/rank-";
    const std::string wake = "(until [ -e " + file + "1.json -a -e " + file +
                             "2.json ]; do sleep 0.05; done; kill -CONT " + std::to_string(getpid()) + ") &";
    if (ranks.rank != 0 || std::system(wake.c_str()) == 0) stopped(ranks, 0);
    if (ranks.rank == 0) sleep_for(0.5 * kTimeoutSeconds);  // for the watchdog
    stopped(ranks, 0);
}

void killed(const Ranks& ranks) {
    if (ranks.rank == 1) raise(SIGKILL);
    be_stuck();
}

void failed(const Ranks& ranks) {
    fake_gpus().stall_next_operation = ranks.rank == 1;
    comm::Pending pending = ranks.shard->submit(ranks.sum());
    if (ranks.rank == 1) throw RunError("no paper in the printer");
    pending.wait();
    ranks.run();
}

/// Rank 1 takes long to end.
void failed_slowly(Ranks& ranks, double seconds) {
    ranks.between = std::shared_ptr<void>(nullptr, [seconds](void*) { sleep_for(seconds); });
    failed(ranks);
}

/// NCCL reports the failure to the other ranks before their next operation.
void failed_and_noticed(Ranks& ranks) {
    if (ranks.rank == 1) failed_slowly(ranks, /*seconds=*/1.5);
    sleep_for(1);
    ranks.run();
}

/// Fails while an operation in the host's memory is under way; the operation is dropped.
void failed_over_host(const Ranks& ranks) {
    const at::Tensor on_host = at::zeros({1}), on_gpu = at::zeros({1});
    fake_gpus().host_tensors = {on_host.const_data_ptr()};
    comm::Pending pending;
    if (ranks.rank == 1) {
        pending = ranks.shard->submit({OpKind::AllReduce, on_host, on_host});
        throw RunError("no paper in the printer");
    }
    ranks.shard->run({OpKind::AllReduce, on_gpu, on_gpu});
}

/// The driver of rank 1 does not answer its watchdog.
void failed_blind(const Ranks& ranks) {
    fake_gpus().blocks_other_threads = ranks.rank == 1;
    if (ranks.rank == 1) sleep_for(0.2);
    failed(ranks);
}

/// Aborting NCCL takes longer than the time between two reports of other ranks.
void stopped_first_slowly(const Ranks& ranks) {
    fake_gpus().seconds_to_abort = 5;
    stopped(ranks, 0);
}

void left(const Ranks& ranks) {
    if (ranks.rank != 1) ranks.run();
}

/// Rank 1 leaves, and rank 2 is absent.
void left_and_absent(const Ranks& ranks) {
    if (ranks.rank == 2) be_stuck();
    left(ranks);
}

/// Records and launches a graph at once, because the stand-ins execute what they record. The compute stream
/// waits, the host does not.
void launch_graph(const Ranks& ranks, const std::function<void()>& work) {
    testing::make_waiting(gpu::current_stream(), false);
    ranks.world->launch_graph("the graph of a step", [&] {
        static int num_graphs = 0;
        fake_gpus().captures = ++num_graphs;
        work();
        return static_cast<uint64_t>(std::exchange(fake_gpus().captures, 0));
    });
}

/// Rank 1 fails. A graph that contains an operation of the failed communicator exists until the process ends.
void failed_with_a_graph(const Ranks& ranks) {
    launch_graph(ranks, [&] { ranks.run(); });
    testing::keep_graph(1);
    failed(ranks);
}

/// A destructor of rank 1 waits for ever after the error.
void failed_and_stuck(Ranks& ranks) {
    ranks.between = std::shared_ptr<void>(nullptr, [](void*) { be_stuck(); });
    mpi::print_errors_first("test_watchdog_ranks", mpi::Comm::world(), [&] { failed(ranks); });
}

void slow(const Ranks& ranks) {
    for (int i = 0; i < 4; ++i) {
        if (ranks.rank == i % 2) sleep_for(0.4 * kTimeoutSeconds);
        ranks.run();
    }
    fake_gpus().captures = true;  // events of a graph cannot be queried
    ranks.run();
    sleep_for(0.2);
    fake_gpus().captures = false;
}

void different(const Ranks& ranks) {
    const at::Tensor all = at::zeros({kCount * ranks.shard->size()}), own = at::zeros({kCount});
    ranks.start_stalled(ranks.rank == 1 ? Op{OpKind::ReduceScatter, own, all} : ranks.sum());
}

/// The same with tensors in the host's memory.
void different_on_host(const Ranks& ranks, int64_t shared_memory_bytes) {
    const auto world = comm::make_communicator(mpi::Comm::world(), "host",
                                               {.timeout_seconds = kTimeoutSeconds,
                                                .shared_memory_bytes = shared_memory_bytes,
                                                .flight_folder = ranks.flight_folder});
    const at::Tensor all = at::zeros({kCount * world->size()}), own = at::zeros({kCount});
    const auto end = world->subgroup(std::vector{0, 1, 2}, "end");
    for (int i = 0; i < 3; ++i) world->run(ranks.sum());
    // MPI may end the operations that differ, with wrong results; rank 1 waits at the latest in the next one.
    if (ranks.rank == 1) world->run(Op{OpKind::AllGather, all, own});
    world->run(ranks.sum());
    end->run(ranks.sum());
}

/// Over MPI, in the host's memory: rank 1 sends more elements than the others have room for.
void different_sizes(const Ranks& ranks) {
    const auto world =
        comm::make_communicator(mpi::Comm::world(), "host", {.timeout_seconds = kTimeoutSeconds});
    world->run(ranks.sum(ranks.rank == 1 ? 100000 : kCount));
    be_stuck();
}

void stalled(const Ranks& ranks) { ranks.start_stalled(ranks.sum()); }

void lost(const Ranks& ranks) {
    if (ranks.rank == 1) fake_gpus().lose_next_operation = true;
    ranks.run();
}

/// Rank 0 compares operations because of an error of NCCL on rank 1. Meanwhile rank `who` fails, and takes
/// long to end.
void lost_and_failed(Ranks& ranks, int who) {
    if (ranks.rank == 1) lost(ranks);
    if (ranks.rank != who) be_stuck();
    const std::string file = ranks.flight_folder + "/rank-" + std::to_string(who) + ".json.partial";
    while (!std::filesystem::exists(file)) sleep_for(0.01);
    ranks.between = std::shared_ptr<void>(nullptr, [](void*) { sleep_for(3); });
    throw RunError("no paper in the printer");
}

/// The operation waits longer than the limit for earlier work on each rank's own GPU.
void behind(const Ranks& ranks) {
    testing::make_waiting(gpu::current_stream(), false);
    const double start = seconds_now();
    testing::enqueue(
        gpu::current_stream(), [] {}, [start] { return seconds_now() - start > 1.7 * kTimeoutSeconds; });
    ranks.wait_on_host(ranks.shard->submit(ranks.sum()));
}

/// Rank 1 waits for rank 2 in another group.
void through_others(const Ranks& ranks) {
    std::vector<int> pair = {1, 2};
    if (ranks.rank == 0) pair = {0};
    const auto tp = ranks.world->subgroup(pair, "tp");
    tp->run(ranks.sum());
    if (ranks.rank == 2) be_stuck();
    if (ranks.rank == 1) tp->run(ranks.sum());
    ranks.run();
}

/// Rank 1 does not take part when a group is made.
void group(const comm::Communicator& world, int rank) {
    std::vector<int> all(world.size());
    std::iota(all.begin(), all.end(), 0);
    if (rank == 1) be_stuck();
    static_cast<void>(world.subgroup(all, "tp"));
}

/// The same with tensors in the host's memory.
void group_on_host(const Ranks& ranks) {
    const auto world =
        comm::make_communicator(mpi::Comm::world(), "host", {.timeout_seconds = kTimeoutSeconds});
    group(*world, ranks.rank);
}

/// The watchdogs fail when they first read the wait.
void restarted(const Ranks& ranks) {
    const comm::Group group(mpi::Comm::world(), "host", {.timeout_seconds = kTimeoutSeconds});
    if (ranks.rank == 1) be_stuck();
    const watch::HostWait wait(group.watchdog().waits(),
                               {.operation =
                                    [reads = 0]() mutable {
                                        if (reads++ == 0) throw RunError("no memory");
                                        return "the reading of the meter";
                                    },
                                .group = group.name(),
                                .members = group.members(),
                                .limit = {kTimeoutSeconds, "the test"}},
                               watch::HostWait::Kind::Blocks);
    be_stuck();
}

/// Rank 0 stands still for longer than the limit, and rank 1 stays away.
void slow_first(const Ranks& ranks) {
    if (ranks.rank == 0) {
        const std::string wake = "(sleep 4; kill -CONT " + std::to_string(getpid()) + ") &";
        if (std::system(wake.c_str()) == 0) raise(SIGSTOP);
    }
    absent(ranks);
}

void graph(const Ranks& ranks) {
    const Op sum = ranks.sum();  // outlives the work on the stream
    for (int step = 0; step < 2; ++step) {
        launch_graph(ranks, [&] {
            for (int i = 0; i < 3; ++i) {
                if (step == 1 && i == 2 && ranks.rank == 1) {
                    testing::enqueue(
                        gpu::current_stream(), [] {}, [] { return false; });  // a kernel that never ends
                }
                ranks.shard->run(sum);
            }
        });
        ranks.shard->wait_for_gpu();
        ranks.shard->run(sum);
    }
}

/// The graph takes longer than the limit, but each operation in it takes less.
void long_graph(const Ranks& ranks) {
    const Op sum = ranks.sum();
    launch_graph(ranks, [&] {
        for (int i = 0; i < 4; ++i) {
            double start = -1;
            testing::enqueue(
                gpu::current_stream(), [] {},
                [start]() mutable {
                    if (start < 0) start = seconds_now();
                    return seconds_now() - start > 0.5 * kTimeoutSeconds;
                });
            ranks.shard->run(sum);
        }
    });
    ranks.shard->wait_for_gpu();
}

/// A launching call that does not return, as when the stream's queue is full.
void call(const Ranks& ranks) {
    ranks.world->launch_graph("the graph of a step", [&] {
        if (ranks.rank == 0) be_stuck();
        return 1;
    });
    be_stuck();
}

const std::map<std::string, std::function<void(Ranks&)>> kScenarios = {
    {"absent", absent},
    {"broken", broken},
    {"stopped", [](const Ranks& ranks) { stopped(ranks, 2); }},
    {"stopped-between", [](const Ranks& ranks) { stopped(ranks, 1); }},
    {"stopped-first", [](const Ranks& ranks) { stopped(ranks, 0); }},
    {"stopped-first-twice", stopped_first_twice},
    {"killed", killed},
    {"stopped-first-slowly", stopped_first_slowly},
    {"failed", failed},
    {"failed-slowly", [](Ranks& ranks) { failed_slowly(ranks, 0.5); }},
    {"failed-and-noticed", failed_and_noticed},
    {"failed-over-host", failed_over_host},
    {"failed-blind", failed_blind},
    {"failed-with-a-graph", failed_with_a_graph},
    {"failed-and-stuck", failed_and_stuck},
    {"left", left},
    {"left-and-absent", left_and_absent},
    {"slow", slow},
    {"behind", behind},
    {"different", different},
    {"different-over-mpi", [](const Ranks& ranks) { different_on_host(ranks, 0); }},
    {"different-in-shared-memory", [](const Ranks& ranks) { different_on_host(ranks, 1 << 20); }},
    {"different-sizes", different_sizes},
    {"stalled", stalled},
    {"lost", lost},
    {"lost-and-failed", [](Ranks& ranks) { lost_and_failed(ranks, 2); }},
    {"lost-and-failed-first", [](Ranks& ranks) { lost_and_failed(ranks, 0); }},
    {"through-others", through_others},
    {"group", [](const Ranks& ranks) { group(*ranks.world, ranks.rank); }},
    {"group-on-host", group_on_host},
    {"restarted", restarted},
    {"slow-first", slow_first},
    {"graph", graph},
    {"long-graph", long_graph},
    {"call", call},
};

ExitCode run_scenario(const std::string& name, const std::string& flight_folder, int fan_out, int number) {
    const c10::InferenceMode guard;
    cuda::set_device(number);
    Ranks ranks{comm::make_communicator(mpi::Comm::world(), "world",
                                        {.timeout_seconds = kTimeoutSeconds,
                                         .gpu_path = comm::GpuPath::Nccl,
                                         .flight_folder = flight_folder,
                                         .watchdog_fan_out = fan_out}),
                nullptr, nullptr, 0, flight_folder};
    ranks.rank = ranks.world->rank();
    std::vector<int> all(ranks.world->size());
    std::iota(all.begin(), all.end(), 0);
    ranks.shard = ranks.world->subgroup(all, "dp_shard");
    for (int i = 0; i < 3; ++i) ranks.run();
    kScenarios.at(name)(ranks);
    spdlog::info("came through");
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    using namespace argosy;
    return mpi::run_program("ranks", &argc, &argv, [&](const mpi::Comm& world, const Environment&) {
        const std::string name = argv[1];
        if (name != "stopped-at-the-end")
            return run_scenario(name, argv[2], std::atoi(argv[3]), world.rank());
        if (world.rank() == 1) raise(SIGSTOP);  // before MPI_Finalize
        return ExitCode::Done;
    });
}
