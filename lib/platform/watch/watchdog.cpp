#include "watch/watchdog.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/device.h"
#include "watch/watchdog_state.h"

namespace argosy::watch {
namespace {

constexpr double kMaxSecondsBetweenPolls = 1, kMinSecondsBetweenPolls = 0.01;
constexpr double kSecondsToAnswer = 2, kMoreSecondsPerRank = 0.002;
constexpr double kMaxSecondsOfComparison = 10;
/// If a process ends before its thread has told rank 0 that it leaves, rank 0 takes it for dead and ends the
/// job. On a crowded machine the thread may have to wait for its turn.
constexpr double kSecondsToLeave = 10;
constexpr double kSecondsOfGpuThread = 1;  // it may be blocked in the driver for ever
/// For the polls before rank 0 learns of an error, for its own computations, and for busy machines.
constexpr double kMoreSecondsToRootCause = 20;

}  // namespace

double seconds_between_polls(double timeout_seconds) {
    return std::clamp(timeout_seconds / 40, kMinSecondsBetweenPolls, kMaxSecondsBetweenPolls);
}

std::string time_of_hang() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

Bounds::Bounds(double timeout_seconds, int num_ranks)
    : answer(std::min(timeout_seconds, kSecondsToAnswer + kMoreSecondsPerRank * num_ranks)),
      silence(2 * answer),
      comparison(std::min(answer / 2, kMaxSecondsOfComparison)),
      // Reports are collected for up to twice `answer`, with a pause in between, before the comparison.
      root_cause(2.5 * answer + 2 * comparison + kMoreSecondsToRootCause) {}

void Watchdog::State::poll_gpu_until_leaving() {
    const double pause = seconds_between_polls(limit().seconds);
    bool warned = false;
    for (double last = seconds_now(); sleep(pause);) {
        const double now = seconds_now();
        RankReport report;
        try {
            cuda::set_device(device);
            report = poll_gpu(std::min(now - last, 2 * pause));
        } catch (const Error& error) {
            // The thread that works on the GPU gets the same error. If that thread hangs instead, the other
            // ranks report this rank as missing.
            if (!std::exchange(warned, true)) {
                spdlog::warn("the watchdog of rank {} cannot query its GPU: {}", connections->rank(),
                             error.what());
            }
        }
        store(std::move(report));
        last = now;
    }
    set(gpu_thread_ended);
}

RankReport Watchdog::State::poll_gpu(double elapsed_seconds) const {
    std::vector<LaunchQueue::QueueState> states;
    for (const auto& queue : gpu->queues()) states.push_back(queue->poll(elapsed_seconds));
    RankReport report = RankReport::of(states, limit());
    for (const auto& lane : gpu->lanes()) {
        try {
            lane->require_health();
        } catch (const RunError& error) {
            report.error = error.what();
        }
    }
    return report;
}

/// Aborts NCCL, as far as that ends soon, and exits.
void Watchdog::State::end_process() const {
    if (!gpu) _exit(static_cast<int>(ExitCode::Watchdog));
    gpu->set_ending();
    abort_all(gpu->lanes());
    _exit(static_cast<int>(ExitCode::Watchdog));
}

Watchdog::Watchdog(const mpi::Comm& world, std::shared_ptr<GpuState> gpu, WaitLimit limit,
                   std::filesystem::path flight_folder, WaitLimit storage_limit, int fan_out)
    : state_(std::make_shared<State>(world, std::move(gpu), limit, std::move(flight_folder), storage_limit,
                                     fan_out)) {
    if (state_->gpu) gpu_thread_ = std::thread([state = state_] { state->poll_gpu_until_leaving(); });
    message_thread_ = std::thread([state = state_]() mutable {
        const std::shared_ptr<WatchTree> connections = state->connections;
        exchange_messages(std::move(state));
        connections->relay();  // until the ranks that reach rank 0 through this one have left, too
    });
}

HostWaits& Watchdog::waits() const { return state_->waits; }
FlightRecorder& Watchdog::flight() const { return state_->flight; }
WaitLimit Watchdog::limit() const { return state_->limit(); }
void Watchdog::set_limit(WaitLimit limit) { state_->set_limit(limit); }

Watchdog::~Watchdog() {
    leave();
    const auto end = [](std::thread& thread, bool ends) {
        if (thread.joinable()) ends ? thread.join() : thread.detach();
    };
    end(message_thread_, state_->wait_for(state_->notice_sent, 0) && !state_->connections->is_between());
    if (state_->gpu) end(gpu_thread_, state_->wait_for(state_->gpu_thread_ended, kSecondsOfGpuThread));
}

void Watchdog::leave() {
    if (state_->is_leaving()) return;
    state_->set(state_->leaving);
    state_->connections->wake();
    state_->wait_for(state_->notice_sent, kSecondsToLeave);
    if (state_->gpu) state_->gpu->block_if_ending();  // does not return if the watchdog is ending the process
}

}  // namespace argosy::watch
