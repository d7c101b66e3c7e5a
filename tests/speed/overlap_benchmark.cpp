// The time of a training step whose communication overlaps its computation, beside the same step without the
// overlap, on two ranks and a network of set latency and bandwidth (support/delayed_communicator.h). Run on
// ranks: jobs/mpirun.sh 2 build/tests/bench_overlap [--quick | --check]
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"
#include "mpi/program.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"
#include "support/delayed_communicator.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr int kNumRanks = 2;
constexpr double kMinShare = 0.8;
constexpr double kLatencySeconds = 1e-4;
constexpr int64_t kHeadDim = 32;

struct Sizes {
    int64_t dim, num_layers, seq_len, num_sequences;
    int num_rounds;
};
constexpr Sizes kTensor{1024, 4, 512, 4, 9}, kContext{256, 2, 4096, 2, 9}, kQuick{64, 1, 64, 2, 1};

model::ModelSpec spec(const Sizes& sizes) {
    return {.name = "llama3",
            .vocab_size = 256,
            .dim = sizes.dim,
            .num_layers = sizes.num_layers,
            .num_heads = sizes.dim / kHeadDim,
            .num_kv_heads = sizes.dim / kHeadDim,
            .head_dim = kHeadDim,
            .hidden_dim = sizes.dim};
}

double over_ranks(comm::Communicator& world, double value, comm::Reduction reduction) {
    const at::Tensor all = at::full({1}, value, at::kDouble);
    world.run({comm::OpKind::AllReduce, all, all, reduction});
    return all.item<double>();
}

/// One way to train, under one network: a run of its own, and the times of its steps.
struct Variant {
    std::string name;
    Layout layout;
    Network network;
    std::unique_ptr<DelayedCommunicator> world = {};
    std::unique_ptr<TinyRun> run = {};
    std::vector<double> seconds = {};
    double loss = 0;

    double best() const { return *std::ranges::min_element(seconds); }
    double median() const {
        std::vector<double> sorted = seconds;
        std::ranges::sort(sorted);
        return sorted[sorted.size() / 2];
    }
};

/// Trains all variants, alternating.
void measure(comm::Communicator& world, const std::string& delayed, const Sizes& sizes,
             std::vector<Variant>& variants) {
    TinyRunOptions options;
    options.precision = {at::kFloat, at::kFloat, at::kFloat};
    options.spec = spec(sizes);
    options.global_batch = options.microbatch_size = sizes.num_sequences;
    options.seq_len = sizes.seq_len;
    for (Variant& each : variants) {
        options.layout = each.layout;
        each.world = std::make_unique<DelayedCommunicator>(world, delayed, each.network);
        each.run = std::make_unique<TinyRun>(options, *each.world);
    }
    for (int round = -1; round < sizes.num_rounds; ++round) {  // the first one fills the caches of memory
        for (Variant& each : variants) {
            over_ranks(world, 0, comm::Reduction::Max);  // both start together
            const double begin = seconds_now();
            each.loss = each.run->train(round + 1).loss;
            const double seconds = over_ranks(world, seconds_now() - begin, comm::Reduction::Max);
            if (round >= 0) each.seconds.push_back(seconds);
        }
    }
    for (const Variant& each : variants) {
        ARGOSY_CHECK(std::abs(each.loss / variants[0].loss - 1) < 1e-4, "{}: loss {}, but {} with {}",
                     each.name, each.loss, variants[0].loss, variants[0].name);
    }
}

/// Prints the times of plain, overlapped and ideal steps, and of others. Returns whether the gain is large
/// enough.
bool report(bool prints, const std::vector<Variant>& variants) {
    const auto share = [&](auto time_of) {
        return (time_of(variants[0]) - time_of(variants[1])) / (time_of(variants[0]) - time_of(variants[2]));
    };
    const double best = share([](const Variant& each) { return each.best(); });
    const double median = share([](const Variant& each) { return each.median(); });
    if (prints) {
        for (const Variant& each : variants) {
            std::printf("  %-34s %8.1f ms best, %8.1f ms median\n", each.name.c_str(), 1e3 * each.best(),
                        1e3 * each.median());
        }
        std::printf("  gain / possible gain: %.0f %% of best steps, %.0f %% of median steps\n", 100 * best,
                    100 * median);
        std::fflush(stdout);
    }
    return best >= kMinShare;
}

template <class Work>
double best_seconds(Work work) {
    double best = HUGE_VAL;
    for (int i = 0; i < 5; ++i) {
        const double begin = seconds_now();
        work();
        best = std::min(best, seconds_now() - begin);
    }
    return best;
}

/// Seconds of a product [rows, in] x [in, out] on this processor.
double product_seconds(int64_t rows, int64_t in, int64_t out) {
    const at::Tensor x = at::randn({rows, in}), weight = at::randn({out, in});
    return best_seconds([&] { ops::linear(x, weight); });
}

/// A network on which a message of these bytes takes these seconds, of which kLatencySeconds are latency.
Network network_with(double bytes, double seconds) {
    return {kLatencySeconds, bytes / std::max(seconds - kLatencySeconds, 1e-5)};
}

