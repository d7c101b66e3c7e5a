// Messages along the ring of a group's ranks by copy engines. Each rank has a pool of memory that the rank
// before it maps, and receives in tensors of that pool. Ranks make and free tensors of the same sizes in the
// same order, so a sender knows the place of the next rank's tensor from its own (Op::out of a Send).
//
// Message number k from a rank to the next takes two words, each in the memory of the rank that awaits it:
//
//     receiver:  1. writes k to the sender's `ready`
//     sender:    2. awaits its `ready`, copies, and writes k to the receiver's `arrived`
//     receiver:  3. awaits its `arrived`
//
// 1. A tensor is not written while the receiver still uses its memory for something else: `ready` is written
//    after the work on the receiver's compute stream at submission.
// 2. `arrived` is written after the copy, on the same stream; the sender's tensor may then change.
// 3. The numbers only grow, and wrap around. No rank is 2^31 messages ahead of a neighbour, for which it
//    waits.
// 4. In a submission each rank writes `ready` before it awaits anything. Even if a device put all streams on
//    one queue, in the order of the calls, no wait would last for ever.
// 5. No rank frees memory that another one maps (close()).
//
// A CUDA graph would repeat the numbers of its recording, so none can have these messages. If a rank ends,
// its neighbours wait until their processes end, or until end_waits(): nothing else ends the wait of a
// stream. The watchdog reports it like any operation that has no end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/tensor_pool.h"
#include "cuda/peer_memory.h"

namespace argosy::comm {

/// The facts that a rank tells the others, before they map its words.
struct PeerFacts {
    char node[160] = {};       // equal on the ranks of a node
    char namespaces[96] = {};  // of its processes: CUDA maps no memory of another one's
    char pci_bus_id[32] = {};
    cuda::MemoryHandle words = {};
};

/// Why a rank cannot send to a neighbour in this way; empty if it may.
std::string obstacle_between(const PeerFacts& own, const PeerFacts& neighbour);

class PeerMemory : public TensorPool {
  public:
    struct Opened {
        std::shared_ptr<PeerMemory> memory;  // null on all ranks, or on none
        std::string why_not = {};            // the same on all ranks
    };
    /// COLLECTIVE over the ranks of `host`, which carries tensors in the host's memory. REQUIRES: host lives
    /// until close(); two ranks or more; this thread records no graph.
    static Opened open(Communicator& host);
    ~PeerMemory() override;

    /// Copies op.in to the tensor of the next rank that is at the place of op.out here, on the stream `out`,
    /// and awaits the message of the rank before on the stream `in`. Every rank of the ring calls it equally
    /// often.
    void exchange(const Op& op, const cuda::Stream& out, const cuda::Stream& in);

    /// Ends all waits of this rank's streams, with wrong results. Any thread may call it.
    void end_waits() const;

    /// COLLECTIVE. No tensor may be sent after it; this rank's own memory lives as long as its tensors. If it
    /// is not called, as when an error unwinds the stack, no memory is ever freed.
    void close();

  private:
    explicit PeerMemory(Communicator& host);
    std::byte* add_segment(int64_t num_bytes) override;
    std::string connect();
    std::string find_lost_words() const;
    std::byte* at_next(const at::Tensor& tensor) const;

    struct Segment {
        cuda::DeviceMemory own;
        const std::byte* begin = own.data();
        std::byte* of_next = nullptr;  // the same segment of the next rank
    };
    Communicator* host_;
    const int device_, next_, previous_;  // the last two: rank numbers
    std::vector<Segment> segments_;       // the first one has the words
    std::vector<cuda::MappedMemory> mapped_;
    std::byte* words_of_next_ = nullptr;
    std::byte* words_of_previous_ = nullptr;
    std::atomic<uint32_t> num_sent_, num_received_;
    const cuda::Stream stream_;  // for the set-up and end_waits()
    bool closed_ = false;
};

}  // namespace argosy::comm
