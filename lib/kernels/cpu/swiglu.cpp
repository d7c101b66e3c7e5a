#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void swiglu(const Swiglu<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const T *gates = args.gate + row * args.stride, *ups = args.up + row * args.stride;
        T* y = args.y + row * args.row_size;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector gate = load(gates + i);
            store(y + i, gate * sigmoid(gate) * load(ups + i));
        });
    }
}

// s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
template <class T>
void swiglu_backward(const SwigluBackward<T>& args) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const int64_t begin = row * args.stride;
        const T *dys = args.dy + row * args.row_size, *gates = args.gate + begin, *ups = args.up + begin;
        T *dgate = args.dgate + begin, *dup = args.dup + begin;
        for_each_vector(args.row_size, [&](int64_t i, auto load, auto store) {
            const Vector gate = load(gates + i), dy = load(dys + i), one = set(1.0f);
            const Vector open = sigmoid(gate);
            const Vector slope = open * multiply_add(gate, one - open, one);
            store(dgate + i, slope * dy * load(ups + i));
            store(dup + i, gate * open * dy);
        });
    }
}

template void swiglu(const Swiglu<float>&);
template void swiglu(const Swiglu<BFloat16>&);
template void swiglu(const Swiglu<Half>&);
template void swiglu_backward(const SwigluBackward<float>&);
template void swiglu_backward(const SwigluBackward<BFloat16>&);
template void swiglu_backward(const SwigluBackward<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
