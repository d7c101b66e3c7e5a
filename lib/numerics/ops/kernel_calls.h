// Calls of Argosy's kernels (lib/numerics/kernels) with tensors: when the kernels are used, with which
// element type, and on which memory.
//
// Tensors without data (LibTorch's device meta) take the way of tensors in the processor's memory: an
// operation checks its arguments and allocates its results and temporary tensors, but run_on_parts() calls no
// kernel. The sizes and the order of all allocations are thus those of the real operation on as many
// threads of a processor.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/device.h"
#include "kernels/gpu_table.h"
#include "kernels/table.h"
#include "layout/slab.h"
#include "ops/ops_context.h"

namespace argosy::ops {

/// Whether Argosy's kernels compute an operation on tensors of x's type and device, on this thread's path.
inline bool has_kernels(const at::Tensor& x) {
    const auto type = x.scalar_type();
    return path() != Path::Plain && (x.is_cpu() || x.is_meta() || gpu::holds(x)) &&
           (type == at::kFloat || type == at::kBFloat16);
}

/// Whether one kernel may compute several operations, with the same bits. REQUIRES: has_kernels.
inline bool fused() { return path() == Path::Fused; }

/// Calls use(T{}) with the kernels' element type T of `type`.
template <class Use>
void with_element_type(at::ScalarType type, Use use) {
    switch (type) {
        case at::kFloat:
            return use(float{});
        case at::kBFloat16:
            return use(kernels::BFloat16{});
        default:
            ARGOSY_CHECK(false, "no kernels for elements of type {}", toString(type));
    }
}

/// The kernels for tensors on a GPU. REQUIRES: has_kernels.
template <class T>
const kernels::GpuTypedKernels<T>& gpu_kernels() {
    return kernels::gpu_table()->of<T>();
}

/// Allocates the scratch memory of a GPU kernel on the device of x. The tensor may be freed as soon as the
/// kernel is launched: only later work on the same stream can get the memory.
inline at::Tensor scratch(int64_t bytes, const at::Tensor& x) {
    return at::empty({bytes}, x.options().dtype(at::kByte));
}

/// The minimum number of elements, and of rows with `row_size` elements, for one thread of at::parallel_for.
inline constexpr int64_t kMinElementsPerThread = 1 << 15;
inline int64_t min_rows_per_thread(int64_t row_size) {
    return std::max<int64_t>(1, kMinElementsPerThread / std::max<int64_t>(1, row_size));
}

/// The number of threads over which run_on_parts() divides.
inline int threads_of_parts() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

/// Calls part(begin, end) from several threads, for all of `count` items of x, of which each thread takes at
/// least `min_per_thread`. Does nothing if x has no data. REQUIRES: x is not on a GPU.
template <class Part>
void run_on_parts(const at::Tensor& x, int64_t count, int64_t min_per_thread, const Part& part) {
    if (!x.is_meta()) at::parallel_for(0, count, min_per_thread, part);
}

/// Calls a kernel for all rows of a matrix on the device of x: on a GPU once, on the current stream; on a
/// processor once for each thread. `rows(begin, end)` returns the arguments for some of the rows, `on_gpu`
/// are those that only the GPU's kernel has.
template <class T, class Args, class Rows, class... OnGpu>
void run_on_rows(void (*kernels::TypedKernels<T>::*kernel)(const Args&),
                 void (*kernels::GpuTypedKernels<T>::*gpu_kernel)(const Args&, kernels::GpuStream, OnGpu...),
                 const at::Tensor& x, int64_t num_rows, int64_t row_size, const Rows& rows,
                 std::type_identity_t<OnGpu>... on_gpu) {
    if (gpu::holds(x))
        return (gpu_kernels<T>().*gpu_kernel)(rows(0, num_rows), gpu::current_stream(), on_gpu...);
    run_on_parts(x, num_rows, min_rows_per_thread(row_size),
                 [&](int64_t begin, int64_t end) { (kernels::table().of<T>().*kernel)(rows(begin, end)); });
}

/// Calls run(begin, size, first_element) from several threads, for all elements of x, a slab of a whole
/// tensor. The elements [begin, begin + size) are in one row; the first of them is element `first_element` of
/// the whole tensor.
template <class Run>
void run_on_slab_rows(const at::Tensor& x, const layout::SlabRows& rows, const Run& run) {
    run_on_parts(x, x.numel(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t next = 0; begin < end; begin = next) {
            next = std::min(end, (begin / rows.length + 1) * rows.length);
            run(begin, next - begin, static_cast<uint64_t>(rows.element(begin)));
        }
    });
}

/// LibTorch's type for an element type of the kernels.
template <class T>
inline constexpr at::ScalarType kScalarType = c10::CppTypeToScalarType<T>::value;
template <>
inline constexpr at::ScalarType kScalarType<kernels::BFloat16> = at::kBFloat16;

template <class T>
void check_elements(const at::Tensor& x) {
    ARGOSY_CHECK(!x.defined() || (x.is_contiguous() && x.scalar_type() == kScalarType<T>),
                 "a kernel for {} got a tensor that is strided or of type {}", toString(kScalarType<T>),
                 toString(x.scalar_type()));
}

/// The address of x's first element, for any strides; null if x is undefined or has no data. REQUIRES: x is
/// of type T.
template <class T>
const T* first_element(const at::Tensor& x) {
    return x.defined() && !x.is_meta() ? static_cast<const T*>(x.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_first_element(const at::Tensor& x) {
    return x.defined() && !x.is_meta() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}

/// The elements of x; null if x is undefined or has no data. REQUIRES: x is contiguous and of type T.
template <class T>
const T* elements(const at::Tensor& x) {
    check_elements<T>(x);
    return first_element<T>(x);
}
template <class T>
T* mutable_elements(const at::Tensor& x) {
    check_elements<T>(x);
    return mutable_first_element<T>(x);
}

inline kernels::Float8Type float8_type(const at::Tensor& x) {
    return x.scalar_type() == at::ScalarType::Float8_e4m3fn ? kernels::Float8Type::E4M3
                                                            : kernels::Float8Type::E5M2;
}

/// Whether the elements of each row are adjacent. Rows may be far apart, as in a view of some columns of a
/// matrix.
inline bool has_dense_rows(const at::Tensor& x) { return x.stride(1) == 1 || x.size(1) <= 1; }

/// Returns x if its rows are dense, else a contiguous copy.
inline at::Tensor with_dense_rows(const at::Tensor& x) { return has_dense_rows(x) ? x : x.contiguous(); }

template <class T>
void check_rows(const at::Tensor& x) {
    ARGOSY_CHECK(x.dim() == 2 && has_dense_rows(x) && x.scalar_type() == kScalarType<T>,
                 "a kernel for rows of {} got a tensor of type {} whose rows are not dense",
                 toString(kScalarType<T>), toString(x.scalar_type()));
}

/// The rows of x; row i begins at element i * x.stride(0). REQUIRES: x is a matrix of type T with dense rows.
template <class T>
const T* rows_of(const at::Tensor& x) {
    check_rows<T>(x);
    return first_element<T>(x);
}
template <class T>
T* mutable_rows_of(const at::Tensor& x) {
    check_rows<T>(x);
    return mutable_first_element<T>(x);
}

}  // namespace argosy::ops
