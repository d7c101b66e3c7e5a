#include "watch/watchdog_state.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/device.h"

namespace argosy::watch {
namespace {

constexpr double kMaxSecondsBetweenLooks = 1, kMinSecondsBetweenLooks = 0.01;

constexpr std::chrono::seconds kTimeToBreakOff{2};

}  // namespace

double seconds_between_looks(double timeout_seconds) {
    return std::clamp(timeout_seconds / 40, kMinSecondsBetweenLooks, kMaxSecondsBetweenLooks);
}

void Watchdog::State::look(int device) {
    const double pause = seconds_between_looks(timeout_seconds);
    bool warned = false;
    for (double last = seconds_now(); sleep(pause);) {
        const double now = seconds_now();
        Report report;
        try {
            cuda::set_device(device);
            report = look_once(std::min(now - last, 2 * pause));
        } catch (const Error& error) {
            // The thread that works on the GPU gets the same error. If that thread hangs instead, the other
            // ranks report this rank as missing.
            if (!std::exchange(warned, true)) {
                spdlog::warn("the watchdog of rank {} does not see what its GPU does: {}", connections.rank(),
                             error.what());
            }
        }
        store(std::move(report));
        last = now;
    }
}

Report Watchdog::State::look_once(double elapsed_seconds) const {
    std::vector<LaunchQueue::QueueState> states;
    for (const auto& queue : gpu->queues()) states.push_back(queue->look(elapsed_seconds));
    Report report = Report::of(states, timeout_seconds);
    for (const auto& lane : gpu->lanes()) {
        try {
            lane->require_health();
        } catch (const RunError& error) {
            report.error = error.what();
        }
    }
    return report;
}

/// Aborts NCCL and exits. The abort may hang, so the process exits after kTimeToBreakOff at the latest.
void Watchdog::State::end_process() const {
    if (!gpu) _exit(static_cast<int>(ExitCode::Watchdog));
    gpu->end();
    const auto broken_off = std::make_shared<std::atomic<bool>>(false);
    std::thread([gpu = gpu, broken_off] {
        for (const auto& lane : gpu->lanes()) lane->abort();
        *broken_off = true;
    }).detach();
    PollTimer timer(std::chrono::duration<double>(kTimeToBreakOff).count());
    while (!*broken_off && timer.pause()) {
    }
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::watch
