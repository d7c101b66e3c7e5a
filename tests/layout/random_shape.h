// Random meshes for property tests, the same in every run.
#pragma once

#include <random>
#include <vector>

#include "layout/mesh_shape.h"

namespace argosy::layout {

inline constexpr AxisSet kShards = {Axis::Shard, Axis::Context};

inline int random_divisor(std::mt19937& random, int n) {
    std::vector<int> divisors;
    for (int d = 1; d <= n; ++d) {
        if (n % d == 0) divisors.push_back(d);
    }
    return divisors[random() % divisors.size()];
}

/// Degrees of 1 to 4, mostly small.
inline MeshShape random_shape(std::mt19937& random) {
    MeshShape shape;
    for (int& degree : shape.degrees) degree = std::vector{1, 1, 2, 2, 3, 4}[random() % 6];
    shape.inner_shards = random_divisor(random, shape.degree(Axis::Shard));
    return shape;
}

inline AxisSet random_axes(std::mt19937& random) {
    std::vector<AxisSet> sets = {Axis::Pipeline, Axis::Replicate, Axis::Shard, Axis::Context, Axis::Tensor};
    sets.insert(sets.end(), {AxisSet{},
                             kShards,
                             kDataAxes,
                             {Axis::Replicate, Axis::Shard, Axis::Context},
                             {Axis::Shard, Axis::Tensor},
                             kOuterShards,
                             {Axis::Replicate, kOuterShards},
                             {kInnerShards, Axis::Context, Axis::Tensor},
                             {Axis::Pipeline, Axis::Replicate, Axis::Shard, Axis::Context, Axis::Tensor}});
    return sets[random() % sets.size()];
}

}  // namespace argosy::layout
