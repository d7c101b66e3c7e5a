#include "comm/peer_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "comm/values.h"
#include "cuda/device.h"
#include "gpu/device.h"

namespace argosy::comm {
namespace {

// Places of the words, which neighbours write: `ready` by the next rank, `arrived` by the one before; the
// other two say at the start that words arrive.
constexpr size_t kReady = 0, kArrived = 64, kFromNext = 128, kFromPrevious = 192, kWordsEnd = 256;
/// The numbers wrap around after a few messages, so that every run has passed that.
constexpr uint32_t kFirstNumber = uint32_t{0} - 16;
constexpr uint32_t kTrial = 0x5a5a0001;
constexpr uint32_t kFarAhead = uint32_t{1} << 30;

template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& from) {
    from.copy(to, kSize - 1);
}

std::string node_identity() {
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    return Environment::read().node_name() + " " + boot_id;
}

std::string namespaces() {
    std::error_code unknown;
    return std::filesystem::read_symlink("/proc/self/ns/ipc", unknown).string() + " " +
           std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string();
}

int64_t whole_pages(int64_t bytes) {
    constexpr auto kPage = static_cast<int64_t>(cuda::kSharedPageBytes);
    return (bytes + kPage - 1) / kPage * kPage;
}

/// Memory for a segment, also what LibTorch's allocator keeps without a use.
cuda::DeviceMemory allocate(int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    try {
        return cuda::DeviceMemory(size);
    } catch (const MemoryError&) {
        gpu::free_cached_memory();
    }
    try {
        return cuda::DeviceMemory(size);
    } catch (const MemoryError& error) {
        throw MemoryError(error.figures(), "{}, or set comm.peer_copies = false", error.what());
    }
}

/// COLLECTIVE: the first text that is not empty.
std::string first_text(Communicator& group, const std::string& own) {
    const std::vector<std::string> all = all_gather_texts(group, own);
    const auto found = std::ranges::find_if_not(all, &std::string::empty);
    return found == all.end() ? "" : *found;
}

}  // namespace

std::string obstacle_between(const PeerFacts& own, const PeerFacts& neighbour) {
    if (std::string(own.node) != neighbour.node) return "its ranks are on several nodes";
    if (std::string(own.namespaces) != neighbour.namespaces)
        return "its ranks are in containers with namespaces of their own for processes";
    switch (cuda::peer_access(neighbour.pci_bus_id)) {
        case cuda::PeerAccess::Hidden:
            return "a rank does not see the GPUs of its neighbours (--gpus-per-task and CUDA_VISIBLE_DEVICES "
                   "hide them)";
        case cuda::PeerAccess::NotReached:
            return "a GPU does not reach the memory of its neighbour";
        case cuda::PeerAccess::Reached:
            return "";
    }
    return "";
}

PeerMemory::PeerMemory(Communicator& host)
    : host_(&host),
      device_(cuda::current_device()),
      next_((host.rank() + 1) % host.size()),
      previous_((host.rank() + host.size() - 1) % host.size()),
      num_sent_(kFirstNumber),
      num_received_(kFirstNumber) {
    const std::byte* const words = segments_.emplace_back(cuda::DeviceMemory(cuda::kSharedPageBytes)).begin;
    std::array<uint32_t, kWordsEnd / sizeof(uint32_t)> values;
    values.fill(kFirstNumber);
    cuda::copy_to_device(const_cast<std::byte*>(words), std::as_bytes(std::span(values)), stream_);
    stream_.synchronize();
}

PeerMemory::Opened PeerMemory::open(Communicator& host) {
    const std::shared_ptr<PeerMemory> made(new PeerMemory(host));
    std::string why_not = first_text(host, made->connect());
    if (why_not.empty()) why_not = first_text(host, made->find_lost_words());
    if (why_not.empty()) return {made};
    made->close();
    return {nullptr, why_not};
}

