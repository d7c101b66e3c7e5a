// Makes matrices whole for an optimizer that needs all of a matrix at once. Each matrix has one owner among
// the ranks that hold its parts. The owner gets the parts, computes, and gives each rank its part of the
// result, so the same computation runs on every mesh.
//
// Owners work in waves: in a wave, every rank owns one matrix at most. While the owners of a wave compute,
// the parts of the next wave travel, and the results of the wave before. An owner gets its parts from its own
// replica of the model, and gives the result back there. Other replicas get it from the ranks that have the
// same part. Between processors nothing travels while a rank computes, because MPI carries the parts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "layout/param_spec.h"

namespace argosy::train {

/// The number of the matrix that each rank owns in a wave, if any.
using Owned = std::vector<std::optional<size_t>>;

/// Gives each matrix an owner, so that the ranks' sums of costs are about equal. Owners start with their
/// costliest matrices.
std::vector<Owned> divide_over_owners(std::span<const double> costs, int num_ranks);

class MatrixExchange {
  public:
    struct Matrix {
        const layout::ParamSpec* spec;
        double cost = 0;  // of the computation on the whole matrix
    };

    /// `type` is that of the parts and results. COLLECTIVE over the ranks of the same pipeline stage.
    /// REQUIRES: these ranks give the same matrices, whose specs and mesh outlive this object.
    MatrixExchange(const std::vector<Matrix>& matrices, at::ScalarType type, comm::Mesh& mesh);

    /// `part` returns this rank's part of a matrix, perhaps with more rows after it; it is called where the
    /// owner gets a part from. `compute` gets the whole matrix on the owner, and returns the result, which
    /// has its shape. `apply` gets this rank's part of the result, once for each matrix.
    struct Visitor {
        std::function<at::Tensor(size_t matrix)> part;
        std::function<at::Tensor(size_t matrix, const at::Tensor& whole)> compute;
        std::function<void(size_t matrix, const at::Tensor& part)> apply;
    };
    /// COLLECTIVE as the constructor.
    void run(const Visitor& visitor);

  private:
    /// Operations under way, and what arrives.
    struct Arriving {
        comm::Pending pending;
        std::vector<at::Tensor> tensors;  // of each replica of the model, or one
    };

    /// The parts to send to each rank of parts_ (undefined: none), and the sizes of the parts to receive.
    struct Outgoing {
        explicit Outgoing(int num_ranks) : sent(num_ranks), received(num_ranks) {}
        std::vector<at::Tensor> sent;
        std::vector<int64_t> received;
        int64_t total = 0;  // of all ranks
    };

    Arriving gather(size_t wave, const Visitor& visitor);
    at::Tensor compute(size_t wave, const Arriving& gathered, const Visitor& visitor);
    Arriving give_back(size_t wave, const at::Tensor& result);
    Arriving send(const Outgoing& outgoing);
    Arriving spread(size_t wave, Arriving returned);
    void apply(size_t wave, Arriving spread, const Visitor& visitor);

    /// The matrix that a rank of a replica owns in a wave.
    std::optional<size_t> owned(size_t wave, int replica, int rank) const;
    std::optional<size_t> own(size_t wave) const;
    layout::Slab slab(size_t matrix, int rank) const;
    int64_t part_size(size_t matrix, int rank) const { return slab(matrix, rank).num_elements(); }
    /// Whether a matrix's owner gets its part from `rank`: one of those that hold the same part.
    bool is_source(size_t matrix, int rank, int owner) const;
    int num_copies_of_part(size_t matrix) const;
    at::Tensor empty(int64_t size) const;

    std::vector<const layout::ParamSpec*> specs_;
    at::TensorOptions tensors_;
    const comm::Mesh& mesh_;
    comm::Communicator& parts_;                     // the ranks of a replica
    comm::Communicator& copies_;                    // the ranks that hold the same parts in other replicas
    std::vector<layout::Coordinates> coordinates_;  // of the ranks of parts_
    std::vector<Owned> waves_;                      // by replica, then by rank of parts_
};

}  // namespace argosy::train
