#include "ops/tensor_thread.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::ops {
namespace {

thread_local TensorThread* innermost = nullptr;

}  // namespace

Path path() { return innermost == nullptr ? Path::Fused : innermost->path_; }

TensorThread::TensorThread(Path path, cublas::Search search)
    : outer_(innermost), path_(path), search_(search) {
    innermost = this;
}

TensorThread::~TensorThread() { innermost = outer_; }

cublas::Multiplier& TensorThread::multiplier() {
    if (outer_ != nullptr) return outer_->multiplier();
    if (!multiplier_) {
        multiplier_ = std::make_unique<cublas::Multiplier>(
            cublas::MultiplierOptions{.search = search_, .allocate = gpu::allocate});
    }
    return *multiplier_;
}

cublas::Multiplier& multiplier() {
    ARGOSY_CHECK(innermost != nullptr, "a product on a GPU by a thread without a TensorThread");
    return innermost->multiplier();
}

void set_num_threads(int num_threads) { at::set_num_threads(num_threads); }

int num_threads() { return at::get_num_threads(); }

}  // namespace argosy::ops
