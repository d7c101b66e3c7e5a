#include "train/stop_signal.h"

#include <ATen/ops/full.h>

#include <csignal>
#include <numeric>
#include <vector>

namespace argosy::train {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) { received_signal = signal; }

std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world) {
    std::vector<int> ranks(world.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return world.subgroup(ranks, "control");
}

}  // namespace

StopSignal::StopSignal(const comm::Communicator& world) : control_(control_group(world)) {
    struct sigaction action = {};
    action.sa_handler = remember;
    for (const int signal : {SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
}

StopWish StopSignal::agreed(StopWish own) {
    if (received_signal != 0) own = StopWish::Signal;
    const at::Tensor wish = at::full({}, static_cast<int64_t>(own), at::kLong);
    control_->run(
        {.kind = comm::OpKind::AllReduce, .out = wish, .in = wish, .reduction = comm::Reduction::Max});
    return static_cast<StopWish>(wish.item<int64_t>());
}

}  // namespace argosy::train
