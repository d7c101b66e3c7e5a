// Communicators that stand between a program and its backend, for tests that watch or break what ranks say to
// each other. A CommunicatorDouble passes each submission to a function, which may change, record or drop it.
// Every group that is made from a double is a double with the same function.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/recording.h"

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

    void open_collectives(comm::Collectives kinds) override { inner_.open_collectives(kinds); }
    void open_channels() override { inner_.open_channels(); }
    void open_ring() override { inner_.open_ring(); }
    at::Tensor make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) override {
        return inner_.make_ring_tensor(shape, options);
    }
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

inline std::vector<comm::OpKind> kinds(const std::vector<comm::RecordedOp>& launch) {
    std::vector<comm::OpKind> all;
    for (const comm::RecordedOp& op : launch) all.push_back(op.kind);
    return all;
}

/// The operations of each submission, in order. `recording` is for a comm::RecordingCommunicator, or for
/// recorded().
struct Submissions {
    std::vector<std::vector<comm::RecordedOp>> log;
    comm::Recording recording{{.launched = [this](const comm::Recording::Launch& launch) {
        log.emplace_back(launch.ops.begin(), launch.ops.end());
    }}};

    Submissions() = default;
    Submissions(const Submissions&) = delete;

    /// Records every submission and passes it on. REQUIRES: inner and this object outlive it.
    CommunicatorDouble recorded(comm::Communicator& inner) {
        return {inner, [this](comm::Communicator& group, std::span<const comm::Op> ops) {
                    recording.add(group, ops);
                    return group.submit(ops);
                }};
    }
};

}  // namespace argosy::testing
