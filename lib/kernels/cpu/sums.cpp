#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void sum_rows(const SumRows<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T* x = args.x + row * args.row_stride;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            store(args.sums + i, load(args.sums + i) + load(x + i));
        });
    }
}

double squared_norm(const SquaredNorm& args) {
    constexpr int kSums = 16;  // each over every sixteenth element, on every instruction set
    double sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= args.count; i += kSums) {
        for (int lane = 0; lane < kSums; ++lane) {
            const double x = args.x[i + lane];
            sums[lane] += x * x;
        }
    }
    for (int lane = 0; i < args.count; ++i, ++lane) {
        const double x = args.x[i];
        sums[lane] += x * x;
    }
    double total = 0;
    for (const double each : sums) total += each;
    return total;
}

template void sum_rows(const SumRows<float>&);
template void sum_rows(const SumRows<BFloat16>&);
template void sum_rows(const SumRows<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
