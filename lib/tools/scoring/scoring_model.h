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
#include "observe/shortage.h"
#include "tokenizer/tokenizer.h"

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

/// The number of texts that one model generates side by side.
int num_side_by_side(const ScoringOptions& options, size_t num_contexts);

/// If memory runs out, the error names the options that need less.
class ScoringModel {
  public:
    using Progress = std::function<void(double share)>;
    using TakeText = std::function<void(const std::string& text)>;

    virtual ~ScoringModel() = default;

    /// COLLECTIVE on a mesh, and then the same on all ranks. Calls `progress` with the finished share. Throws
    /// after a signal that asks the program to end: on a mesh JobError, on all ranks.
    virtual std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                                 const std::vector<eval::Window>& windows,
                                                 const Progress& progress) = 0;

    /// COLLECTIVE on a mesh, whose replicas divide the contexts, and then the same on all ranks. Texts are at
    /// most `max_tokens` long, their contexts included. Progress and signals as in score().
    virtual std::vector<eval::GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                                      std::span<const eval::Tokens> contexts,
                                                      const eval::GenerateOptions& options,
                                                      int64_t max_tokens, const Progress& progress) = 0;

    /// Continues one text as eval::generate() does. COLLECTIVE on a mesh, whose first rank calls `take`;
    /// throws UserError there unless all ranks have the same arguments. Signals as in score().
    virtual int64_t generate_one(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                                 const eval::GenerateOptions& options, const TakeText& take) = 0;

    /// The device of this process in results: "cpu" or "cuda:0".
    virtual std::string device_name() const = 0;
};

/// The memory that the functions of a ScoringModel need, for the explanation of an error: score(), generate()
/// with `num_contexts` in this process or in a replica of a mesh, and generate_one().
observe::MemoryNeeds needs_of_scores(const ScoringOptions& options, bool on_gpu);
observe::MemoryNeeds needs_of_texts(const ScoringOptions& options, bool on_gpu, size_t num_contexts,
                                    int64_t max_tokens, const eval::GenerateOptions& generate_options);
observe::MemoryNeeds needs_of_one_text(const ScoringOptions& options, bool on_gpu,
                                       const eval::GenerateOptions& generate_options);

/// REQUIRES: `source` outlives the model.
std::unique_ptr<ScoringModel> layerwise_model(const interop::ModelSource& source,
                                              const ScoringOptions& options);

/// COLLECTIVE over `ranks`: compares the tasks (require_same_tasks), and loads and verifies the weights.
std::unique_ptr<ScoringModel> mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                                         std::span<const eval::Work> tasks, const mpi::Comm& ranks,
                                         const Environment& environment);

}  // namespace argosy::scoring
