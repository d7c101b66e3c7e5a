// A communicator that notes each submission and wait in a Timeline and passes them on to a backend.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/timeline.h"
#include "comm/communicator.h"

namespace argosy::comm {

class TracedCommunicator : public Communicator {
  public:
    /// REQUIRES: timeline outlives this object and all groups made from it.
    TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline)
        : Communicator(inner->name(), inner->device()), inner_(std::move(inner)), timeline_(timeline) {}

    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;
    void limit_waits(double seconds, const char* setting) override { inner_->limit_waits(seconds, setting); }
    Connections connections() const override { return inner_->connections(); }
    int channels_under_way() const override { return inner_->channels_under_way(); }
    at::Tensor make_tensor(Collectives kind, at::IntArrayRef shape,
                           const at::TensorOptions& options) override {
        return inner_->make_tensor(kind, shape, options);
    }
    void open_collectives(Collectives kinds) override { inner_->open_collectives(kinds); }
    void open_channels() override { inner_->open_channels(); }
    void open_ring() override { inner_->open_ring(); }
    at::Tensor make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) override {
        return inner_->make_ring_tensor(shape, options);
    }
    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override { return noted(&Communicator::submit, ops); }
    Pending submit_on_host(std::span<const Op> ops) override {
        return noted(&Communicator::submit_on_host, ops);
    }
    void wait_for_gpu() override;
    void launch_graph(const std::string& what, const std::function<uint64_t()>& launch) override;
    double exposed_seconds() const override { return inner_->exposed_seconds(); }
    void label_exposed(int label) override { inner_->label_exposed(label); }
    double exposed_seconds_of(int label) const override { return inner_->exposed_seconds_of(label); }

  private:
    using Submit = Pending (Communicator::*)(std::span<const Op>);
    Pending noted(Submit start, std::span<const Op> ops);

    std::unique_ptr<Communicator> inner_;
    Timeline& timeline_;
};

}  // namespace argosy::comm
