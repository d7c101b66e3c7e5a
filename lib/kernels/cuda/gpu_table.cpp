#include "kernels/gpu_table.h"

#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/swiglu.h"

namespace argosy::kernels {
namespace {

template <class T>
constexpr GpuTyped<T> typed() {
    return {.rms_norm = cuda::rms_norm<T>, .swiglu = cuda::swiglu<T>};
}

}  // namespace

const GpuTable* gpu_table() {
    static constexpr GpuTable kTable = {typed<float>(), typed<BFloat16>(), typed<Half>()};
    return &kTable;
}

}  // namespace argosy::kernels
