#include "resume/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <iterator>

namespace argosy::resume {

int64_t maximum(comm::Communicator& group, int64_t own) {
    const at::Tensor value = at::full({}, own, at::kLong);
    group.run(
        {.kind = comm::OpKind::AllReduce, .out = value, .in = value, .reduction = comm::Reduction::Max});
    return value.item<int64_t>();
}

std::vector<std::string> all_gather_texts(comm::Communicator& group, const std::string& own) {
    const int64_t length = maximum(group, std::ssize(own)) + 1;  // each text ends with a NUL
    const at::Tensor mine = at::zeros({length}, at::kByte),
                     all = at::empty({length * group.size()}, at::kByte);
    std::memcpy(mine.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    group.run({.kind = comm::OpKind::AllGather, .out = all, .in = mine});
    std::vector<std::string> texts;
    const auto* text = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
    for (int rank = 0; rank < group.size(); ++rank, text += length) texts.emplace_back(text);
    return texts;
}

std::string broadcast_text(comm::Communicator& group, const std::string& own, int root) {
    const at::Tensor length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
    group.run({.kind = comm::OpKind::Broadcast, .out = length, .peer = root});
    std::string text(length.item<int64_t>(), '\0');
    if (text.empty()) return text;
    const at::Tensor bytes = at::zeros({length.item<int64_t>()}, at::kByte);
    if (group.rank() == root) std::memcpy(bytes.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    group.run({.kind = comm::OpKind::Broadcast, .out = bytes, .peer = root});
    std::memcpy(text.data(), bytes.const_data_ptr<uint8_t>(), text.size());
    return text;
}

std::vector<int64_t> broadcast_from_rank_0(comm::Communicator& group, const std::vector<int64_t>& own) {
    const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int64_t));
    const std::string received = broadcast_text(group, bytes, 0);
    std::vector<int64_t> values(received.size() / sizeof(int64_t));
    if (!values.empty()) std::memcpy(values.data(), received.data(), received.size());
    return values;
}

}  // namespace argosy::resume
