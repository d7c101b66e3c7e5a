#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

template <class T>
void turn_head(const T* x, T* y, const float* cos, const float* sin, Vector direction, int64_t half) {
    for_each_vector(half, [&](int64_t i, auto load, auto store) {
        const Vector c = load(cos + i), s = load(sin + i) * direction;
        const Vector first = load(x + i), second = load(x + half + i);
        store(y + i, first * c - second * s);
        store(y + half + i, second * c + first * s);
    });
}

}  // namespace

template <class T>
void rope(const Rope<T>& args) {
    const Vector direction = set(args.turn == Turn::Forward ? 1.0f : -1.0f);
    const int64_t head_size = 2 * args.half;
    for (int64_t row = 0; row < args.num_rows; ++row) {
        const int64_t angles = (args.first_row + row) % args.seq_len * args.half;
        for (int64_t head = 0; head < args.num_heads; ++head) {
            turn_head(args.x + row * args.x_stride + head * head_size,
                      args.y + row * args.y_stride + head * head_size, args.cos + angles, args.sin + angles,
                      direction, args.half);
        }
    }
}

template void rope(const Rope<float>&);
template void rope(const Rope<BFloat16>&);
template void rope(const Rope<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
