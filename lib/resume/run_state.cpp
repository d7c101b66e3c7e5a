#include "resume/run_state.h"

#include <utility>

#include "resume/save_plan.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

HeldTensor held(const parallel::ShardedParameter& parameter, const comm::Mesh& mesh, std::string name,
                const at::Tensor& tensor) {
    const checkpoint::TensorInfo info{std::move(name), setup::element_type(tensor.scalar_type()),
                                      parameter.spec().shape};
    return {.info = info,
            .slab = parameter.slab(),
            .cuts = placed_tensor(info, parameter.spec(), mesh.shape()).cuts,
            .rows = parameter.own_rows(tensor)};
}

}  // namespace

std::string weight_name(const std::string& parameter) { return "model/" + parameter; }
std::string first_moment_name(const std::string& parameter) { return "optimizer/first/" + parameter; }
std::string second_moment_name(const std::string& parameter) { return "optimizer/second/" + parameter; }

RunState::RunState(train::Trainer& trainer, const comm::Mesh& mesh, train::UpdateGuard& guard,
                   int64_t seq_len)
    : trainer_(trainer), mesh_(mesh), guard_(guard), seq_len_(seq_len) {
    const auto& parameters = trainer.model().parameters();
    const auto& moments = trainer.step().optimizer().moments();
    for (size_t i = 0; i < parameters.size(); ++i) {
        parallel::ShardedParameter& parameter = *parameters[i];
        const std::string& name = parameter.spec().name;
        weights_.push_back(held(parameter, mesh, weight_name(name), parameter.master()));
        moments_.push_back(held(parameter, mesh, first_moment_name(name), moments[i].first));
        moments_.push_back(held(parameter, mesh, second_moment_name(name), moments[i].second));
    }
}

int RunState::writer() const { return writer_of(mesh_.shape(), mesh_.coordinates()); }

void RunState::weights_changed() {
    for (const auto& parameter : trainer_.model().parameters()) parameter->refresh_compute();
}

Scalars RunState::scalars(const train::Position& position) const {
    Scalars scalars{.position = position,
                    .seq_len = seq_len_,
                    .seed = trainer_.seed(),
                    .num_updates = trainer_.step().optimizer().num_updates(),
                    .loss_scale = std::nullopt,
                    .guard = guard_.state()};
    if (const auto* scale = trainer_.step().loss_scale()) scalars.loss_scale = scale->state();
    return scalars;
}

void RunState::restore_optimizer(const Scalars& scalars) {
    trainer_.step().optimizer().set_num_updates(scalars.num_updates);
    auto* scale = trainer_.step().loss_scale();
    if (scale != nullptr && scalars.loss_scale) scale->restore(*scalars.loss_scale);
}

}  // namespace argosy::resume
