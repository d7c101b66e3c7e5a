// A communicator that records all operations submitted through it and through every group made from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace argosy::testing {

struct Submission {
    std::string group;
    std::vector<comm::OpKind> kinds;  // number of such operations in one launch
    at::ScalarType type = at::kFloat;
    int64_t elements = 0;  // of the larger of the rank's two buffers, over all operations
};
using Submissions = std::vector<Submission>;

class CountingCommunicator : public comm::Communicator {
  public:
    /// REQUIRES: inner and log outlive it.
    CountingCommunicator(comm::Communicator& inner, Submissions& log)
        : Communicator(inner.name(), inner.device()), inner_(inner), log_(log) {}

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }

    std::unique_ptr<comm::Communicator> subgroup(std::span<const int> ranks,
                                                 std::string name) const override {
        return std::unique_ptr<CountingCommunicator>(
            new CountingCommunicator(inner_.subgroup(ranks, std::move(name)), log_));
    }

    void open_channels() override { inner_.open_channels(); }
    void wait_for_gpu(const std::string& place) override { inner_.wait_for_gpu(place); }
    void watched(const std::string& what, const std::function<uint64_t()>& launch) override {
        inner_.watched(what, launch);
    }

    using Communicator::submit;
    comm::Pending submit(std::span<const comm::Op> ops) override {
        Submission& entry = log_.emplace_back(name(), std::vector<comm::OpKind>());
        for (const comm::Op& op : ops) {
            entry.kinds.push_back(op.kind);
            entry.type = (op.in.defined() ? op.in : op.out).scalar_type();
            entry.elements +=
                std::max(op.in.defined() ? op.in.numel() : 0, op.out.defined() ? op.out.numel() : 0);
        }
        return inner_.submit(ops);
    }

  private:
    CountingCommunicator(std::unique_ptr<comm::Communicator> inner, Submissions& log)
        : Communicator(inner->name(), inner->device()),
          owned_(std::move(inner)),
          inner_(*owned_),
          log_(log) {}

    std::unique_ptr<comm::Communicator> owned_;  // a group of the inner communicator's; none for the first
    comm::Communicator& inner_;
    Submissions& log_;
};

}  // namespace argosy::testing
