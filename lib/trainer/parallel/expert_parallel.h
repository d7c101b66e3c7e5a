// Expert parallelism: the ExpertAxis that communicates (model/expert_axis.h). The ranks of the group tell
// each other how many slots they have for each expert. Then all know what travels between any two of them.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "model/expert_axis.h"
#include "model/model_spec.h"

namespace argosy::parallel {

/// The model::ExpertAxis of a mesh. COLLECTIVE over the ranks that divide the experts. REQUIRES: mesh
/// outlives the object.
std::unique_ptr<model::ExpertAxis> make_expert_axis(const model::ModelSpec& spec, comm::Mesh& mesh,
                                                    double planned_imbalance);

class ExpertParallelAxis : public model::ExpertAxis {
  public:
    /// `planned_imbalance`: without data, as many times an equal share of the group's slots come to this
    /// rank. REQUIRES: the group outlives the object, and its size divides the number of experts.
    explicit ExpertParallelAxis(comm::Communicator& group, double planned_imbalance = 1)
        : group_(group), planned_imbalance_(planned_imbalance) {}

    int degree() const override { return group_.size(); }
    model::SlotExchange exchange(const ops::Routing& routing) const override;
    std::unique_ptr<model::ComingSlots> start_dispatch(std::vector<at::Tensor> slots,
                                                       const model::SlotExchange& exchange) const override;
    std::unique_ptr<model::ComingSlots> start_combine(std::vector<at::Tensor> rows,
                                                      const model::SlotExchange& exchange) const override;

  private:
    model::SlotExchange planned(const ops::Routing& routing) const;

    comm::Communicator& group_;
    double planned_imbalance_;
};

}  // namespace argosy::parallel
