// Makes matrices whole for an optimizer that needs all of a matrix at once. Each matrix, or some of a stack,
// has one owner among the ranks that hold its parts. The owner gets the parts, computes, and gives each rank
// its part of the result, so the same computation runs on every mesh.
//
// Owners work in waves: in a wave, every rank owns one matrix at most. While the owners of a wave compute,
// the parts of the next wave travel, and the results of the wave before. An owner gets its parts from its own
// replica of the model, and gives the result back there. Other replicas get it from the ranks that have the
// same part. Between processors nothing travels while a rank computes, because MPI carries the parts.
//
// Where a stage has few matrices for its ranks, most ranks would wait for the owners of the large ones. The
// ranks of a tensor group then share a large matrix: each of them owns a slice, which is cut as the weights
// are, makes it whole, and computes on it together with the others. They do so in the same wave, and in the
// same order, because shared matrices come before a rank's other matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "layout/param_spec.h"

namespace argosy::train {

/// The number of the matrix that each rank owns in a wave, if any.
using Owned = std::vector<std::optional<size_t>>;

/// The time that a matrix takes a rank, in any unit: all of it, or a slice beside the others of its group.
struct MatrixCost {
    double alone = 0, shared = std::numeric_limits<double>::infinity();  // infinity: it cannot be shared
};

struct Division {
    std::vector<Owned> waves;
    std::vector<bool> shared;  // by matrix
    double largest_sum = 0;    // of a rank's costs
};

/// Gives each matrix an owner, or a group of `group_size` neighbours that share it, so that the largest sum
/// of a rank's costs is small; rank 0 has that sum. Shared are the costliest matrices, down to the cost with
/// which that sum is smallest; none if sharing does not make it smaller. A pure function, so all ranks have
/// the same result. REQUIRES: group_size divides num_ranks.
Division divide_over_owners(std::span<const MatrixCost> costs, int num_ranks, int group_size);

/// Exchanges the places of matrices that cost as much alone, so that ranks own those that they hold whole:
/// experts' matrices, which then need not travel. `holders` has the ranks of each matrix that do.
void prefer_holders(Division& division, std::span<const MatrixCost> costs,
                    std::span<const std::vector<int>> holders);

class MatrixExchange {
  public:
    struct Matrix {
        const layout::ParamSpec* spec;
        layout::Range rows;    // of the parameter
        MatrixCost cost = {};  // REQUIRES, to be shared: the first cut gives each tensor rank another slice
    };

    /// The ranks of a replica of the model, and those that hold the same parts in other replicas.
    struct Groups {
        comm::Communicator &parts, &copies;
    };
    /// COLLECTIVE as the constructor: makes the groups for matrices with these specs, with their connections
    /// between GPUs. The constructor makes them too, when the model has taken its memory.
    static Groups open_groups(const std::vector<const layout::ParamSpec*>& specs, comm::Mesh& mesh);

    /// `type` is that of the parts and results. COLLECTIVE over the ranks of the same pipeline stage.
    /// REQUIRES: these ranks give the same matrices, whose specs and mesh outlive this object; the matrices
    /// of a parameter are adjacent, equally large, and all of it.
    MatrixExchange(const std::vector<Matrix>& matrices, at::ScalarType type, comm::Mesh& mesh);

    /// `part` returns this rank's part of a matrix; it is called where the owner gets a part from. `compute`
    /// gets the whole matrix on the owner, or its slice of a shared one, and returns the result, which has
    /// that shape. `apply` gets this rank's part of the result, once for each matrix. Neither is called for a
    /// part without elements.
    struct Visitor {
        std::function<at::Tensor(size_t matrix)> part;
        std::function<at::Tensor(size_t matrix, const at::Tensor& whole)> compute;
        std::function<void(size_t matrix, const at::Tensor& part)> apply;
    };
    /// COLLECTIVE as the constructor.
    void run(const Visitor& visitor);

    /// Whether the ranks of a tensor group share the matrix: they call `compute` for it at the same time.
    bool is_shared(size_t matrix) const { return division_.shared[matrix]; }
    /// This rank's part of a matrix, as a slab of the parameter.
    layout::Slab own_part(size_t matrix) const { return slab(matrix, parts_.rank()); }

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

    bool stays(size_t wave) const;
    Arriving gather(size_t wave, const Visitor& visitor);
    at::Tensor compute(size_t wave, const Arriving& gathered, const Visitor& visitor);
    Arriving give_back(size_t wave, const at::Tensor& result);
    Arriving send(const Outgoing& outgoing);
    Arriving spread(size_t wave, Arriving returned);
    void apply(size_t wave, Arriving spread, const Visitor& visitor);

    /// The matrix that a rank of a replica owns in a wave.
    std::optional<size_t> owned(size_t wave, int replica, int rank) const;
    std::optional<size_t> own(size_t wave) const;
    /// The same if this rank has a part of what that rank owns.
    std::optional<size_t> owned_in_part(size_t wave, int replica, int rank) const;
    /// The slab that an owner makes whole: all of the matrix, or its slice.
    layout::Slab extent(size_t matrix, int owner) const;
    layout::Slab slab(size_t matrix, int rank) const;
    layout::Slab slab(size_t matrix, int rank, int num_cuts) const;
    std::vector<std::vector<int>> holders() const;
    int64_t part_size(size_t matrix, int rank) const { return slab(matrix, rank).num_elements(); }
    /// Whether the part of `rank` lies in what `owner` makes whole.
    bool is_within(size_t matrix, int rank, int owner) const;
    /// Whether the owner gets that part from `rank`: one of those that hold the same part.
    bool is_source(size_t matrix, int rank, int owner) const;
    /// The elements of the part of `rank` in what this rank, an owner, makes whole.
    at::Tensor part_of(const at::Tensor& whole, size_t matrix, int rank) const;
    int num_copies_of_part(size_t matrix) const;
    at::Tensor empty(int64_t size) const;

    const std::vector<Matrix> matrices_;
    at::TensorOptions tensors_;
    const comm::Mesh& mesh_;
    Groups groups_;
    comm::Communicator &parts_ = groups_.parts, &copies_ = groups_.copies;
    std::vector<layout::Coordinates> coordinates_;  // of the ranks of parts_
    Division division_;                             // ranks by replica, then by rank of parts_
};

}  // namespace argosy::train
