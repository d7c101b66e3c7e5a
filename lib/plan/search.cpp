#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "config/schema.h"
#include "observe/shortage.h"
#include "setup/setup.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::PipelineSchedule;
using config::RecomputeMode;

constexpr size_t kMaxRows = 6;
constexpr int64_t kLongSequence = 32768;  // a context axis is tried from this length on

/// The global batch of the given configuration, in samples.
int64_t global_batch(const JobConfig& config, int num_ranks) {
    if (config.training.global_batch_size != -1) return config.training.global_batch_size;
    const auto& mesh = config.parallelism;
    const int64_t others = int64_t{mesh.tensor_parallel_degree} * mesh.pipeline_parallel_degree;
    const int64_t data = num_ranks / others / mesh.context_parallel_degree;
    return config.training.local_batch_size * std::max<int64_t>(1, data);
}

std::vector<int> powers_of_two(int largest) {
    std::vector<int> numbers;
    for (int number = 1; number <= largest; number *= 2) numbers.push_back(number);
    return numbers;
}

/// Whether the configuration fixes the pipeline's stages.
bool has_own_stages(const config::Parallelism& mesh) {
    return !mesh.pipeline_parallel_schedule_csv.empty() || !mesh.pipeline_parallel_layers_per_stage.empty() ||
           !mesh.module_fqns_per_model_part.empty();
}

/// Shards over all of `data` ranks, and over those on a node, `near`.
std::vector<int> shard_degrees(int data, int near) {
    std::vector<int> degrees = {data};
    if (near >= 1 && near < data && data % near == 0) degrees.push_back(near);
    return degrees;
}

/// The given configuration with these degrees, once for each number of shards. Nothing if the ranks cannot be
/// divided so, or if the configuration has stages of its own for another number of pipeline ranks.
std::vector<JobConfig> with_degrees(const JobConfig& given, int tensor, int context, int pipeline,
                                    int num_ranks, int per_node) {
    const int group = tensor * context * pipeline;
    if (num_ranks % group != 0) return {};
    JobConfig one = given;
    auto& mesh = one.parallelism;
    if (has_own_stages(mesh) && pipeline != mesh.pipeline_parallel_degree) return {};
    mesh.tensor_parallel_degree = tensor;
    mesh.context_parallel_degree = context;
    mesh.pipeline_parallel_degree = pipeline;
    std::vector<JobConfig> found;
    for (const int shard : shard_degrees(num_ranks / group, per_node / (tensor * context))) {
        mesh.data_parallel_shard_degree = shard;
        mesh.data_parallel_replicate_degree = num_ranks / group / shard;
        found.push_back(one);
    }
    return found;
}

/// The meshes to try: tensor and context groups inside of a node.
std::vector<JobConfig> meshes(const JobConfig& given, int num_ranks, const Machine& machine) {
    std::vector<JobConfig> found;
    const int per_node = std::min(machine.ranks_per_node, num_ranks);
    const bool is_long = given.training.seq_len >= kLongSequence;
    for (const int tensor : powers_of_two(per_node)) {
        for (const int context : powers_of_two(is_long ? per_node / tensor : 1)) {
            for (const int pipeline : powers_of_two(num_ranks / tensor / context)) {
                std::ranges::move(with_degrees(given, tensor, context, pipeline, num_ranks, per_node),
                                  std::back_inserter(found));
            }
        }
    }
    return found;
}

/// Sets the number of sequences of a microbatch. Returns whether the global batch divides into them.
bool set_microbatch(JobConfig& config, int64_t batch, int64_t microbatch, int num_ranks) {
    const auto& mesh = config.parallelism;
    const int64_t data = num_ranks / (mesh.tensor_parallel_degree * mesh.context_parallel_degree *
                                      mesh.pipeline_parallel_degree);
    const int64_t samples = batch / data;  // of a data-parallel rank
    if (batch % data != 0 || samples % microbatch != 0) return false;
    const bool pipelined = mesh.pipeline_parallel_degree > 1;
    if (pipelined && samples / microbatch < mesh.pipeline_parallel_degree) return false;
    config.training.global_batch_size = batch;
    config.training.local_batch_size = pipelined ? samples : microbatch;
    config.parallelism.pipeline_parallel_microbatch_size = pipelined ? microbatch : 1;
    return true;
}

/// The keys of `changed` with other values than in `given`.
std::vector<std::pair<std::string, std::string>> changes_of(const JobConfig& given,
                                                            const JobConfig& changed) {
    std::vector<std::pair<std::string, std::string>> found;
    for (const config::Section& section : config::schema()) {
        for (const config::Field& field : section.fields) {
            const config::Value now = field.get(changed);
            if (now != field.get(given)) found.emplace_back(field.key, toml_text(now));
        }
    }
    return found;
}

class Searcher {
  public:
    Searcher(const JobConfig& given, int num_ranks, const Machine& machine)
        : given_(given), num_ranks_(num_ranks), machine_(machine), batch_(global_batch(given, num_ranks)) {}

    Search run() {
        plan_given();
        for (const JobConfig& mesh : meshes(given_, num_ranks_, machine_)) try_microbatches(mesh);
        if (found_.num_planned == 0) {
            throw UserError("no mesh of {} ranks can train this model: {}", num_ranks_, first_refusal_);
        }
        keep_front();
        refine();
        keep_front();
        plan_in_full();
        keep_front();
        if (found_.best.empty()) return std::move(found_);
        found_.nearest.clear();
        found_.reason = reason_for_shards();
        return std::move(found_);
    }

