// The time of a step under each pipeline schedule: the program's executor runs a tiny model on four pipeline
// ranks, and an observer sleeps for the time of each action, because a sleep takes no core. Every schedule
// does the same work: a stage of eight sleeps half as long as a stage of four. Beside each measured time
// stands the one that simulate_actions() predicts. While it sleeps, a rank lets MPI progress, as transfers
// proceed beside the kernels of a GPU. A send is synchronous, so that a channel holds one message, as in the
// simulation. Run on ranks: jobs/mpirun.sh 4 build/tests/bench_schedules [--quick | --check]
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"
#include "comm/mesh.h"
#include "comm/values.h"
#include "mpi/program.h"
#include "ops/ops_context.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "parallel/placement.h"
#include "parallel/transfers.h"

namespace argosy::parallel {
namespace {

constexpr int kNumRanks = 4, kNumMicrobatches = 8;
constexpr int64_t kSeqLen = 4;
constexpr double kMaxDeviation = 0.05;

struct Sizes {
    double seconds;  // of a forward, an input gradient or a weight gradient on a stage of four
    int num_steps;   // that are timed
};
constexpr Sizes kFull{0.03, 5}, kQuick{0.004, 1};

model::ModelSpec spec() {
    return {.name = "llama3",
            .vocab_size = 16,
            .dim = 8,
            .num_layers = 8,
            .num_heads = 2,
            .num_kv_heads = 2,
            .head_dim = 4,
            .hidden_dim = 16};
}

void sleep_until(double end_seconds) {
    constexpr double kMaxSleepSeconds = 5e-4;
    for (double left; (left = end_seconds - seconds_now()) > 0;) {
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kMaxSleepSeconds)));
        mpi::make_progress();
    }
}

/// The letter of an action of which the operation stands for the whole; '.' for all other operations. Every
/// stage has a unit 0.
char letter_of(const UnitOp& op) {
    if (op.unit != 0) return '.';
    if (op.kind == UnitOpKind::Forward) return 'F';
    if (op.kind == UnitOpKind::BackwardInput) return 'I';
    return op.kind == UnitOpKind::BackwardWeight ? 'W' : '.';
}

/// One character for each `cell_seconds` of a step of this rank: the action that sleeps in the middle of the
/// cell, or '.' while the rank waits.
struct Timeline {
    double start = 0, cell_seconds = 1;
    std::string cells = {};

    void add(char letter, double begin, double end) {
        const auto cell = [&](double time) {
            return static_cast<size_t>(std::max(std::lround((time - start) / cell_seconds), 0L));
        };
        cells.resize(std::max(cells.size(), cell(end)), '.');
        for (size_t i = cell(begin); i < cell(end); ++i) cells[i] = letter;
    }
};

struct Measured {
    double seconds = 0;  // the median step of the slowest rank
    double loss = 0;
    std::string timeline;  // of the last step of this rank
};

double over_ranks(comm::Communicator& world, double value, comm::Reduction reduction) {
    const at::Tensor all = at::full({1}, value, at::kDouble);
    world.run({comm::OpKind::AllReduce, all, all, reduction});
    return all.item<double>();
}

Measured measure(comm::Communicator& world, const RankActions& actions, const ScheduleShape& shape,
                 const Sizes& sizes) {
    const double action_seconds = sizes.seconds * kNumRanks / shape.num_stages;
    comm::Mesh mesh({{kNumRanks, 1, 1, 1, 1}}, world);
    const auto placement =
        place_parameters(spec(), mesh.shape(), split_layers(8, shape.num_stages, 0, 0), shape.order);
    ParallelModel model(spec(), placement, mesh,
                        {.precision = {at::kFloat, at::kFloat, at::kFloat}, .seq_len = kSeqLen, .seed = 1});
    Timeline timeline;
    const auto observer = [&](const UnitOp* op) {
        const char letter = op ? letter_of(*op) : '.';
        if (letter == '.') return;
        const double begin = seconds_now();
        sleep_until(begin + action_seconds);
        timeline.add(letter, begin, begin + action_seconds);
    };
    Executor executor(
        model, mesh,
        lower(actions[world.rank()], {.stages = stage_units(placement), .reduce_after = ReduceAfter::Step}),
        {.observer = observer});
    const at::Tensor tokens = at::arange(kSeqLen, at::kLong);
    const std::vector<model::Batch> batches(kNumMicrobatches, {tokens, tokens, 1, kSeqLen});
    Measured measured;
    std::vector<double> seconds;
    for (int step = -1; step < sizes.num_steps; ++step) {  // the first step connects the ranks
        reset_gradients(model);
        over_ranks(world, 0, comm::Reduction::Max);  // all start together
        timeline = {.start = seconds_now(), .cell_seconds = sizes.seconds / 2};
        const double loss = executor.run(batches, /*loss_weight=*/1, /*update=*/0).item<double>();
        const double own = seconds_now() - timeline.start;
        measured.loss = over_ranks(world, loss, comm::Reduction::Sum);
        const double slowest = over_ranks(world, own, comm::Reduction::Max);
        if (step >= 0) seconds.push_back(slowest);
    }
    std::ranges::sort(seconds);
    measured.seconds = seconds[seconds.size() / 2];
    measured.timeline = std::move(timeline.cells);
    return measured;
}

