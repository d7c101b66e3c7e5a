#include "comm/values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <iterator>

#include "base/environment.h"
#include "base/random.h"

namespace argosy::comm {
namespace {

// Operations own their memory: if one fails, Pending keeps it, because a peer may still write to it.
at::Tensor bytes_tensor(size_t size) { return at::empty({static_cast<int64_t>(size)}, at::kByte); }

void run(Communicator& group, const Op& op) { group.submit_on_host({&op, 1}).wait(); }

at::Tensor copied(std::span<const std::byte> bytes) {
    const at::Tensor copy = bytes_tensor(bytes.size());
    std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
    return copy;
}

}  // namespace

int64_t maximum(Communicator& group, int64_t own) {
    const at::Tensor value = at::full({1}, own, at::kLong);
    run(group, {.kind = OpKind::AllReduce, .out = value, .in = value, .reduction = Reduction::Max});
    return value.item<int64_t>();
}

at::Tensor reduce_on_host(Communicator& group, const at::Tensor& own, Reduction reduction, const char* work) {
    group.wait_for_gpu();
    const at::Tensor value = own.is_meta() ? at::zeros(own.sizes(), own.scalar_type()) : own.to(at::kCPU);
    run(group,
        {.kind = OpKind::AllReduce, .out = value, .in = value, .reduction = reduction, .purpose = {work}});
    return value;
}

void broadcast_bytes(Communicator& group, std::span<std::byte> bytes, int root) {
    if (bytes.empty()) return;
    const at::Tensor buffer = copied(bytes);
    run(group, {.kind = OpKind::Broadcast, .out = buffer, .peer = root});
    std::memcpy(bytes.data(), buffer.const_data_ptr(), bytes.size());
}

void all_gather_bytes(Communicator& group, std::span<const std::byte> own, std::span<std::byte> all) {
    const at::Tensor gathered = bytes_tensor(all.size());
    run(group, {.kind = OpKind::AllGather, .out = gathered, .in = copied(own)});
    std::memcpy(all.data(), gathered.const_data_ptr(), all.size());
}

std::unique_ptr<Communicator> ranks_of_node(Communicator& group) {
    const std::vector<uint64_t> nodes = all_gather(group, name_key(Environment::read().node_name()));
    std::vector<int> ranks;
    for (int rank = 0; rank < group.size(); ++rank)
        if (nodes[rank] == nodes[group.rank()]) ranks.push_back(rank);
    return group.subgroup(ranks, "node");
}

std::string broadcast_text(Communicator& group, std::string own, int root) {
    own.resize(broadcast(group, own.size(), root));
    broadcast_bytes(group, std::as_writable_bytes(std::span(own)), root);
    return own;
}

std::vector<std::string> all_gather_texts(Communicator& group, const std::string& own) {
    const auto room = static_cast<size_t>(maximum(group, std::ssize(own))) + 1;  // each text ends with a NUL
    std::string padded = own, all(room * group.size(), '\0');
    padded.resize(room);
    all_gather_bytes(group, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
    std::vector<std::string> texts;
    for (int rank = 0; rank < group.size(); ++rank) texts.emplace_back(all.data() + rank * room);
    return texts;
}

}  // namespace argosy::comm
