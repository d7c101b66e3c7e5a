#include "checkpoint/gather.h"

#include <cstring>

namespace argosy::checkpoint {
namespace {

// The cost of a separate read is negligible from this size on.
constexpr int64_t kDirectBytes = int64_t{1} << 16;
constexpr int64_t kReadBytes = int64_t{1} << 20;  // maximum of one read of several runs
constexpr int64_t kPageBytes = 4096;     // a disk reads whole pages, so reading a smaller gap costs nothing
constexpr size_t kMaxPending = 1 << 14;  // runs that one read may serve

}  // namespace

void Gather::add(int64_t from, int64_t to, int64_t count) {
    const bool near = !pending_.empty() && from - end() < kPageBytes && from + count - begin() <= kReadBytes;
    if (!near || pending_.size() == kMaxPending) flush();
    pending_.push_back({from, to, count});
    if (count >= kDirectBytes) flush();
}

void Gather::flush() {
    if (pending_.empty()) return;
    const int64_t count = end() - begin();
    fetched_ += count;
    if (pending_.size() == 1) {
        file_.read_at(begin(), out_.subspan(pending_.front().to, count));
    } else {
        buffer_.resize(kReadBytes);
        file_.read_at(begin(), std::span(buffer_).first(count));
        for (const ByteRun& run : pending_) {
            std::memcpy(out_.data() + run.to, buffer_.data() + (run.from - begin()), run.count);
        }
    }
    pending_.clear();
}

}  // namespace argosy::checkpoint
