// The axis of the mesh that divides experts: each rank has equally many of them, and the slots (experts.h) of
// its tokens travel to the ranks of their experts and back. The base class is for one device, which has all
// experts. The class in parallel/expert_parallel.h communicates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/routing.h"

namespace argosy::model {

/// The ranks to which the slots of a choice go, and those from which this rank's experts get theirs. The
/// exchange is a part of the choice and stays on the tape with it.
struct SlotExchange {
    std::vector<int64_t> sent, received;  // slots to and from each rank; empty on one rank
    int64_t total = 0;                    // slots of all ranks
    at::Tensor order;   // [slots here] int32: row r of this rank's experts arrived as order[r]
    at::Tensor counts;  // [experts here] int64: the rows of each
};

/// Tensors with a row for each slot, on their way to this rank.
class ComingSlots {
  public:
    virtual ~ComingSlots() = default;
    /// Waits for them. Called once.
    virtual std::vector<at::Tensor> take() = 0;
};

class ExpertAxis {
  public:
    virtual ~ExpertAxis() = default;
    /// The number of ranks that divide the experts.
    virtual int degree() const { return 1; }

    /// COLLECTIVE.
    virtual SlotExchange exchange(const ops::Routing& routing) const { return {.counts = routing.counts}; }

    // COLLECTIVE: starts to send tensors with a row for each slot, sorted by expert: those of this rank's
    // tokens to its experts' ranks, or those of its experts back to the ranks of their tokens. All tensors
    // travel in one operation.
    virtual std::unique_ptr<ComingSlots> start_dispatch(std::vector<at::Tensor> slots,
                                                        const SlotExchange&) const {
        return std::make_unique<SlotsHere>(std::move(slots));
    }
    virtual std::unique_ptr<ComingSlots> start_combine(std::vector<at::Tensor> rows,
                                                       const SlotExchange&) const {
        return std::make_unique<SlotsHere>(std::move(rows));
    }

  private:
    class SlotsHere : public ComingSlots {
      public:
        explicit SlotsHere(std::vector<at::Tensor> rows) : rows_(std::move(rows)) {}
        std::vector<at::Tensor> take() override { return std::move(rows_); }

      private:
        std::vector<at::Tensor> rows_;
    };
};

}  // namespace argosy::model
