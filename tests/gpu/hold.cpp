#include "gpu/hold.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "base/error.h"
#include "cuda/device.h"

namespace argosy::cuda {
namespace {

/// The driver compiles it, so that this file needs no nvcc. Each block writes its flag `arrived` and ends
/// when *released is not 0, or after `limit` nanoseconds.
constexpr const char* kKernel = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 arrived, .param .u64 released, .param .u64 limit) {
    .reg .pred %ends;
    .reg .u32 %block, %value;
    .reg .u64 %to, %from, %now, %end;
    ld.param.u64 %to, [arrived];
    ld.param.u64 %from, [released];
    ld.param.u64 %end, [limit];
    cvta.to.global.u64 %to, %to;
    cvta.to.global.u64 %from, %from;
    mov.u32 %block, %ctaid.x;
    mad.wide.u32 %to, %block, 4, %to;
    st.volatile.global.u32 [%to], 1;
    mov.u64 %now, %globaltimer;
    add.u64 %end, %end, %now;
wait:
    nanosleep.u32 1000;
    mov.u64 %now, %globaltimer;
    setp.ge.u64 %ends, %now, %end;
    @%ends bra leave;
    ld.volatile.global.u32 %value, [%from];
    setp.eq.u32 %ends, %value, 0;
    @%ends bra wait;
leave:
    ret;
}
)";
constexpr uint64_t kLimitNanoseconds = 60'000'000'000;
constexpr std::chrono::seconds kMaxStart{5};

int attribute(cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, current_device()), "cudaDeviceGetAttribute");
    return value;
}

cudaKernel_t load() {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    check(cudaLibraryLoadData(&library, kKernel, nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cudaLibraryLoadData");
    check(cudaLibraryGetKernel(&kernel, library, "hold"), "cudaLibraryGetKernel");
    return kernel;
}

}  // namespace

int num_multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

HeldMultiprocessors::HeldMultiprocessors(int number) : flags_((number + 1) * sizeof(uint32_t)) {
    static const auto kernel = reinterpret_cast<const void*>(load());
    const int shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "cudaFuncSetAttribute");
    std::memset(flags_.data(), 0, flags_.bytes());
    auto* const arrived = reinterpret_cast<volatile uint32_t*>(flags_.data());
    auto* released = arrived + number;
    uint64_t limit = kLimitNanoseconds;
    auto* first = arrived;
    void* args[] = {&first, &released, &limit};
    check(cudaLaunchKernel(kernel, dim3(number), dim3(1), args, shared_bytes, stream_.handle()),
          "cudaLaunchKernel");
    const auto end = std::chrono::steady_clock::now() + kMaxStart;
    while (std::count(arrived, arrived + number, 1U) < number) {
        if (std::chrono::steady_clock::now() < end) continue;
        *released = 1;
        throw RunError("not all of {} blocks run, each on a multiprocessor of its own", number);
    }
}

HeldMultiprocessors::~HeldMultiprocessors() {
    *reinterpret_cast<volatile uint32_t*>(flags_.data() + flags_.bytes() - sizeof(uint32_t)) = 1;
    stream_.synchronize();
}

}  // namespace argosy::cuda