  private:
    void plan_given() {
        try {
            found_.given = Candidate{given_, {}, make_plan(given_, num_ranks_, machine_)};
        } catch (const UserError& error) {
            first_refusal_ = error.what();
        }
    }

    void try_microbatches(const JobConfig& mesh) {
        for (int64_t microbatch = 1; microbatch <= 16; microbatch *= 2) {
            JobConfig config = mesh;
            if (!set_microbatch(config, batch_, microbatch, num_ranks_)) break;
            bool any_fits = false;
            for (const RecomputeMode mode :
                 {RecomputeMode::Full, RecomputeMode::Selective, RecomputeMode::None}) {
                config.activation_checkpoint.mode = mode;
                if (!consider(config)) break;
                any_fits = true;
            }
            if (!any_fits) break;
        }
    }

    /// Plans a configuration. Returns whether it fits.
    bool consider(const JobConfig& config) {
        throw_if_stop_requested();
        try {
            Candidate candidate{config, changes_of(given_, config),
                                make_rough_plan(config, num_ranks_, machine_)};
            ++found_.num_planned;
            tried_.push_back(config);
            if (!candidate.plan.fits()) {
                ++found_.num_too_large;
                keep_nearest(std::move(candidate));
                return false;
            }
            found_.best.push_back(std::move(candidate));
            return true;
        } catch (const UserError& error) {
            if (first_refusal_.empty()) first_refusal_ = error.what();
            return false;
        }
    }

    void keep_nearest(Candidate candidate) {
        const auto bytes = [](const Candidate& one) { return one.plan.peak_bytes(); };
        if (!found_.nearest.empty() && bytes(found_.nearest[0]) <= bytes(candidate)) return;
        found_.nearest.clear();
        found_.nearest.push_back(std::move(candidate));
    }

    /// Other schedules and asynchronous tensor parallelism for the best candidates.
    void refine() {
        const size_t count = std::min(found_.best.size(), kMaxRows);
        for (size_t i = 0; i < count; ++i) {
            JobConfig config = found_.best[i].config;
            auto& mesh = config.parallelism;
            if (mesh.tensor_parallel_degree > 1 && !mesh.enable_async_tensor_parallel) {
                mesh.enable_async_tensor_parallel = true;
                consider(config);
            }
            if (mesh.pipeline_parallel_degree == 1 || has_own_stages(mesh)) continue;
            for (const PipelineSchedule schedule :
                 {PipelineSchedule::InterleavedOneForwardOneBackward, PipelineSchedule::ZbvZeroBubble}) {
                mesh.pipeline_parallel_schedule = schedule;
                consider(config);
            }
        }
    }

    void plan_in_full() {
        std::vector<Candidate> rough = std::exchange(found_.best, {});
        for (Candidate& candidate : rough) {
            if (found_.best.size() == kMaxRows) break;
            throw_if_stop_requested();
            candidate.plan = make_plan(candidate.config, num_ranks_, machine_);
            if (candidate.plan.fits()) {
                found_.best.push_back(std::move(candidate));
            } else {
                ++found_.num_too_large;
                keep_nearest(std::move(candidate));
            }
        }
    }

    /// Why the best candidate's shards are spread over its number of ranks: compares it with the candidate
    /// that has the other number and is the same otherwise. Empty if there is none.
    std::string reason_for_shards() const {
        // The refinements are left out, because they are tried for few candidates only.
        const auto without_shards = [](JobConfig config) {
            auto& mesh = config.parallelism;
            mesh.data_parallel_shard_degree = mesh.data_parallel_replicate_degree = 1;
            mesh.enable_async_tensor_parallel = false;
            mesh.pipeline_parallel_schedule = PipelineSchedule::OneForwardOneBackward;
            return config;
        };
        const JobConfig& best = found_.best.front().config;
        const int shards = best.parallelism.data_parallel_shard_degree;
        for (const JobConfig& other : tried_) {
            const int other_shards = other.parallelism.data_parallel_shard_degree;
            if (other_shards == shards || without_shards(other) != without_shards(best)) continue;
            JobConfig refined = best;  // the refinements of the best one also apply to the other
            refined.parallelism.data_parallel_shard_degree = other_shards;
            refined.parallelism.data_parallel_replicate_degree =
                other.parallelism.data_parallel_replicate_degree;
            const Plan plan = make_plan(refined, num_ranks_, machine_);
            const double more = 100 * (plan.seconds / found_.best.front().plan.seconds - 1);
            return fmt::format("Parameters are sharded over {} ranks: over {}, {}.\n", shards, other_shards,
                               plan.fits()
                                   ? fmt::format("a step would take {:.2g} % {} time with these links",
                                                 std::abs(more), more < 0 ? "less" : "more")
                                   : "a rank would need " + observe::gibibytes_text(plan.peak_bytes()));
        }
        return "";
    }

    /// Keeps the candidates of which no faster one needs less memory, fastest first.
    void keep_front() {
        std::ranges::stable_sort(found_.best, {},
                                 [](const Candidate& candidate) { return candidate.plan.seconds; });
        std::vector<Candidate> front;
        for (Candidate& candidate : found_.best) {
            if (!front.empty() && candidate.plan.peak_bytes() >= front.back().plan.peak_bytes()) continue;
            front.push_back(std::move(candidate));
        }
        found_.best = std::move(front);
    }

    const JobConfig& given_;
    int num_ranks_;
    const Machine& machine_;
    int64_t batch_;
    Search found_;
    std::vector<JobConfig> tried_;
    std::string first_refusal_;
};

}  // namespace

Search search(const JobConfig& config, int num_ranks, const Machine& machine) {
    return Searcher(config, num_ranks, machine).run();
}

}  // namespace argosy::plan
