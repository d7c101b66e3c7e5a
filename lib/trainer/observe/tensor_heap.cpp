#include "observe/tensor_heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace argosy::observe {
namespace {

constexpr int64_t kAlignmentBytes = 64, kPageBytes = 4096;
constexpr int64_t kSparesToGrow = 1, kSparesToGiveBack = 2;

int64_t rounded_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

/// Memory without pages, at `wanted` if that place is free; 0 if the kernel refuses it.
uintptr_t map(uintptr_t wanted, int64_t num_bytes) {
    void* const start = mmap(reinterpret_cast<void*>(wanted), num_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(start);
}

void unmap(uintptr_t start, int64_t num_bytes) { munmap(reinterpret_cast<void*>(start), num_bytes); }

/// A place with twice as many free addresses as the machine has memory. The kernel puts other mappings at the
/// end of that place, so the heap grows in one piece. 0 if there is no such place; the heap then has several
/// pieces.
uintptr_t free_place() {
    const int64_t num_bytes = 2 * sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    void* const start =
        mmap(nullptr, num_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return 0;
    munmap(start, num_bytes);
    return reinterpret_cast<uintptr_t>(start);
}

}  // namespace

void* TensorHeap::allocate(int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    num_bytes = rounded_up(num_bytes, kAlignmentBytes);
    if (!provide_spares(1 + kSparesToGrow)) return nullptr;
    uintptr_t place = find_place(num_bytes);
    if (place == 0 && grow(num_bytes)) place = find_place(num_bytes);
    if (place == 0) return nullptr;
    ++num_blocks_;
    resident_bytes_ += take(place, num_bytes);
    block_bytes_ += num_bytes;
    max_block_bytes_ = std::max(max_block_bytes_, block_bytes_);
    const auto limit = static_cast<int64_t>((1 + kMaxExcess) * static_cast<double>(max_block_bytes_));
    if (resident_bytes_ > limit) give_back(resident_bytes_ - limit);
    return reinterpret_cast<void*>(place);
}

void TensorHeap::free(void* block, int64_t num_bytes) noexcept {
    const std::lock_guard lock(mutex_);
    --num_blocks_;
    num_bytes = rounded_up(num_bytes, kAlignmentBytes);
    block_bytes_ -= num_bytes;
    add_hole(reinterpret_cast<uintptr_t>(block), {num_bytes, /*touched=*/true});
}

int64_t TensorHeap::resident_bytes() const {
    const std::lock_guard lock(mutex_);
    return resident_bytes_;
}

/// Neighbouring holes, touched or not, are one place.
uintptr_t TensorHeap::find_place(int64_t num_bytes) const {
    uintptr_t start = 0, end = 0;
    for (const auto& [address, hole] : holes_) {
        if (address != end) start = address;
        end = address + hole.num_bytes;
        if (end - start >= static_cast<uintptr_t>(num_bytes)) return start;
    }
    return 0;
}

/// Extends the newest mapping so that its last hole, which may be empty, has num_bytes. If another mapping is
/// in the way, makes a new one. False if the kernel refuses memory.
bool TensorHeap::grow(int64_t num_bytes) {
    if (end_ == 0) end_ = free_place();
    uintptr_t last = end_;
    for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
        if (hole->first + hole->second.num_bytes == last) last = hole->first;
    }
    int64_t more = rounded_up(num_bytes - static_cast<int64_t>(end_ - last), kPageBytes);
    uintptr_t start = map(end_, more);
    if (start != 0 && start != end_) {
        unmap(start, more);
        more = rounded_up(num_bytes, kPageBytes);
        start = map(0, more);
    }
    if (start == 0) return false;
    end_ = start + more;
    add_hole(start, {more, /*touched=*/false});
    return true;
}

int64_t TensorHeap::take(uintptr_t start, int64_t num_bytes) {
    const uintptr_t end = start + num_bytes;
    int64_t untouched_bytes = 0;
    for (auto at = holes_.find(start); at != holes_.end() && at->first < end;) {
        const auto [hole_start, hole] = *at;
        at = remove_hole(at);
        const uintptr_t hole_end = hole_start + hole.num_bytes, taken_end = std::min(end, hole_end);
        if (!hole.touched) untouched_bytes += static_cast<int64_t>(taken_end - hole_start);
        if (taken_end < hole_end)
            put_hole(taken_end, {static_cast<int64_t>(hole_end - taken_end), hole.touched});
    }
    return untouched_bytes;
}

/// Makes sure that there are spare entries for all blocks and `more`. False if memory has run out.
bool TensorHeap::provide_spares(int64_t more) try {
    while (std::ssize(spares_) < num_blocks_ + more) spares_.emplace(0, Hole{});
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

/// Takes a spare entry.
void TensorHeap::put_hole(uintptr_t start, Hole hole) {
    auto entry = spares_.extract(spares_.begin());
    entry.key() = start;
    entry.mapped() = hole;
    holes_.insert(std::move(entry));
}

/// The entry becomes a spare one. Returns the next hole.
TensorHeap::Holes::iterator TensorHeap::remove_hole(Holes::iterator at) {
    const auto next = std::next(at);
    spares_.insert(holes_.extract(at));
    return next;
}

/// Merges the hole with its neighbours of the same kind.
void TensorHeap::add_hole(uintptr_t start, Hole hole) {
    auto next = holes_.lower_bound(start);
    if (next != holes_.end() && next->first == start + hole.num_bytes &&
        next->second.touched == hole.touched) {
        hole.num_bytes += next->second.num_bytes;
        next = remove_hole(next);
    }
    if (next != holes_.begin()) {
        auto& [before_start, before] = *std::prev(next);
        if (before_start + before.num_bytes == start && before.touched == hole.touched) {
            before.num_bytes += hole.num_bytes;
            return;
        }
    }
    put_hole(start, hole);
}

/// Gives the kernel the pages of at least num_bytes, or of all holes: the largest first, each from its end.
void TensorHeap::give_back(int64_t num_bytes) {
    while (num_bytes > 0 && provide_spares(kSparesToGiveBack)) {
        const auto size = [](const auto& entry) { return entry.second.touched ? entry.second.num_bytes : 0; };
        const auto largest = std::ranges::max_element(holes_, {}, size);
        if (largest == holes_.end()) return;
        const auto start = static_cast<int64_t>(largest->first), end = start + size(*largest);
        const int64_t last = end / kPageBytes * kPageBytes;
        const int64_t first =
            std::max(rounded_up(start, kPageBytes), (end - num_bytes) / kPageBytes * kPageBytes);
        if (first >= last) return;
        if (madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) return;
        remove_hole(largest);
        if (start < first) put_hole(start, {first - start, /*touched=*/true});
        if (last < end) put_hole(last, {end - last, /*touched=*/true});
        add_hole(first, {last - first, /*touched=*/false});
        num_bytes -= last - first;
        resident_bytes_ -= last - first;
    }
}

}  // namespace argosy::observe
