// Communicators that stand between a program and its backend, for tests that watch or break what ranks say to
// each other. A CommunicatorDouble passes each submission to a function, which may change, record or drop it.
// Every group that is made from a double is a double with the same function.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace argosy::testing {

class CommunicatorDouble : public comm::Communicator {
  public:
    /// Called in place of inner.submit(ops). `inner` is the group of the backend; its name is that of the
    /// double.
    using Submit = std::function<comm::Pending(comm::Communicator& inner, std::span<const comm::Op> ops)>;

    /// REQUIRES: inner outlives it.
    CommunicatorDouble(comm::Communicator& inner, Submit submit)
        : Communicator(inner.name(), inner.device()), inner_(inner), submit_(std::move(submit)) {}

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }

    std::unique_ptr<comm::Communicator> subgroup(std::span<const int> ranks,
                                                 std::string name) const override {
        return std::unique_ptr<CommunicatorDouble>(
            new CommunicatorDouble(inner_.subgroup(ranks, std::move(name)), submit_));
    }

    void open_channels() override { inner_.open_channels(); }
    void wait_for_gpu() override { inner_.wait_for_gpu(); }
    void launch_graph(const std::string& what, const std::function<uint64_t()>& launch) override {
        inner_.launch_graph(what, launch);
    }

    using Communicator::submit;
    comm::Pending submit(std::span<const comm::Op> ops) override { return submit_(inner_, ops); }

  private:
    CommunicatorDouble(std::unique_ptr<comm::Communicator> inner, Submit submit)
        : Communicator(inner->name(), inner->device()),
          owned_(std::move(inner)),
          inner_(*owned_),
          submit_(std::move(submit)) {}

    std::unique_ptr<comm::Communicator> owned_;  // a subgroup of the backend's; null for the first double
    comm::Communicator& inner_;
    Submit submit_;
};

struct Submission {
    std::string group;
    std::vector<comm::OpKind> kinds;  // the operations of one launch
    at::ScalarType type = at::kFloat;
    int64_t elements = 0;  // of the whole launch, in the larger of the rank's two buffers
};
using Submissions = std::vector<Submission>;

/// Records every submission in `log` and passes it on. REQUIRES: inner and log outlive it.
class CountingCommunicator : public CommunicatorDouble {
  public:
    CountingCommunicator(comm::Communicator& inner, Submissions& log)
        : CommunicatorDouble(inner, [&log](comm::Communicator& group, std::span<const comm::Op> ops) {
              Submission& entry = log.emplace_back(group.name(), std::vector<comm::OpKind>());
              for (const comm::Op& op : ops) {
                  entry.kinds.push_back(op.kind);
                  entry.type = (op.in.defined() ? op.in : op.out).scalar_type();
                  entry.elements +=
                      std::max(op.in.defined() ? op.in.numel() : 0, op.out.defined() ? op.out.numel() : 0);
              }
              return group.submit(ops);
          }) {}
};

}  // namespace argosy::testing
