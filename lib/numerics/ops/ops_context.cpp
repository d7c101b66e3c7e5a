#include "ops/ops_context.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::ops {
namespace {

thread_local OpsContext* innermost = nullptr;

}  // namespace

Path path() { return innermost == nullptr ? Path::Fused : innermost->path_; }

OpsContext::OpsContext(Path path) : outer_(innermost), path_(path) { innermost = this; }

OpsContext::~OpsContext() { innermost = outer_; }

cublas::Multiplier& OpsContext::multiplier() {
    if (outer_ != nullptr) return outer_->multiplier();
    if (!multiplier_) {
        multiplier_ =
            std::make_unique<cublas::Multiplier>(cublas::MultiplierOptions{.allocate = gpu::allocate});
    }
    return *multiplier_;
}

cublas::Multiplier& multiplier() {
    ARGOSY_CHECK(innermost != nullptr, "a product on a GPU by a thread without an OpsContext");
    return innermost->multiplier();
}

int product_multiprocessors() {
    if (innermost == nullptr) return 0;
    const std::function<int()>& chosen = innermost->outermost().product_multiprocessors_;
    return chosen ? chosen() : 0;
}

void set_num_threads(int num_threads) { at::set_num_threads(num_threads); }

int num_threads() { return at::get_num_threads(); }

}  // namespace argosy::ops
