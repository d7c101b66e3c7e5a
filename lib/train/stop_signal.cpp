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

int StopSignal::received() { return received_signal; }

bool StopSignal::agreed() {
    const bool asked = asking_.active();
    asking_.wait();
    const bool stop = asked && wish_.item<int64_t>() != 0;
    wish_ = at::full({}, static_cast<int64_t>(received_signal), at::kLong);
    asking_ = control_->submit(
        {.kind = comm::OpKind::AllReduce, .out = wish_, .in = wish_, .reduction = comm::Reduction::Max});
    return stop;
}

}  // namespace argosy::train
