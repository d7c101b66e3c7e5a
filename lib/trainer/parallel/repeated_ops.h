// The operations of layers in a run on tensors without data. There an operation of a layer does the same for
// every microbatch, and for every layer that is like it. An operation therefore runs once for all of them,
// and is repeated from a record of what it noted and of the memory that it took: a step of many microbatches
// takes little more time than one of a single microbatch.
//
// The idea: an operation is recorded beside the run, with weights and activations of its own, because its
// layer's next operations must not need tensors that repeated operations did not make. Forward,
// Recompute and BackwardInput follow from the layer alone. Loss and BackwardWeight also follow from which
// sums of gradients are empty, and change that. All other operations of a program run as always: what is
// gathered, reduced, sent and held meanwhile is real. Between repeated operations travel the stream and its
// gradient, as tensors without data of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "parallel/layer_ops.h"

namespace argosy::parallel {

/// Records of operations, kept by whoever observes the run and its memory.
class WorkRecords {
  public:
    using Work = c10::function_ref<void()>;
    virtual ~WorkRecords() = default;
    /// Runs `work` beside the run: what it notes does not count, nor the memory that it takes or frees.
    virtual void run_aside(Work work) = 0;
    /// The same, and returns the number of a record of it. REQUIRES: run_aside() runs the caller.
    virtual int record(Work work) = 0;
    /// The notes and the memory of the record become those of the run. `replace` replaces the tensors that
    /// the operation replaces.
    virtual void repeat(int record, Work replace) = 0;
};

/// REQUIRES: all microbatches are alike, and `records` outlives this object.
class RepeatedOps {
  public:
    explicit RepeatedOps(WorkRecords& records) : records_(records) {}

    /// Does what run(op, slot) does, without a sum of losses. REQUIRES: the operations of a layer come in the
    /// order of a program, all to the same object.
    void run(const LayerOp& op, Slot& slot);

  private:
    struct Shape {
        std::vector<int64_t> sizes = {};
        at::TensorOptions options = {};
        bool defined = false;
        static Shape of(const at::Tensor& tensor);
        at::Tensor make() const;
    };
    /// An operation's record, and what it leaves.
    struct Recorded {
        int number = -1;
        Shape stream = {}, gradient = {};
        std::vector<bool> empty = {};  // the sums
    };
    /// Layers that are alike.
    struct Kind {
        model::Weights weights;  // without data, of their shapes
        Shape stream;            // that the first operation gets
        // The keys are operations, and which sums are empty before them.
        std::map<std::pair<UnitOpKind, std::vector<bool>>, Recorded> recorded = {};
    };
    Kind& kind_of(const LayerOp& op, const Slot& slot);
    void record(const LayerOp& op, Kind& kind, const std::vector<bool>& empty);
    void record_passes(const LayerOp& op, Kind& kind, UnitOpKind last, const std::vector<bool>& empty);

    WorkRecords& records_;
    std::map<std::vector<int64_t>, Kind> kinds_;
    std::map<std::pair<int, int>, Kind*> of_units_;  // by stage and unit
};

}  // namespace argosy::parallel
