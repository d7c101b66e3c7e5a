#include "parallel/sharded_unit.h"

#include <algorithm>
#include <utility>

namespace argosy::parallel {

ShardedUnit::ShardedUnit(const std::vector<Parameter>& parameters,
                         const std::vector<comm::Communicator*>& groups, const JoinedMemory& joined,
                         ReduceAfter reduce_after, std::vector<const ops::Recipe*> recipes) {
    weights_.recipes = std::move(recipes);
    weights_.joined = joined.weights;
    weights_.tensors.resize(parameters.size());
    for (const auto& each : parameters) weights_.scales.push_back(each.parameter->scale());
    gradients_.joined = joined.gradients;
    gradients_.sums.resize(parameters.size());
    sets_.reserve(groups.size());  // so that no set moves: gradients_ points into the sets
    for (int set = 0; set < std::ssize(groups); ++set) {
        std::vector<ShardedSet::Parameter> own;
        for (int number = 0; number < std::ssize(parameters); ++number) {
            const auto& [place, parameter, summed_over, its_set] = parameters[number];
            if (its_set == set) own.push_back({place, parameter, summed_over, number});
        }
        sets_.emplace_back(std::move(own), *groups[set], weights_, gradients_, reduce_after);
    }
}

const model::Weights& ShardedUnit::weights() {
    for (ShardedSet& set : sets_) set.wait_for_weights();
    return weights_;
}

const model::Gradients& ShardedUnit::gradients(int64_t microbatch) {
    for (ShardedSet& set : sets_) set.start_gradients(microbatch);
    return gradients_;
}

bool ShardedUnit::sharded() const { return std::ranges::any_of(sets_, &ShardedSet::sharded); }

void ShardedUnit::gather() {
    for (ShardedSet& set : sets_) {
        if (set.sharded()) set.gather();
    }
}

void ShardedUnit::release() {
    for (ShardedSet& set : sets_) {
        if (set.sharded()) set.release();
    }
}

}  // namespace argosy::parallel
