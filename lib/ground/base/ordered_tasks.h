// Runs tasks on threads, and gives their results back in the order in which the tasks were added.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace argosy {

/// One thread adds tasks and takes results.
template <class Result>
class OrderedTasks {
  public:
    /// Throws std::system_error if a thread cannot be started.
    explicit OrderedTasks(int num_threads) : OrderedTasks() {
        for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
    }

    /// Waits for the tasks that run. Tasks that have not begun are dropped.
    ~OrderedTasks() {
        {
            const std::lock_guard lock(mutex_);
            waiting_.clear();
            ended_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }
    OrderedTasks(const OrderedTasks&) = delete;

    void add(std::function<Result()> task) {
        std::packaged_task<Result()> packaged(std::move(task));
        results_.push_back(packaged.get_future());
        {
            const std::lock_guard lock(mutex_);
            waiting_.push_back(std::move(packaged));
        }
        changed_.notify_one();
    }

    /// The number of results that were not taken.
    size_t size() const { return results_.size(); }
    /// Whether there are tasks enough to keep all threads busy while the oldest result is taken.
    bool full() const { return size() >= 2 * threads_.size(); }

    /// Waits for the oldest task, and returns its result or rethrows its error. REQUIRES: size() > 0.
    Result take() {
        std::future<Result> oldest = std::move(results_.front());
        results_.pop_front();
        return oldest.get();
    }

  private:
    OrderedTasks() = default;  // the destructor runs if the other constructor throws

    void run() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
            if (ended_) return;
            std::packaged_task<Result()> task = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            task();
        }
    }

    std::deque<std::future<Result>> results_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::packaged_task<Result()>> waiting_;
    bool ended_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace argosy
