#undef _FORTIFY_SOURCE  // the sanitizer considers a jump to another stack an error
#include "support/emulated_cuda.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/launch.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace argosy::testing {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;

/// Saved state of a fiber or of the scheduler, with its stack, which the address sanitizer must know.
struct Context {
    jmp_buf jump;
    const void* stack = nullptr;
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;
};

#ifdef __SANITIZE_ADDRESS__
void leave(Context& from, const Context& to) {
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
}
void arrive(Context& at, Context& from) {
    __sanitizer_finish_switch_fiber(at.fake_stack, &from.stack, &from.stack_bytes);
}
#else
void leave(Context&, const Context&) {}
void arrive(Context&, Context&) {}
#endif

/// Below the stack lies an inaccessible page: a kernel that needs more stack crashes without damaging other
/// memory.
class Stack {
  public:
    Stack()
        : memory_(static_cast<std::byte*>(mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        ARGOSY_CHECK(memory_ != MAP_FAILED && mprotect(memory_, kGuardBytes, PROT_NONE) == 0, "no stack");
    }
    ~Stack() { munmap(memory_, kGuardBytes + kStackBytes); }
    Stack(const Stack&) = delete;
    std::byte* data() const { return memory_ + kGuardBytes; }

  private:
    static constexpr size_t kGuardBytes = 4096;
    std::byte* memory_;
};

struct Fiber {
    Stack memory;
    Context context;
    bool started = false;
};

enum class State { NotStarted, Ready, AtBarrier, AtExchange, Done };

struct Thread {
    dim3 index;
    State state = State::NotStarted;
    Fiber* fiber = nullptr;
    std::source_location place;  // of the barrier
    unsigned mask = 0;           // of the exchange
    uint64_t value = 0;
};

class Emulator {
  public:
    void launch(const char* kernel, dim3 blocks, int threads, int shared_bytes,
                const std::function<void()>& body);
    void* block_memory() { return block_memory_.data(); }
    void share(void* memory, size_t bytes) {
        shared_.push_back({static_cast<std::byte*>(memory), bytes});
        poison(shared_.back());
    }
    bool is_shared(const void* memory) const {
        const auto holds = [&](const Memory& each) {
            return memory >= each.data && memory < each.data + each.bytes;
        };
        return std::ranges::any_of(shared_, holds) || holds(whole_block_memory());
    }

    void barrier(const std::source_location& place) {
        current_->place = place;
        wait(State::AtBarrier);
    }
    const uint64_t* exchange(unsigned mask, uint64_t value) {
        current_->mask = mask;
        current_->value = value;
        wait(State::AtExchange);
        return exchanged_;
    }
    int lane() const { return static_cast<int>((current_ - threads_.data()) % kWarp); }
    [[noreturn]] void fail_thread(const char* what);

  private:
    struct Memory {
        std::byte* data;
        size_t bytes;
    };
    static void poison(const Memory& memory) {
        if (memory.bytes > 0) std::memset(memory.data, 0xff, memory.bytes);
    }
    Memory whole_block_memory() const {
        return {reinterpret_cast<std::byte*>(const_cast<uint4*>(block_memory_.data())),
                block_memory_.size() * sizeof(uint4)};
    }

    void prepare(dim3 blocks, int threads);
    std::vector<unsigned> order_of_blocks(unsigned count) const;
    void run_block();
    void run_warp(int begin, int end);
    bool run_lanes(int begin, int end);
    void resolve_exchange(int begin, int end);
    void release_barrier();
    [[noreturn]] void fail(const std::string& what);

    void wait(State state);
    void run_fiber(Fiber& fiber);
    void switch_to(Context& from, Context& to);
    static void fiber_main();
    void be_fiber();
    Thread* next_to_start();

