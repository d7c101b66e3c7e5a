#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "config/schema.h"
#include "observe/shortage.h"
#include "plan/overlap.h"
#include "plan/report.h"
#include "plan/search_space.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::PipelineSchedule;
using config::Precision;
using config::RecomputeMode;
using config::Switch;

constexpr size_t kMaxRows = 6;

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
        std::vector<JobConfig> promising;
        for (const Candidate& candidate : found_.best | std::views::take(kMaxRows))
            promising.push_back(candidate.config);
        for (const Tried* tried : fastest([&](const Tried& each) { return !each.fits && could_fit(each); }))
            promising.push_back(tried->config);
        for (const Tried* tried :
             fastest([&](const Tried& each) { return each.fits && has_tensor_axis(each.config); }))
            promising.push_back(tried->config);
        for (const JobConfig& config : promising) refine(config);
        keep_front();
        plan_in_full();
        keep_front();
        narrow_types();
        if (found_.best.empty()) return std::move(found_);
        found_.nearest.clear();
        found_.reason = reason_for_shards() + reason_for_overlap();
        cast_products();
        return std::move(found_);
    }

  private:
    /// A rough plan, without its events.
    struct Tried {
        JobConfig config;
        bool fits;
        double seconds;
        int64_t peak_bytes;
        HeldBytes held;  // when the memory is largest
    };

    /// The memory with the types of the row, if a rank saves half of what it holds in wider ones.
    int64_t bytes_with(const Tried& tried, const NumberTypes& row) const {
        const JobConfig narrow = with_types(given_, row);
        const auto saved = [&](auto key, int64_t bytes) { return key(narrow) == key(given_) ? 0 : bytes; };
        const HeldBytes& held = tried.held;
        return tried.peak_bytes -
               saved([](const JobConfig& of) { return of.optimizer.state_dtype; }, held.moments / 2) -
               saved([](const JobConfig& of) { return of.training.gradient_accumulation_dtype; },
                     held.gradients / 2) -
               saved([](const JobConfig& of) { return of.training.dtype; }, held.weights / 2 + held.copies);
    }
    int64_t room_bytes() const { return machine_.memory_bytes - machine_.reserved_bytes; }
    /// Whether the configuration may fit with the narrowest types.
    bool could_fit(const Tried& tried) const {
        return tried.fits || (!narrower_.empty() && bytes_with(tried, *narrower_.back()) <= room_bytes());
    }

    /// The fastest of those for which `holds`.
    template <class Holds>
    std::vector<const Tried*> fastest(const Holds& holds) const {
        std::vector<const Tried*> found;
        for (const Tried& tried : tried_) {
            if (holds(tried)) found.push_back(&tried);
        }
        std::ranges::stable_sort(found, {}, [](const Tried* tried) { return tried->seconds; });
        constexpr size_t kMaxTries = 4;
        if (found.size() > kMaxTries) found.resize(kMaxTries);
        return found;
    }

    void plan_given() {
        try {
            const JobConfig config = with_overlap_chosen(given_, num_ranks_, machine_).config;
            found_.given = Candidate{config, {}, make_plan(config, num_ranks_, machine_)};
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

    /// Plans a configuration. Returns whether it fits, with the narrowest types at least.
    bool consider(const JobConfig& config) {
        throw_if_stop_requested();
        try {
            Candidate candidate{config, changes_of(given_, config),
                                make_rough_plan(config, num_ranks_, machine_)};
            const Plan& plan = candidate.plan;
            ++found_.num_planned;
            tried_.push_back(
                {config, plan.fits(), plan.seconds, plan.peak_bytes(), plan.fullest().trace.peak.held});
            if (plan.fits()) {
                found_.best.push_back(std::move(candidate));
            } else {
                ++found_.num_too_large;
                keep_nearest(std::move(candidate));
            }
            return could_fit(tried_.back());
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

    /// Tries asynchronous tensor parallelism and other schedules.
    void refine(const JobConfig& config) {
        std::vector<JobConfig> variants = {config};
        if (machine_.is_gpu && has_tensor_axis(config)) {
            variants.push_back(with_other_overlap(config));
            consider(variants.back());
        }
        const auto& mesh = config.parallelism;
        if (mesh.pipeline_parallel_degree == 1 || has_own_stages(mesh)) return;
        for (JobConfig& variant : variants) {
            for (const PipelineSchedule schedule :
                 {PipelineSchedule::InterleavedOneForwardOneBackward, PipelineSchedule::ZbvZeroBubble}) {
                variant.parallelism.pipeline_parallel_schedule = schedule;
                consider(variant);
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

    /// For each row of narrower types that makes a step faster: the fastest configuration that fits with it.
    /// If none fits with any types, the smallest with the narrowest. For a run that computes in float32 on
    /// GPUs, also the best configuration in bfloat16.
    void narrow_types() {
        const bool any_fits = !found_.best.empty();
        const JobConfig& best = (any_fits ? found_.best : found_.nearest).front().config;
        if (machine_.is_gpu && given_.training.mixed_precision_param == Precision::Float32) {
            JobConfig config = best;
            config.training.mixed_precision_param = Precision::BFloat16;
            found_.narrower.push_back(narrower("computation in bfloat16", config));
        }
        const size_t num_before = found_.narrower.size();
        double to_beat =
            any_fits ? found_.best.front().plan.seconds : std::numeric_limits<double>::infinity();
        for (const NumberTypes* row : narrower_) {
            const double max_seconds = 0.99 * to_beat;
            for (const Tried* tried : fastest([&](const Tried& each) {
                     return each.seconds < max_seconds && bytes_with(each, *row) <= room_bytes();
                 })) {
                Narrower found = narrower(row->meaning, with_types(tried->config, *row));
                const Plan& plan = found.candidate.plan;
                if (!plan.fits() || plan.seconds >= max_seconds) continue;
                to_beat = plan.seconds;
                found_.narrower.push_back(std::move(found));
                break;
            }
        }
        if (any_fits || found_.narrower.size() > num_before || narrower_.empty()) return;
        found_.narrower.push_back(narrower(narrower_.back()->meaning, with_types(best, *narrower_.back())));
    }

    Narrower narrower(const char* meaning, const JobConfig& config) const {
        throw_if_stop_requested();
        return {meaning, {config, changes_of(given_, config), make_plan(config, num_ranks_, machine_)}};
    }

    /// Why the best candidate's shards are spread over its number of ranks: compares it with the candidate
    /// that has the other number and is the same otherwise. Empty if there is none.
    std::string reason_for_shards() const {
        // The refinements are left out, because they are tried for few candidates only.
        const auto without_shards = [](JobConfig config) {
            auto& mesh = config.parallelism;
            mesh.data_parallel_shard_degree = mesh.data_parallel_replicate_degree = 1;
            mesh.enable_async_tensor_parallel = Switch::Off;
            mesh.pipeline_parallel_schedule = PipelineSchedule::OneForwardOneBackward;
            return config;
        };
        const JobConfig& best = found_.best.front().config;
        const int shards = best.parallelism.data_parallel_shard_degree;
        for (const Tried& tried : tried_) {
            const JobConfig& other = tried.config;
            const int other_shards = other.parallelism.data_parallel_shard_degree;
            if (other_shards == shards || without_shards(other) != without_shards(best)) continue;
            JobConfig refined = best;  // the refinements of the best one also apply to the other
            refined.parallelism.data_parallel_shard_degree = other_shards;
            refined.parallelism.data_parallel_replicate_degree =
                other.parallelism.data_parallel_replicate_degree;
            const Plan plan = make_plan(refined, num_ranks_, machine_);
            return fmt::format("Parameters are sharded over {} ranks: over {}, {}.\n", shards, other_shards,
                               difference(plan, found_.best.front().plan));
        }
        return "";
    }

    /// A line: the effect of asynchronous tensor parallelism on the best candidate. Empty without a tensor
    /// axis.
    std::string reason_for_overlap() const {
        const Candidate& best = found_.best.front();
        if (!machine_.is_gpu || !has_tensor_axis(best.config)) return "";
        const JobConfig other = with_other_overlap(best.config);
        const bool is_on = best.config.parallelism.enable_async_tensor_parallel == Switch::On;
        const Plan plan = make_plan(other, num_ranks_, machine_);
        return fmt::format("Async tensor parallelism is {}: {}, {}.\n", is_on ? "on" : "off",
                           is_on ? "off" : "on", difference(plan, best.plan));
    }

    /// Tries the casts of products in the best configuration, in bfloat16 if that is given as float32. Casts
    /// that make a step at least 1 % faster are listed, the others get a line of the reason.
    void cast_products() {
        const bool widens = given_.training.mixed_precision_param == Precision::Float32;
        if (widens && found_.narrower.empty()) return;
        JobConfig base = widens ? found_.narrower.front().candidate.config : found_.best.front().config;
        for (const config::Converter converter : base.model.converters) {  // spell out the default recipe
            if (converter == config::Converter::Float8) base.float8.recipe_name = base.float8.recipe();
            if (converter == config::Converter::Mx) base.mx.recipe_name = base.mx.recipe();
        }
        const Plan base_plan = make_rough_plan(base, num_ranks_, machine_);
        std::vector<Narrower> gaining;
        for (const NumberTypes* casts : product_casts(given_, machine_)) {
            JobConfig config = base;
            casts->set(config);
            if (config == base) continue;
            try {
                const Candidate rough = with_faster_overlap(config);
                if (rough.plan.fits() && rough.plan.seconds < 0.99 * base_plan.seconds) {
                    Narrower found = narrower(casts->meaning, rough.config);
                    if (found.candidate.plan.fits()) gaining.push_back(std::move(found));
                } else {
                    found_.reason +=
                        fmt::format("{}: {}.\n", casts->meaning, difference(rough.plan, base_plan));
                }
            } catch (const UserError& refusal) {  // for example, 32 does not divide a rank's tokens
                found_.reason += fmt::format("{}: refused: {}.\n", casts->meaning, refusal.what());
            }
        }
        std::ranges::stable_sort(gaining, {}, [](const Narrower& one) { return one.candidate.plan.seconds; });
        std::ranges::move(gaining, std::back_inserter(found_.narrower));
    }

    /// The better of the configuration with and without asynchronous tensor parallelism, by rough plans: one
    /// that fits, and the faster of two. Throws UserError if runs with both are refused.
    Candidate with_faster_overlap(const JobConfig& config) const {
        throw_if_stop_requested();
        std::optional<Candidate> best;
        std::optional<UserError> refusal;
        std::vector<JobConfig> variants = {config};
        if (has_tensor_axis(config)) variants.push_back(with_other_overlap(config));
        for (const JobConfig& variant : variants) {
            try {
                Plan plan = make_rough_plan(variant, num_ranks_, machine_);
                const auto order = [](const Plan& of) { return std::pair(!of.fits(), of.seconds); };
                if (!best || order(plan) < order(best->plan)) best = Candidate{variant, {}, std::move(plan)};
            } catch (const UserError& error) {
                refusal = error;
            }
        }
        if (!best) throw UserError(*refusal);
        return std::move(*best);
    }

    static bool has_tensor_axis(const JobConfig& config) {
        return config.parallelism.tensor_parallel_degree > 1;
    }
    static JobConfig with_other_overlap(JobConfig config) {
        Switch& overlap = config.parallelism.enable_async_tensor_parallel;
        overlap = overlap == Switch::On ? Switch::Off : Switch::On;
        return config;
    }
    /// "a step would take 2 % more time with these links: 0.1 s more for exposed tp".
    static std::string difference(const Plan& plan, const Plan& from) {
        if (!plan.fits()) return "a rank would need " + observe::gibibytes_text(plan.peak_bytes());
        const double more = 100 * (plan.seconds / from.seconds - 1);
        return fmt::format("a step would take {:.2g} % {} time with these links{}", std::abs(more),
                           more < 0 ? "less" : "more", more < 0 ? "" : largest_growth(from, plan));
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
    std::vector<const NumberTypes*> narrower_ = narrower_types(given_);
    Search found_;
    std::vector<Tried> tried_;
    std::string first_refusal_;
};

}  // namespace

Search search(const JobConfig& config, int num_ranks, const Machine& machine) {
    return Searcher(config, num_ranks, machine).run();
}

}  // namespace argosy::plan
