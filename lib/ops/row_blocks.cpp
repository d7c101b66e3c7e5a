#include "ops/row_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/own_kernels.h"

namespace argosy::ops {

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