/// Maps the neighbours' words and writes to them. Returns why that is not possible.
std::string PeerMemory::connect() {
    PeerFacts own;
    copy_text(own.node, node_identity());
    copy_text(own.namespaces, namespaces());
    copy_text(own.pci_bus_id, cuda::describe_device(device_).pci_bus_id);
    std::string failure;
    try {
        own.words = cuda::handle_of(segments_.front().own);
    } catch (const RunError& error) {
        failure = error.what();
    }
    const std::vector<PeerFacts> all = all_gather(*host_, own);
    for (const int neighbour : {next_, previous_})
        if (failure.empty()) failure = obstacle_between(own, all[neighbour]);
    if (!failure.empty()) return failure;
    try {
        words_of_next_ = mapped_.emplace_back(all[next_].words).data();
        words_of_previous_ =
            next_ == previous_ ? words_of_next_ : mapped_.emplace_back(all[previous_].words).data();
        cuda::write_value(words_of_next_ + kFromPrevious, kTrial, stream_);
        cuda::write_value(words_of_previous_ + kFromNext, kTrial, stream_);
        cuda::await_value(segments_.front().begin + kReady, kFirstNumber, stream_);
        stream_.synchronize();
    } catch (const RunError& error) {
        return error.what();
    }
    return "";
}

/// REQUIRES: all ranks have connected.
std::string PeerMemory::find_lost_words() const {
    for (const size_t word : {kFromNext, kFromPrevious}) {
        uint32_t value = 0;
        cuda::copy_to_host(std::as_writable_bytes(std::span(&value, 1)), segments_.front().begin + word,
                           stream_);
        stream_.synchronize();
        if (value != kTrial) return "a value that a neighbour wrote did not arrive";
    }
    return "";
}

PeerMemory::~PeerMemory() {
    if (closed_) return;
    new std::vector<Segment>(std::move(segments_));  // a neighbour may still write to them
    new std::vector<cuda::MappedMemory>(std::move(mapped_));
}

void PeerMemory::close() {
    mapped_.clear();
    all_gather(*host_, 0);  // all ranks have closed
    closed_ = true;
}

std::byte* PeerMemory::add_segment(int64_t num_bytes) {
    struct Made {
        int64_t num_bytes;
        cuda::MemoryHandle handle;
    };
    cuda::DeviceMemory own = allocate(whole_pages(num_bytes));
    const std::vector<Made> all = all_gather(*host_, Made{num_bytes, cuda::handle_of(own)});
    for (const Made& each : all)
        ARGOSY_CHECK(each.num_bytes == num_bytes, "ranks of {} add {} and {} bytes to their pools",
                     host_->name(), num_bytes, each.num_bytes);
    std::byte* const data = own.data();
    std::byte* const of_next = mapped_.emplace_back(all[next_].handle).data();
    segments_.push_back({std::move(own), data, of_next});
    return data;
}

std::byte* PeerMemory::at_next(const at::Tensor& tensor) const {
    const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
    const auto found = std::ranges::find_if(segments_, [data](const Segment& segment) {
        return segment.of_next != nullptr && data >= segment.begin &&
               data < segment.begin + segment.own.bytes();
    });
    ARGOSY_CHECK(found != segments_.end(), "a message along the ring of {} to memory outside of its pool",
                 host_->name());
    return found->of_next + (data - found->begin);
}

void PeerMemory::exchange(const Op& op, const cuda::Stream& out, const cuda::Stream& in) {
    const size_t bytes = op.in.nbytes();
    ARGOSY_CHECK(op.out.defined() && op.out.nbytes() == bytes, "a message of {} bytes to another place",
                 bytes);
    const std::byte* const words = segments_.front().begin;
    // 1. this rank has room for its message
    cuda::write_value(words_of_previous_ + kReady, ++num_received_, in);
    // 2. the message to the next rank
    cuda::await_value(words + kReady, ++num_sent_, out);
    if (bytes > 0)
        cuda::copy_on_device(at_next(op.out), static_cast<const std::byte*>(op.in.const_data_ptr()), bytes,
                             out);
    cuda::write_value(words_of_next_ + kArrived, num_sent_, out);
    // 3. its own message
    cuda::await_value(words + kArrived, num_received_, in);
}

void PeerMemory::end_waits() const {
    cuda::set_device(device_);
    std::byte* const words = segments_.front().own.data();
    cuda::write_value(words + kReady, num_sent_ + kFarAhead, stream_);
    cuda::write_value(words + kArrived, num_received_ + kFarAhead, stream_);
}

}  // namespace argosy::comm