/// Prints the lines of all ranks in the order of the ranks.
void print_timelines(comm::Communicator& world, const std::string& own) {
    const std::vector<std::string> lines = comm::all_gather_texts(world, own);
    if (world.rank() != 0) return;
    for (const std::string& line : lines) std::printf("  %s\n", line.c_str());
}

ExitCode benchmark(bool quick, bool check) {
    const c10::InferenceMode guard;
    const ops::OpsContext operations;
    const auto world = comm::make_communicator(mpi::Comm::world(), "world", {.synchronous_sends = true});
    if (world->size() != kNumRanks)
        throw UserError("bench_schedules needs {} ranks, not {}", kNumRanks, world->size());
    const Sizes sizes = quick ? kQuick : kFull;
    const bool prints = world->rank() == 0;
    double loss = NAN, of_1f1b = NAN;
    bool met = true;
    for (const std::string name : {"1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"}) {
        const ScheduleShape shape{kNumRanks * default_stages_per_rank(name), kNumRanks, kNumMicrobatches,
                                  stage_order(name)};
        const RankActions actions = with_transfers(schedule(name, shape), shape.stages());
        const double action = sizes.seconds * kNumRanks / shape.num_stages;
        const auto predicted = simulate_actions(actions, shape.stages(), {action, action, action, 0});
        const Measured found = measure(*world, actions, shape, sizes);
        if (std::isnan(loss)) loss = found.loss, of_1f1b = found.seconds;
        ARGOSY_CHECK(found.loss > 0 && std::abs(found.loss - loss) < 1e-5 * loss,
                     "{}: loss {}, but {} with 1F1B", name, found.loss, loss);
        met &= std::abs(found.seconds / predicted.duration - 1) <= kMaxDeviation;
        met &= name != "ZBVZeroBubble" || found.seconds < of_1f1b;
        if (prints) {
            std::printf(
                "%-22s measured %6.1f ms, simulated %6.1f ms, ratio %.3f; ranks wait for %.1f %%, simulated "
                "%.1f %%\n",
                name.c_str(), 1e3 * found.seconds, 1e3 * predicted.duration,
                found.seconds / predicted.duration, 100 * (1 - predicted.busy / (found.seconds * kNumRanks)),
                100 * predicted.bubble_share(kNumRanks));
        }
        print_timelines(*world, found.timeline);
    }
    if (prints) std::fflush(stdout);
    return check && !met ? ExitCode::CheckFailed : ExitCode::Done;
}

}  // namespace
}  // namespace argosy::parallel

namespace {

constexpr const char* kHelp =
    "usage: jobs/mpirun.sh 4 bench_schedules [--quick | --check]\n"
    "Time of a step under pipeline schedules, with sleeps in place of computation, beside the simulated "
    "time.\n"
    "  --quick  short sleeps and one step: to see that it works\n"
    "  --check  exit with status 3 if a time differs by more than 5 % from the simulated one, or if "
    "ZBVZeroBubble is\n"
    "           not faster than 1F1B\n";

}  // namespace

int main(int argc, char** argv) {
    const std::string option = argc > 1 ? argv[1] : "";
    const bool quick = option == "--quick", check = option == "--check";
    if (argc > 2 || (argc > 1 && !quick && !check)) {
        std::fputs(kHelp, option == "--help" ? stdout : stderr);
        return static_cast<int>(option == "--help" ? argosy::ExitCode::Done : argosy::ExitCode::BadInput);
    }
    return argosy::mpi::run_program("bench_schedules", &argc, &argv,
                                    [&](const argosy::mpi::Comm&, const argosy::Environment&) {
                                        return argosy::parallel::benchmark(quick, check);
                                    });
}
