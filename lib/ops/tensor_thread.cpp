#include "ops/tensor_thread.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/device.h"
#include "ops/own_kernels.h"

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

void add_row_blocks(const at::Tensor& sum, int64_t num_rows,
                    c10::function_ref<void(int64_t first_row, int64_t num_rows, float* partial)> add_rows) {
    const int64_t row_size = sum.numel(), num_blocks = (num_rows + kRowsPerBlock - 1) / kRowsPerBlock;
    const at::Tensor partials = at::zeros({num_blocks, row_size}, at::kFloat);
    auto* partial = mutable_elements<float>(partials);
    at::parallel_for(0, num_blocks, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kRowsPerBlock;
            add_rows(first, std::min(kRowsPerBlock, num_rows - first), partial + block * row_size);
        }
    });
    auto* total = mutable_elements<float>(sum);
    at::parallel_for(0, row_size, fewest_rows(num_blocks), [&](int64_t begin, int64_t end) {
        kernels::table().fp32.sum_rows({.num_rows = num_blocks,
                                        .row_size = end - begin,
                                        .row_stride = row_size,
                                        .x = partial + begin,
                                        .sums = total + begin});
    });
}

}  // namespace argosy::ops
