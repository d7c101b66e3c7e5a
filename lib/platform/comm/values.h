// Collectives on single values, lists and texts in the host's memory, for ranks that agree on something or
// tell each other what they have. `own` is this rank's value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace argosy::comm {

/// COLLECTIVE: the largest number of all ranks.
int64_t maximum(Communicator& group, int64_t own);

/// COLLECTIVE: waits until the GPU, if `own` is there, has computed it, and reduces it in the host's memory,
/// where the result is: in `own` itself, if that is there. For a few numbers that the host reads anyway:
/// tensors on GPUs would need NCCL communicators of the group. On the device meta, which holds no data, the
/// result is zeros.
at::Tensor reduce_on_host(Communicator& group, const at::Tensor& own, Reduction reduction,
                          const char* work = "");

/// COLLECTIVE: overwrites `bytes` on every rank with those of rank `root`. REQUIRES: all ranks have as many.
void broadcast_bytes(Communicator& group, std::span<std::byte> bytes, int root);

/// COLLECTIVE: writes the bytes of each rank, by rank, to `all`. REQUIRES: all ranks have as many.
void all_gather_bytes(Communicator& group, std::span<const std::byte> own, std::span<std::byte> all);

/// COLLECTIVE: returns `own` of rank `root` on every rank. The other ranks' `own` is ignored.
template <class T>
requires std::is_trivially_copyable_v<T> T broadcast(Communicator& group, T own, int root = 0) {
    broadcast_bytes(group, std::as_writable_bytes(std::span(&own, 1)), root);
    return own;
}

template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> broadcast(Communicator& group, std::vector<T> own,
                                                                  int root = 0) {
    own.resize(broadcast(group, own.size(), root));
    broadcast_bytes(group, std::as_writable_bytes(std::span(own)), root);
    return own;
}

/// COLLECTIVE: the ranks of the group on this rank's node (Environment::node_name()), in their order.
std::unique_ptr<Communicator> ranks_of_node(Communicator& group);

std::string broadcast_text(Communicator& group, std::string own, int root = 0);

/// COLLECTIVE: the value of each rank, by rank.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(Communicator& group, const T& own) {
    std::vector<T> values(group.size());
    all_gather_bytes(group, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(values)));
    return values;
}

/// COLLECTIVE: the text of each rank, by rank. REQUIRES: no NUL in `own`.
std::vector<std::string> all_gather_texts(Communicator& group, const std::string& own);

}  // namespace argosy::comm
