// The model of the executable `eval`, and how it scores windows: one process reads the weights layer by
// layer, or the ranks of a mesh hold them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "eval/score.h"
#include "eval/windows.h"
#include "interop/model_source.h"
#include "layout/mesh_shape.h"
#include "mpi/comm.h"
#include "observe/shortage.h"

namespace argosy::scoring {

/// The degrees of a mesh; the ranks that these axes leave are replicas.
struct Degrees {
    int tensor = 1, pipeline = 1, shard = 1;
};

/// Throws UserError unless `num_ranks` is a multiple of the product of the degrees.
layout::MeshRequest mesh_request(const Degrees& degrees, int num_ranks);

struct ScoringOptions {
    std::string dtype = "fp32";                   // of weights and computation: fp32, bf16 or fp16
    std::string device = "auto";                  // cpu, gpu or auto
    eval::ScoreOptions score = {};                // on a mesh only `batch`
    int64_t longest_window = 1;                   // of all windows that will be scored, in inputs
    Degrees degrees = {};                         // only on a mesh
    std::vector<std::string> accepted_keys = {};  // of a Hugging Face folder's config.json
};

struct ScoringModel {
    using Progress = std::function<void(double share)>;
    /// COLLECTIVE on a mesh, and then the same on all ranks. Calls `progress` with the finished share. Throws
    /// after a signal that asks the program to end.
    std::function<std::vector<eval::RecordScore>(std::span<const eval::Tokens> records,
                                                 const std::vector<eval::Window>& windows,
                                                 const Progress& progress)>
        score;
    std::string device_name;  // of this process in results: "cpu" or "cuda:0"
    observe::MemoryNeeds needs = {};

    /// Calls work(). If memory runs out, the error names the options that need less.
    template <class Work>
    void explain(const Work& work) const {
        try {
            work();
        } catch (...) {
            observe::explain_shortage(needs);
        }
    }
};

/// REQUIRES: `source` outlives the model.
ScoringModel layerwise_model(const interop::ModelSource& source, const ScoringOptions& options);

/// COLLECTIVE over `ranks`: loads and verifies the weights.
ScoringModel mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                        const mpi::Comm& ranks, const Environment& environment);

}  // namespace argosy::scoring
