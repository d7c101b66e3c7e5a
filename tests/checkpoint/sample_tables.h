// Valid tables, small: texts to change.
#pragma once

#include "checkpoint/table.h"

namespace argosy::checkpoint {

inline constexpr TableFile kSampleFile{.num_bytes = 2000};  // the file that they stand in

/// Of a full file.
inline Manifest sample_full() {
    const TensorInfo a{.name = "model/a", .type = ElementType::Float32, .shape = {4, 6}};
    const TensorInfo b{.name = "model/b", .type = ElementType::BFloat16, .shape = {}};
    const TensorInfo none{.name = "model/none", .type = ElementType::Int64, .shape = {0, 5}};
    return {
        .set = {1, 2},
        .description = {.step = 7,
                        .program = "0.1.0",
                        .mesh = "dp_shard 2",
                        .model_only = false,
                        .model = R"({"type":"llama","hidden":64,"list":[1,2.5,null]})",
                        .config = "[training]\nsteps = 7\n",
                        .state = "{}"},
        .assets = {{"vocabulary", 700, 100, {7, 8}}, {"merges", 800, 0, {9, 9}}, {"other", 800, 1, {9, 9}}},
        .tensors = {{a, {{.slab = {{0, 0}, {4, 6}}, .at = 512, .hash = {10, 11}}}},
                    {b, {{.slab = {{}, {}}, .at = 680, .hash = {14, 15}}}},
                    {none, {}}}};
}

/// Of a step: a grid of 2 x 2 writers.
inline Manifest sample_manifest() {
    Manifest manifest = sample_full();
    const std::vector<StoredTensor> tensors = std::move(manifest.tensors);
    manifest.tensors.clear();
    for (int i = 0; i < 4; ++i) manifest.files.push_back({shard_name(i, 4), 1000, {3, 4}});
    manifest.plan = {.grid = {2, 2},
                     .tensors = {{tensors[0].info, {{.dim = 1, .parts = 2}, {.dim = 0, .parts = 2}}},
                                 {tensors[1].info, {{.first = 1}, {.first = 0}}},
                                 {tensors[2].info, {{.parts = 2}, {.first = 1}}}}};
    return manifest;
}

/// The same with cuts that name their axes.
inline Manifest sample_joint_manifest() {
    Manifest manifest = sample_manifest();
    std::vector<CutTensor>& tensors = manifest.plan.tensors;
    tensors[0].cuts = {{.dim = 1, .parts = 4, .axes = {0, 1}}};
    tensors[1].cuts = {{.first = 1, .axes = {1}}, {.first = 1, .axes = {0}}};
    tensors[2].cuts = {{.parts = 2, .first = 1, .axes = {0, 1}}};
    return manifest;
}

inline ShardTable sample_shard() {
    const Manifest manifest = sample_full();
    ShardTable shard{.set = manifest.set, .tensors = manifest.tensors};
    shard.tensors[0].slabs = {{.slab = {{2, 0}, {2, 6}}, .at = 600, .hash = {12, 13}}};
    return shard;
}

}  // namespace argosy::checkpoint