    const char* kernel_ = "";
    const std::function<void()>* body_ = nullptr;
    std::vector<Thread> threads_;
    Thread* current_ = nullptr;
    int next_ = 0, step_ = 1, warp_begin_ = 0, warp_end_ = 0;  // which thread starts next
    std::string failure_;
    uint64_t exchanged_[kWarp] = {};
    std::vector<Memory> shared_;
    std::vector<uint4> block_memory_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;
    Fiber* running_ = nullptr;
    Context scheduler_;
};

Emulator& emulator() {
    static Emulator one;
    return one;
}

// Called within a fiber.

void Emulator::wait(State state) {
    current_->state = state;
    current_->fiber = running_;
    switch_to(running_->context, scheduler_);
}

void Emulator::fail_thread(const char* what) {
    failure_ = what;
    current_->fiber = running_;
    switch_to(running_->context, scheduler_);
    std::abort();  // never resumed
}

/// The next thread of the warp, unless it has already started.
Thread* Emulator::next_to_start() {
    if (next_ < warp_begin_ || next_ >= warp_end_) return nullptr;
    return threads_[next_].state == State::NotStarted ? &threads_[next_] : nullptr;
}

/// Starts threads one after the other as long as they reach no barrier; afterwards it is idle.
void Emulator::be_fiber() {
    Fiber* self = running_;
    arrive(self->context, scheduler_);
    for (;;) {
        while (Thread* thread = next_to_start()) {
            current_ = thread;
            next_ += step_;
            threadIdx = thread->index;
            thread->state = State::Ready;
            (*body_)();
            current_->state = State::Done;
            current_->fiber = nullptr;
        }
        idle_.push_back(self);
        switch_to(self->context, scheduler_);
    }
}

void Emulator::fiber_main() { emulator().be_fiber(); }

// Called within the scheduler.

[[gnu::noinline]] void Emulator::switch_to(Context& from, Context& to) {
    if (_setjmp(from.jump) == 0) {
        leave(from, to);
        _longjmp(to.jump, 1);
    }
    arrive(from, &from == &scheduler_ ? running_->context : scheduler_);
}

void Emulator::run_fiber(Fiber& fiber) {
    running_ = &fiber;
    if (fiber.started) {
        switch_to(scheduler_, fiber.context);
    } else {
        fiber.started = true;
        fiber.context.stack = fiber.memory.data();
        fiber.context.stack_bytes = kStackBytes;
        if (_setjmp(scheduler_.jump) == 0) {
            ucontext_t start;
            getcontext(&start);
            start.uc_stack = {.ss_sp = fiber.memory.data(), .ss_flags = 0, .ss_size = kStackBytes};
            start.uc_link = nullptr;
            makecontext(&start, fiber_main, 0);
            leave(scheduler_, fiber.context);
            setcontext(&start);
        }
        arrive(scheduler_, running_->context);
    }
    if (!failure_.empty()) fail(failure_ + fmt::format(" (block {}, thread {})", blockIdx.x, threadIdx.x));
}

/// Runs all lanes that can continue until none can. Returns whether a lane waits for others.
bool Emulator::run_lanes(int begin, int end) {
    const bool forwards = emulated_cuda().threads == Order::Forwards;
    warp_begin_ = begin, warp_end_ = end;
    step_ = forwards ? 1 : -1;
    bool waits = false;
    for (int i = 0; i < end - begin; ++i) {
        Thread& thread = threads_[forwards ? begin + i : end - 1 - i];
        if (thread.state == State::NotStarted) {
            next_ = static_cast<int>(&thread - threads_.data());
            if (idle_.empty()) {
                fibers_.push_back(std::make_unique<Fiber>());
                idle_.push_back(fibers_.back().get());
            }
            Fiber* fiber = idle_.back();
            idle_.pop_back();
            run_fiber(*fiber);
        } else if (thread.state == State::Ready) {
            current_ = &thread;
            threadIdx = thread.index;
            next_ = -1;
            run_fiber(*thread.fiber);
        }
        waits = waits || thread.state == State::AtExchange;
    }
    return waits;
}

void Emulator::resolve_exchange(int begin, int end) {
    for (int leader = begin; leader < end; ++leader) {
        if (threads_[leader].state != State::AtExchange) continue;
        const unsigned mask = threads_[leader].mask;
        for (int lane = 0; lane < kWarp; ++lane) {
            if ((mask >> lane & 1) == 0) continue;
            if (begin + lane >= end) fail("the mask of a shuffle has lanes that the block has not");
            Thread& thread = threads_[begin + lane];
            if (thread.state != State::AtExchange || thread.mask != mask) {
                fail(fmt::format("thread {} waits for thread {} at a shuffle, which is elsewhere", leader,
                                 begin + lane));
            }
            exchanged_[lane] = thread.value;
            thread.state = State::Ready;
        }
        if ((mask >> (leader - begin) & 1) == 0) fail("a lane is not in the mask of its shuffle");
        return;  // its lanes continue before another mask is examined
    }
}

void Emulator::run_warp(int begin, int end) {
    while (run_lanes(begin, end)) resolve_exchange(begin, end);
}

void Emulator::release_barrier() {
    const auto& place = threads_[0].place;
    for (Thread& thread : threads_) {
        if (thread.state != State::AtBarrier || thread.place.line() != place.line() ||
            thread.place.file_name() != place.file_name()) {
            const bool done = thread.state == State::Done || threads_[0].state == State::Done;
            fail(fmt::format("not all threads of block {} come to one barrier: threads 0 and {} {}",
                             blockIdx.x, &thread - threads_.data(),
                             done ? "differ in whether they end" : "are at two"));
        }
    }
    for (Thread& thread : threads_) thread.state = State::Ready;
}

void Emulator::run_block() {
    for (Thread& thread : threads_) thread.state = State::NotStarted;
    for (const Memory& memory : shared_) poison(memory);
    poison(whole_block_memory());
    const int count = static_cast<int>(threads_.size());
    const int num_warps = (count + kWarp - 1) / kWarp;
    for (;;) {
        for (int i = 0; i < num_warps; ++i) {
            const int warp = emulated_cuda().threads == Order::Forwards ? i : num_warps - 1 - i;
            run_warp(warp * kWarp, std::min(count, (warp + 1) * kWarp));
        }
        if (std::ranges::all_of(threads_, [](const Thread& one) { return one.state == State::Done; })) return;
        release_barrier();
    }
}

/// Waiting threads are abandoned: kernels own nothing.
void Emulator::fail(const std::string& what) {
    failure_.clear();
    fibers_.clear();
    idle_.clear();
    throw RunError("kernel {}: {}", kernel_, what);
}

void Emulator::prepare(dim3 blocks, int threads) {
    if (threads < 1 || threads > 1024) fail(fmt::format("{} threads in a block", threads));
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) fail("no blocks");
    if (blocks.y > 65535 || blocks.z > 65535 || blocks.x > 0x7fffffff) fail("too many blocks");
    threads_.resize(threads);
    for (int i = 0; i < threads; ++i) threads_[i].index = dim3(i, 0, 0);
    blockDim = dim3(threads);
    gridDim = blocks;
}

