// The model of the executable `eval`, and how it scores windows and generates texts. One process reads the
// weights layer by layer for scores, and holds all of them for texts; the ranks of a mesh hold them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "eval/generation_tasks.h"
#include "eval/requests.h"
#include "eval/score.h"
#include "eval/windows.h"
#include "interop/model_source.h"
#include "layout/mesh_shape.h"
#include "mpi/comm.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

/// The degrees of a mesh; the ranks that these axes leave are replicas.
struct Degrees {
    int tensor = 1, pipeline = 1, shard = 1;
};

/// Throws UserError unless `num_ranks` is a multiple of the product of the degrees.
layout::MeshRequest mesh_request(const Degrees& degrees, int num_ranks);

/// Returns the type of "fp32" or "bf16". Throws UserError for any other name.
at::ScalarType compute_type(const std::string& name);

struct ScoringOptions {
    std::string dtype = "fp32";                   // of weights and computation: fp32 or bf16
    std::string device = "auto";                  // cpu, gpu or auto
    ScoreOptions score = {};                      // on a mesh only `batch`
    int64_t longest_window = 1;                   // of all windows that will be scored, in inputs
    Degrees degrees = {};                         // only on a mesh
    std::vector<std::string> accepted_keys = {};  // of a Hugging Face folder's config.json
};

/// The number of texts that one model generates side by side.
int num_side_by_side(const ScoringOptions& options, size_t num_contexts);

// What needs less memory, for the error after it ran out.
inline constexpr const char* kLessForScores = "a smaller --batch-tokens or --max-length; --dtype bf16";
inline const char* less_for_texts(size_t num_texts) {
    if (num_texts == 1) return "a smaller --max-new-tokens; --dtype bf16";
    return "a smaller --batch-size, --batch-tokens, --max-new-tokens or --max-length; --dtype bf16";
}

/// If memory runs out, the error names the options that need less.
class ScoringModel {
  public:
    using Progress = std::function<void(double share)>;

    virtual ~ScoringModel() = default;

    /// COLLECTIVE on a mesh, and then the same on all ranks. Calls `progress` with the finished share. Throws
    /// after a signal that asks the program to end: on a mesh JobError, on all ranks.
    virtual std::vector<RecordScore> score(std::span<const Tokens> records,
                                           const std::vector<Window>& windows, const Progress& progress) = 0;

    /// COLLECTIVE on a mesh, whose replicas divide the contexts, and then the same on all ranks. Texts are at
    /// most `max_tokens` long, their contexts included. Progress and signals as in score().
    virtual std::vector<GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                                std::span<const Tokens> contexts,
                                                const GenerateOptions& options, int64_t max_tokens,
                                                const Progress& progress) = 0;

    /// The device of this process in results: "cpu" or "cuda:0".
    virtual std::string device_name() const = 0;
    /// What computes, for people.
    virtual std::string place() const = 0;
};

/// Warns of environment variables that slow a GPU down or make its fp32 products less precise than fp32.
/// Throws UserError if options.device is "gpu" and there is none, and RunError if the GPU cannot be used: its
/// driver is too old, or another process has exclusive access. The first GPU becomes this thread's device, so
/// call this before the thread's first tensor. REQUIRES: `source` outlives the model.
std::unique_ptr<ScoringModel> layerwise_model(const interop::ModelSource& source,
                                              const ScoringOptions& options);

/// COLLECTIVE over `ranks`: compares the tasks (require_same_tasks), and loads and verifies the weights.
/// Throws UserError if the ranks do not fit the mesh or the model does not, and what setup::RankContext and
/// resume::load_weights throw.
std::unique_ptr<ScoringModel> mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                                         std::span<const Work> tasks, const mpi::Comm& ranks,
                                         const Environment& environment);

}  // namespace argosy::eval
