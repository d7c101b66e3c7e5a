// A library that CUDA loads into a program (CUDA_INJECTION64_PATH names it): it writes a line for each kernel,
// copy and fill of memory to the file ARGOSY_KERNEL_TIMES when the program ends: "start nanoseconds name", where
// start is in nanoseconds, too. Kernels of graphs are among them; clocks and overlaps are the program's own.
#include <cupti.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20, kAlignment = 8;

std::FILE* file;
std::mutex file_mutex;

void write_line(uint64_t start, uint64_t end, const char* name) {
    std::fprintf(file, "%llu %llu %s\n", static_cast<unsigned long long>(start),
                 static_cast<unsigned long long>(end - start), name);
}

void write_kernel(const CUpti_ActivityKernel10& kernel) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> readable(
        abi::__cxa_demangle(kernel.name, nullptr, nullptr, &status), &std::free);
    write_line(kernel.start, kernel.end, readable ? readable.get() : kernel.name);
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
    const std::lock_guard lock(file_mutex);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            write_kernel(*reinterpret_cast<const CUpti_ActivityKernel10*>(record));
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
            write_line(copy.start, copy.end, "copy");
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
            write_line(fill.start, fill.end, "fill");
        }
    }
    std::fflush(file);  // it is not closed, since buffers may come until the process has ended
    std::free(buffer);
}

void finish() { cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }

}  // namespace

/// CUDA calls it when the program first uses the GPU.
extern "C" int InitializeInjection() {
    if (file != nullptr) return 1;
    const char* const path = std::getenv("ARGOSY_KERNEL_TIMES");
    file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) {
        std::perror("kernel_recorder: cannot write the file that ARGOSY_KERNEL_TIMES names");
        return 0;
    }
    bool good = cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS;
    for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                          CUPTI_ACTIVITY_KIND_MEMSET}) {
        good = good && cuptiActivityEnable(kind) == CUPTI_SUCCESS;
    }
    if (!good) std::fputs("kernel_recorder: CUPTI cannot record this GPU's kernels\n", stderr);
    std::atexit(finish);
    return 1;
}