std::vector<unsigned> Emulator::order_of_blocks(unsigned count) const {
    std::vector<unsigned> order(count);
    std::iota(order.begin(), order.end(), 0);
    if (emulated_cuda().block_seed != 0) {
        std::shuffle(order.begin(), order.end(), std::mt19937_64(emulated_cuda().block_seed));
    }
    return order;
}

void Emulator::launch(const char* kernel, dim3 blocks, int threads, int shared_bytes,
                      const std::function<void()>& body) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    kernel_ = kernel;
    body_ = &body;
    prepare(blocks, threads);
    if (shared_bytes > emulated_cuda().max_shared_bytes)
        fail(fmt::format("{} bytes for a block", shared_bytes));
    block_memory_.resize((shared_bytes + sizeof(uint4) - 1) / sizeof(uint4));
    for (const unsigned number : order_of_blocks(blocks.x * blocks.y * blocks.z)) {
        blockIdx = {number % blocks.x, number / blocks.x % blocks.y, number / blocks.x / blocks.y};
        run_block();
    }
}

}  // namespace

EmulatedCuda& emulated_cuda() {
    static EmulatedCuda one;
    return one;
}

namespace emulated {

void launch(const char* kernel, dim3 blocks, int threads, int shared_bytes,
            const std::function<void()>& body) {
    emulator().launch(kernel, blocks, threads, shared_bytes, body);
}
void* block_memory() { return emulator().block_memory(); }
void fail(const char* what) { emulator().fail_thread(what); }
void barrier(const std::source_location& place) { emulator().barrier(place); }
const uint64_t* exchange(unsigned mask, uint64_t value) { return emulator().exchange(mask, value); }
int lane() { return emulator().lane(); }
void share(void* memory, size_t bytes) { emulator().share(memory, bytes); }
bool is_shared(const void* memory) { return emulator().is_shared(memory); }

}  // namespace emulated
}  // namespace argosy::testing

namespace argosy::kernels::cuda {

void check_launch(const char*, int) {}
int num_multiprocessors() { return testing::emulated_cuda().num_multiprocessors; }
int max_shared_bytes() { return testing::emulated_cuda().max_shared_bytes; }
void allow_shared_bytes(const char*, const void*, int) {}

}  // namespace argosy::kernels::cuda
