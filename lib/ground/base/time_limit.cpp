#include "base/time_limit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
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

namespace {

struct FileWaits {
    std::mutex mutex;
    int64_t num_begun = 0;
    std::map<int64_t, std::string> under_way;  // by number
};

/// Never destroyed: a thread that hangs may outlive main.
FileWaits& file_waits() {
    static auto* const waits = new FileWaits;
    return *waits;
}

}  // namespace

FileWait::FileWait(std::string what) {
    FileWaits& waits = file_waits();
    const std::lock_guard lock(waits.mutex);
    number_ = ++waits.num_begun;
    waits.under_way[number_] = std::move(what);
}

FileWait::~FileWait() {
    FileWaits& waits = file_waits();
    const std::lock_guard lock(waits.mutex);
    waits.under_way.erase(number_);
}

std::optional<FileWait::Mark> FileWait::oldest() {
    FileWaits& waits = file_waits();
    const std::lock_guard lock(waits.mutex);
    if (waits.under_way.empty()) return std::nullopt;
    const auto& [number, what] = *waits.under_way.begin();
    return Mark{number, what};
}

}  // namespace argosy
