// RMSNorm, row by row, forward and backward.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

/// The offset of a row's first element.
int64_t begin_of(int64_t row, int64_t row_size, const RowGroups& groups) {
    return row * row_size + (groups.first_row + row) / groups.rows_per_group * groups.gap;
}

template <class T>
float mean_square(const T* x, int64_t size) {
    Vector squares = set(0.0f);
    for_each_vector(size, [&](int64_t i, auto load, auto) {
        const Vector a = load(x + i);
        squares = multiply_add(a, a, squares);
    });
    return sum(squares) / static_cast<float>(size);
}

}  // namespace

template <class T>
void rms_norm(const RmsNorm<T>& args) {
    const Vector offset = set(args.weight_offset);
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T* x = args.x + begin_of(row, args.row_size, args.x_groups);
        T* y = args.y + row * args.row_size;
        const float inverse = 1.0f / __builtin_sqrtf(mean_square(x, args.row_size) + args.eps);
        args.inverse_rms[row] = inverse;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            store(y + i, load(x + i) * set(inverse) * (load(args.weight + i) + offset));
        });
    }
}

// Let r = inverse_rms, n = x r and w = weight + weight_offset. Then
//   dx = r (dy w - n mean(dy w n)) + residual,  dw = sum over rows of dy n.
// dx is rounded before the residual is added, as if a separate operation added it.
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args) {
    const Vector offset = set(args.weight_offset);
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const int64_t begin = row * args.row_size;
        const T *x = args.x + begin_of(row, args.row_size, args.x_groups), *dy = args.dy + begin;
        const T* residual = args.residual == nullptr ? nullptr : args.residual + begin;
        T* dx = args.dx + begin_of(row, args.row_size, args.dx_groups);
        const Vector inverse = set(args.inverse_rms[row]);
        Vector products = set(0.0f);
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector gradient = load(dy + i), normed = load(x + i) * inverse;
            products = multiply_add(gradient * (load(args.weight + i) + offset), normed, products);
            store(args.dweight + i, multiply_add(gradient, normed, load(args.dweight + i)));
        });
        const Vector mean = set(sum(products) / static_cast<float>(args.row_size));
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector normed = load(x + i) * inverse;
            const Vector weighted = load(dy + i) * (load(args.weight + i) + offset);
            store(dx + i, (weighted - normed * mean) * inverse);
            if (residual != nullptr) store(dx + i, load(dx + i) + load(residual + i));
        });
    }
}

template void rms_norm(const RmsNorm<float>&);
template void rms_norm(const RmsNorm<BFloat16>&);
template void rms_norm_backward(const RmsNormBackward<float>&);
template void rms_norm_backward(const RmsNormBackward<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
