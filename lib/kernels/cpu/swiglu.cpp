#include "kernels/cpu/swiglu.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void swiglu(const Swiglu<T>& args) {
    for_each_vector(args.count, [&](int64_t i, auto load, auto store) {
        const Vector gate = load(args.gate + i);
        store(args.y + i, gate * sigmoid(gate) * load(args.up + i));
    });
}

// With s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
template <class T>
void swiglu_backward(const SwigluBackward<T>& args) {
    for_each_vector(args.count, [&](int64_t i, auto load, auto store) {
        const Vector gate = load(args.gate + i), dy = load(args.dy + i), one = set(1.0f);
        const Vector open = sigmoid(gate);
        const Vector slope = open * multiply_add(gate, one - open, one);
        store(args.dgate + i, slope * dy * load(args.up + i));
        store(args.dup + i, gate * open * dy);
    });
}

template void swiglu(const Swiglu<float>&);
template void swiglu(const Swiglu<BFloat16>&);
template void swiglu(const Swiglu<Half>&);
template void swiglu_backward(const SwigluBackward<float>&);
template void swiglu_backward(const SwigluBackward<BFloat16>&);
template void swiglu_backward(const SwigluBackward<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
