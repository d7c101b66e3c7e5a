#include "base/time_limit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace argosy {

std::optional<size_t> parts_within(TimeLimit limit,
                                   std::function<void(const std::function<void()>& part_done)> work) {
    const auto done = std::make_shared<std::atomic<size_t>>(0);
    std::packaged_task<void()> task([work = std::move(work), done] { work([done] { ++*done; }); });
    std::future<void> end = task.get_future();
    std::thread(std::move(task)).detach();
    const double last = seconds_now() + limit.all_seconds;
    for (size_t before = 0;; before = *done) {
        const double seconds = std::min(limit.part_seconds, last - seconds_now());
        if (end.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready) {
            end.get();
            return std::nullopt;
        }
        if (*done == before || seconds_now() >= last) return *done;
    }
}

}  // namespace argosy
