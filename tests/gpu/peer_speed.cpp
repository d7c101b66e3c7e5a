// peer_speed: the time of an exchange along the ring of ranks through NCCL and by copies to the next rank's
// memory (comm/peer_memory.h), and of a product alone and beside such exchanges, as a Markdown table of rank
// 0. Each exchange is checked first. Times are the host's, of many launches.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/program.h"
#include "comm/group.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "mpi/program.h"

namespace argosy::comm {
namespace {

struct Sizes {
    std::vector<int64_t> kibibytes = {64, 1024, 4096, 16384, 65536};
    int64_t product = 8192;  // rows, columns and terms
    int launches = 50;
};

/// Messages of one size on one way, both ends on this rank.
class Ring {
  public:
    Ring(const GroupOptions& options, bool copies)
        : group_(make_communicator(mpi::Comm::world(), "ring",
                                   [&] {
                                       GroupOptions own = options;
                                       own.peer_copies = copies;
                                       return own;
                                   }())),
          next_((group_->rank() + 1) % group_->size()),
          previous_((group_->rank() + group_->size() - 1) % group_->size()) {
        group_->open_ring();
    }

    bool is_nccl() const { return group_->connections().number > 0; }

    void prepare(int64_t bytes, c10::Device device) {
        const auto bytes_on = at::TensorOptions(device).dtype(at::kByte);
        in_ = group_->make_ring_tensor({bytes}, bytes_on);
        out_ = at::full({bytes}, group_->rank() + 1, bytes_on);
        submit().wait();
        gpu::synchronize();
        if (!at::equal(in_, at::full({bytes}, previous_ + 1, bytes_on)))
            throw RunError("an exchange of {} bytes brought other bytes", bytes);
    }
    Pending submit() {
        const Op ops[] = {{.kind = OpKind::Send, .out = in_, .in = out_, .peer = next_},
                          {.kind = OpKind::Receive, .out = in_, .peer = previous_}};
        return group_->submit(ops);
    }

  private:
    std::unique_ptr<Communicator> group_;
    int next_, previous_;
    at::Tensor in_, out_;
};

/// After a warm-up. Every rank launches equally often.
double microseconds_of(int launches, const std::function<void()>& run) {
    double seconds = 0;
    for (int round = 0; round < 2; ++round) {
        gpu::synchronize();
        const double start = seconds_now();
        for (int i = 0; i < launches; ++i) run();
        gpu::synchronize();
        seconds = seconds_now() - start;
    }
    return 1e6 * seconds / launches;
}

void print_row(const Sizes& sizes, int64_t bytes, Ring& messages, Ring& copies, c10::Device device,
               bool prints) {
    const auto narrow = at::TensorOptions(device).dtype(at::kBFloat16);
    const at::Tensor left = at::randn({sizes.product, sizes.product}, narrow),
                     right = at::randn({sizes.product, sizes.product}, narrow);
    const auto product = [&] { at::mm(left, right); };
    std::string row = fmt::format("| {} |", bytes >> 10);
    for (Ring* const ring : {&messages, &copies}) {
        ring->prepare(bytes, device);
        const double alone = microseconds_of(sizes.launches, [&] { ring->submit().wait(); });
        row += fmt::format(" {:.1f} | {:.1f} |", alone, static_cast<double>(bytes) / alone / 1e3);
    }
    row += fmt::format(" {:.1f} |", microseconds_of(sizes.launches, product));
    for (Ring* const ring : {&messages, &copies})
        row += fmt::format(" {:.1f} |", microseconds_of(sizes.launches, [&] {
                               Pending pending = ring->submit();
                               product();
                               pending.wait();
                           }));
    if (prints) fmt::print("{}\n", row);
    std::fflush(stdout);
}

ExitCode measure_all(const mpi::Comm& world, const Sizes& sizes) {
    if (cuda::device_count() == 0) throw RunError("there is no GPU here");
    const c10::Device device = gpu::use(world.place_on_node().number % cuda::device_count());
    const bool prints = world.rank() == 0;
    const GroupOptions options{.device = device, .gpu_path = GpuPath::Nccl};
    Ring messages(options, /*copies=*/false), copies(options, /*copies=*/true);
    if (copies.is_nccl()) throw RunError("no copies between these GPUs; the log says why");
    if (prints)
        fmt::print(
            "{} ranks; a product of {}^3 in bf16; microseconds\n\n| KiB | NCCL | GB/s | copies | GB/s | "
            "product | "
            "product beside NCCL | beside copies |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
            "|\n",
            world.size(), sizes.product);
    for (const int64_t kibibytes : sizes.kibibytes)
        print_row(sizes, kibibytes << 10, messages, copies, device, prints);
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy::comm

int main(int argc, char** argv) {
    argosy::comm::Sizes sizes;
    CLI::App app("Exchanges along a ring through NCCL and by copies.");
    bool quick = false;
    app.add_flag("--quick", quick, "Small sizes, few launches");
    CLI11_PARSE(app, argc, argv);
    if (quick) sizes = {.kibibytes = {1, 64}, .product = 64, .launches = 3};
    return argosy::end_process(argosy::mpi::run_program(
        "peer_speed", &argc, &argv, [&](const argosy::mpi::Comm& world, const argosy::Environment&) {
            return argosy::comm::measure_all(world, sizes);
        }));
}
