#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void widen(const Widen<T>& args) {
    for_each_vector(args.count,
                    [&](int64_t i, auto load, auto store) { store(args.to + i, load(args.from + i)); });
}

template <class T>
void narrow(const Narrow<T>& args) {
    for_each_vector(args.count,
                    [&](int64_t i, auto load, auto store) { store(args.to + i, load(args.from + i)); });
}

template void widen(const Widen<float>&);
template void widen(const Widen<BFloat16>&);
template void widen(const Widen<Half>&);
template void narrow(const Narrow<float>&);
template void narrow(const Narrow<BFloat16>&);
template void narrow(const Narrow<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