/// Tensor parallel. A piece travels while half of a product is computed; the smallest is attention's output
/// projection. The network is so fast that a piece takes 0.7 of its time.
bool async_tensor_parallel(comm::Communicator& world, const Sizes& sizes) {
    const int64_t tokens = sizes.seq_len * sizes.num_sequences;
    const double half = over_ranks(
        world, product_seconds(tokens / kNumRanks, sizes.dim / kNumRanks, sizes.dim), comm::Reduction::Max);
    const double piece_bytes = 4. * sizes.dim * static_cast<double>(tokens) / kNumRanks;
    const Network none{},
        network{kLatencySeconds, piece_bytes / std::max(0.7 * half - kLatencySeconds, 1e-5)};
    const layout::MeshRequest mesh{.tensor = kNumRanks};
    const parallel::TensorOptions overlapped{.overlap_products = true};
    std::vector<Variant> variants;
    variants.push_back({"collectives", {.name = "plain", .mesh = mesh}, network});
    variants.push_back(
        {"async tensor parallel", {.name = "async", .mesh = mesh, .tensor = overlapped}, network});
    variants.push_back(
        {"async tensor parallel, no delay", {.name = "ideal", .mesh = mesh, .tensor = overlapped}, none});
    variants.push_back({"collectives, no delay", {.name = "plain0", .mesh = mesh}, none});
    measure(world, "tp", sizes, variants);
    if (world.rank() == 0) {
        std::printf(
            "tensor parallel: a piece of %.1f MB takes %.2f ms, half of the smallest product %.2f ms\n",
            piece_bytes / 1e6, 1e3 * network.message_seconds(piece_bytes), 1e3 * half);
    }
    return report(world.rank() == 0, variants);
}

/// Seconds of the backward pass of attention within one of the two chunks of a rank's tokens.
double chunk_seconds(const Sizes& sizes) {
    const int64_t chunk = sizes.seq_len / (2 * kNumRanks);
    const auto shape = ops::AttentionShape::of_whole_sequences(sizes.num_sequences, chunk, kHeadDim);
    const auto rows = [&] { return at::randn({sizes.num_sequences * chunk, sizes.dim}); };
    const at::Tensor q = rows(), k = rows(), v = rows(), dy = rows();
    const ops::AttentionOutput output = ops::attention(q, k, v, shape);
    return best_seconds([&] { ops::attention_backward(dy, q, k, v, output, shape); });
}

/// Context parallel. Keys and values travel while a rank's queries attend to those that it has. The shortest
/// of these times is the backward pass of its second chunk; the network takes 0.7 of it. Sums of gradients
/// over the same ranks are not delayed.
bool ring_attention(comm::Communicator& world, const Sizes& sizes) {
    const double chunk = over_ranks(world, chunk_seconds(sizes), comm::Reduction::Max);
    const double piece_bytes =
        4. * 2 * static_cast<double>(sizes.dim * sizes.seq_len * sizes.num_sequences) / kNumRanks;
    Network network = network_with(piece_bytes, 0.7 * chunk), blocking = network;
    network.delays_collectives = blocking.delays_collectives = false;
    blocking.blocking = true;
    const layout::MeshRequest mesh{.context = kNumRanks};
    const parallel::ContextOptions ring{.rotation = parallel::ContextOptions::Rotation::Ring};
    std::vector<Variant> variants;
    variants.push_back({"ring, waits at once", {.name = "plain", .mesh = mesh, .context = ring}, blocking});
    variants.push_back({"ring", {.name = "ring", .mesh = mesh, .context = ring}, network});
    variants.push_back({"ring, no delay", {.name = "ideal", .mesh = mesh, .context = ring}, {}});
    measure(world, "cp", sizes, variants);
    if (world.rank() == 0) {
        std::printf(
            "context parallel: keys and values of a rank, %.1f MB, take %.2f ms; backward of a chunk %.2f "
            "ms\n",
            piece_bytes / 1e6, 1e3 * network.message_seconds(piece_bytes), 1e3 * chunk);
    }
    return report(world.rank() == 0, variants);
}

ExitCode benchmark(bool quick, bool check) {
    const c10::InferenceMode guard;
    const ops::OpsContext operations;
    const auto world =
        comm::make_communicator(mpi::Comm::world(), "world", {.shared_memory_bytes = int64_t{64} << 20});
    if (world->size() != kNumRanks)
        throw UserError("bench_overlap needs {} ranks, not {}", kNumRanks, world->size());
    const bool tensor = async_tensor_parallel(*world, quick ? kQuick : kTensor);
    const bool context = ring_attention(*world, quick ? kQuick : kContext);
    return check && !(tensor && context) ? ExitCode::CheckFailed : ExitCode::Done;
}

}  // namespace
}  // namespace argosy::testing

namespace {

constexpr const char* kHelp =
    "usage: jobs/mpirun.sh 2 bench_overlap [--quick | --check]\n"
    "Time of a training step with async tensor parallelism and with ring attention, on a network of set "
    "latency and\n"
    "bandwidth, beside the same step without overlap and without the network's delay.\n"
    "  --quick  tiny sizes and one step: to see that it works\n"
    "  --check  exit with status 3 if a gain is below 80 % of the possible gain\n";

}  // namespace

int main(int argc, char** argv) {
    const std::string option = argc > 1 ? argv[1] : "";
    const bool quick = option == "--quick", check = option == "--check";
    if (argc > 2 || (argc > 1 && !quick && !check)) {
        std::fputs(kHelp, option == "--help" ? stdout : stderr);
        return static_cast<int>(option == "--help" ? argosy::ExitCode::Done : argosy::ExitCode::BadInput);
    }
    return argosy::mpi::run_program("bench_overlap", &argc, &argv,
                                    [&](const argosy::mpi::Comm&, const argosy::Environment&) {
                                        return argosy::testing::benchmark(quick, check);
                                    });
}
