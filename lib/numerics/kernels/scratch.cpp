#include "kernels/scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace argosy::kernels {
namespace {

constexpr int64_t kAlignmentBytes = 64;

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

struct Scratch {
    std::unique_ptr<void, Free> memory;
    int64_t size_bytes = 0;

    void grow(int64_t wanted_bytes) {
        const int64_t rounded = (wanted_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
        memory.reset();
        memory.reset(std::aligned_alloc(kAlignmentBytes, static_cast<size_t>(rounded)));
        size_bytes = memory == nullptr ? 0 : rounded;
        if (memory == nullptr) throw std::bad_alloc();
    }
};

}  // namespace

void* scratch(int64_t size_bytes) {
    thread_local Scratch own;
    if (own.size_bytes < size_bytes) own.grow(size_bytes);
    return own.memory.get();
}

}  // namespace argosy::kernels
