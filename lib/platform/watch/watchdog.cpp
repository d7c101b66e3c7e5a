#include "watch/watchdog.h"

#include <utility>

#include "watch/watchdog_state.h"

namespace argosy::watch {

Watchdog::Watchdog(const mpi::Comm& world, std::shared_ptr<GpuState> gpu, WaitLimit limit,
                   std::filesystem::path flight_folder, WaitLimit storage_limit)
    : state_(std::make_shared<State>(world, std::move(gpu), limit, std::move(flight_folder), storage_limit)) {
    if (state_->gpu) gpu_thread_ = std::thread([state = state_] { state->poll_gpu_until_leaving(); });
    message_thread_ = std::thread([state = state_] { exchange_messages(state); });
}

HostWaits& Watchdog::waits() const { return state_->waits; }
FlightRecorder& Watchdog::flight() const { return state_->flight; }
WaitLimit Watchdog::limit() const { return state_->limit(); }
void Watchdog::set_limit(WaitLimit limit) { state_->set_limit(limit); }

Watchdog::~Watchdog() {
    leave();
    const auto end = [this](std::thread& thread, const bool& ended) {
        if (thread.joinable()) state_->wait_for(ended) ? thread.join() : thread.detach();
    };
    end(message_thread_, state_->message_thread_ended);
    end(gpu_thread_, state_->gpu_thread_ended);
}

void Watchdog::leave() {
    if (state_->is_leaving()) return;
    state_->set(state_->leaving);
    state_->connections.wake();
    state_->wait_for(state_->message_thread_ended);
    if (state_->gpu) state_->gpu->block_if_ending();  // does not return if the watchdog is ending the process
}

}  // namespace argosy::watch
