// Muon for the matrices of layers, as torch.optim.Muon computes it: the momentum of the gradient is made
// orthogonal (its singular values about 1) by Newton-Schulz steps, and the weights step along it. The steps
// need the whole matrix, which one rank makes whole (matrix_exchange.h), or the ranks of a tensor group if
// that shortens the update. Momentum and weights are updated where their parts are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/orthogonal.h"
#include "train/matrix_exchange.h"
#include "train/optimizer.h"

namespace argosy::train {

struct MuonOptions {
    /// The factor of the learning rate of a matrix with r rows and c columns.
    enum class AdjustLr {
        MatchRmsAdamW,  // 0.2 sqrt(max(r, c)): updates are as large as AdamW's
        Original,       // sqrt(max(1, r / c))
        Spectral,       // sqrt(max(r, c))
    };

    double momentum = 0.95;
    bool nesterov = true;
    int ns_steps = 5;
    AdjustLr adjust_lr = AdjustLr::MatchRmsAdamW;
    bool by_head = false;  // the rows of a head of q, k or v are a matrix of their own
    bool routers = true;   // takes the matrices of routers, too
    /// The type of the Newton-Schulz steps, in which matrices travel. None: bf16, or fp64 for fp64 weights.
    std::optional<at::ScalarType> ns_dtype = {};
    std::optional<at::ScalarType> state = {};  // the momentum's; none: the accumulation type of the weights
    uint64_t seed = 0;                         // of stochastic rounding
};

class Muon : public Optimizer {
  public:
    /// COLLECTIVE over the ranks of the same pipeline stage. REQUIRES: `parameters` are matrices of layers,
    /// all of one type.
    Muon(const MuonOptions& options, std::vector<OptimizedParameter> parameters, comm::Mesh& mesh);

    void update(const Update& update) override;
    std::vector<State> states() const override;  // "momentum" of each parameter

  private:
    /// A matrix of a layer, or matrices of a stack that stand together and have one owner.
    struct Matrix {
        size_t parameter;
        layout::Range rows;
    };

    std::vector<Matrix> divided(const layout::MeshShape& mesh) const;
    std::vector<MatrixExchange::Matrix> exchanged(const layout::MeshShape& mesh) const;
    at::Tensor rows_of(const at::Tensor& tensor, size_t matrix) const;
    void add_gradient(size_t parameter, const Update& update) const;
    at::Tensor direction(size_t matrix, const Update& update) const;
    at::Tensor orthogonal(size_t matrix, const at::Tensor& direction) const;
    void step(size_t matrix, const at::Tensor& orthogonal, const Update& update) const;

    MuonOptions options_;
    std::vector<OptimizedParameter> parameters_;
    std::vector<Matrix> matrices_;
    at::ScalarType ns_dtype_;
    std::vector<at::Tensor> momenta_;
    MatrixExchange exchange_;
    std::unique_ptr<ops::SliceRanks> slice_ranks_;  // that share a matrix
};

/// Gives the matrices of layers to Muon.
OptimizerChoice muon(const MuonOptions& options);

}  // namespace argosy::train
