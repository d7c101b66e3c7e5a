#include "observe/tensor_heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "observe/memory.h"

namespace {

thread_local bool refuses_memory = false;
thread_local int num_refused = 0;

}  // namespace

// Replace the executable's functions: a thread can run out of memory beside that of tensors. They are not
// inlined, because GCC would warn of free() for memory of operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
    void* const memory = refuses_memory ? nullptr : std::malloc(bytes);
    if (memory != nullptr) return memory;
    num_refused += refuses_memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace argosy::observe {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// Blocks of a heap; each is filled with its number, so that blocks that overlap are found.
class Blocks {
  public:
    explicit Blocks(TensorHeap& heap) : heap_(heap) {}
    ~Blocks() {
        while (!blocks_.empty()) free(blocks_.begin()->first);
    }

    int allocate(int64_t num_bytes) {
        auto* const block = static_cast<unsigned char*>(heap_.allocate(num_bytes));
        EXPECT_NE(block, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0);
        std::memset(block, ++last_ & 0xff, num_bytes);
        blocks_[last_] = {block, num_bytes};
        bytes_ += num_bytes;
        max_bytes_ = std::max(max_bytes_, bytes_);
        return last_;
    }
    void free(int number) {
        const auto [block, num_bytes] = blocks_.extract(number).mapped();
        for (int64_t i = 0; i < num_bytes; i += 997) ASSERT_EQ(block[i], number & 0xff) << i;
        ASSERT_EQ(block[num_bytes - 1], number & 0xff);
        heap_.free(block, num_bytes);
        bytes_ -= num_bytes;
    }
    int any(std::mt19937& random) const {
        return std::next(blocks_.begin(), static_cast<int64_t>(random() % blocks_.size()))->first;
    }
    size_t size() const { return blocks_.size(); }
    int64_t max_bytes() const { return max_bytes_; }
    void* start(int number) const { return blocks_.at(number).start; }

  private:
    struct Block {
        unsigned char* start;
        int64_t num_bytes;
    };
    TensorHeap& heap_;
    std::map<int, Block> blocks_;
    int last_ = 0;
    int64_t bytes_ = 0, max_bytes_ = 0;
};

TEST(TensorHeap, BlocksOfRandomSizesKeepTheirContentAndTheHeapItsLimit) {
    for (const unsigned seed : {1, 2, 3}) {
        TensorHeap heap;
        Blocks blocks(heap);
        std::mt19937 random(seed);
        for (int i = 0; i < 3000; ++i) {
            if (blocks.size() > 0 && random() % 24 < blocks.size()) {
                blocks.free(blocks.any(random));
            } else {
                blocks.allocate(TensorHeap::kMinBytes +
                                static_cast<int64_t>(random() % (kMiB >> (random() % 4))));
            }
            const double limit = (1 + TensorHeap::kMaxExcess) * static_cast<double>(blocks.max_bytes());
            // A hole gives back whole pages.
            EXPECT_LE(static_cast<double>(heap.resident_bytes()), limit + 64 * 1024);
        }
    }
}

/// Blocks of 1 MiB, of which every other is freed, leave no place for 2 MiB.
TEST(TensorHeap, GapsThatDoNotFitAreGivenBack) {
    constexpr int kBlocks = 128;
    TensorHeap heap;
    Blocks blocks(heap);
    std::vector<int> numbers;
    for (int i = 0; i < kBlocks; ++i) numbers.push_back(blocks.allocate(kMiB));
    const int64_t before = resident_bytes();
    for (int i = 0; i < kBlocks; i += 2) blocks.free(numbers[i]);
    EXPECT_EQ(heap.resident_bytes(), kBlocks * kMiB) << "freed memory is kept";
    for (int i = 0; i < kBlocks / 4; ++i) blocks.allocate(2 * kMiB);
    const double limit = (1 + TensorHeap::kMaxExcess) * kBlocks * kMiB;
    EXPECT_LE(static_cast<double>(heap.resident_bytes()), limit);
    EXPECT_LE(resident_bytes() - before, (kBlocks * kMiB) / 10) << "what the kernel counts";
}

TEST(TensorHeap, TheSameStepUsesTheSamePlaces) {
    TensorHeap heap;
    Blocks blocks(heap);
    std::vector<void*> places[2];
    for (auto& step : places) {
        std::vector<int> numbers;
        for (int i = 0; i < 50; ++i) {
            numbers.push_back(blocks.allocate((1 + i % 7) * 100'000));
            step.push_back(blocks.start(numbers.back()));
            if (i % 3 == 2) {
                blocks.free(numbers[i - 1]);
                numbers[i - 1] = 0;
            }
        }
        for (const int number : numbers)
            if (number != 0) blocks.free(number);
    }
    EXPECT_EQ(places[0], places[1]);
}

TEST(TensorHeap, ReturnsNullWhereTheKernelRefusesMemory) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer needs more addresses than the limit allows";
#endif
    TensorHeap heap;
    Blocks blocks(heap);
    blocks.allocate(kMiB);
    rlimit old_limit{};
    ASSERT_EQ(getrlimit(RLIMIT_DATA, &old_limit), 0);
    const rlimit none{1, old_limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &none), 0);
    EXPECT_EQ(heap.allocate(kMiB), nullptr);
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &old_limit), 0);
    blocks.allocate(kMiB);
}

/// Holes between blocks merge with none: each of them is a new entry.
TEST(TensorHeap, FreesBlocksWithoutMemoryForIt) {
    constexpr int kBlocks = 64;
    TensorHeap heap;
    std::vector<void*> blocks(kBlocks);
    for (const int freed_first : {0, 1}) {
        for (void*& block : blocks) block = heap.allocate(kMiB);
        refuses_memory = true;
        for (int i = freed_first; i < kBlocks; i += 2) heap.free(blocks[i], kMiB);
        for (int i = 1 - freed_first; i < kBlocks; i += 2) heap.free(blocks[i], kMiB);
        void* const again = heap.allocate(kBlocks * kMiB);
        refuses_memory = false;
        ASSERT_NE(again, nullptr) << "the blocks are one hole, and there are entries for it";
        heap.free(again, kBlocks * kMiB);
    }
    EXPECT_EQ(num_refused, 0);
}

TEST(TensorHeap, ReturnsNullWithoutMemoryForItsHoles) {
    TensorHeap heap;
    refuses_memory = true;
    void* const block = heap.allocate(kMiB);
    refuses_memory = false;
    EXPECT_EQ(block, nullptr);
    EXPECT_GT(std::exchange(num_refused, 0), 0);
    Blocks blocks(heap);
    blocks.allocate(kMiB);
}

}  // namespace
}  // namespace argosy::observe
