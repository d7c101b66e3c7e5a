// Matrix products that run beside a rank's collectives, in a thread of their own: on the rank's GPU with
// cuBLASLt, on a stream of their own, or on its processor. Those of a processor are plain loops: their time
// says how cores and memory are shared, not how fast the processor multiplies.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <thread>

namespace argosy::bench {

struct ProductOptions {
    std::optional<int> device = {};  // the rank's GPU; none: the processor
    int max_multiprocessors = 0;     // cublas::Product
};

class Products {
  public:
    explicit Products(const ProductOptions& options) : options_(options) {}
    Products(const Products&) = delete;
    ~Products();

    /// Returns once the first products are done: the times are those of products after them. REQUIRES: none
    /// are under way.
    void start();
    /// Ends the products. Returns the seconds of one, on the mean. Throws what they have thrown.
    double stop();

  private:
    void run();
    template <class Multiply>
    void repeat(Multiply multiply);

    ProductOptions options_;
    std::thread thread_;
    std::atomic<bool> runs_ = false, stops_ = false;
    double seconds_ = 0;  // of one; written by the thread
    std::exception_ptr error_;
};

}  // namespace argosy::bench
