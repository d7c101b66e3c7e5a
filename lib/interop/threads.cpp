#include "interop/threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace argosy::interop {

void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job) {
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&](size_t thread) {
        for (size_t i = next++; i < num_jobs; i = next++) {
            try {
                job(i, thread);
            } catch (...) {
                next = num_jobs;
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> others;
        for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work, thread);
        work(0);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace argosy::interop
