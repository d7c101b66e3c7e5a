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
#include "config/schema.h"
#include "observe/shortage.h"
#include "plan/overlap.h"
#include "plan/plan_text.h"
#include "plan/search_space.h"
#include "setup/graphs.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::Precision;
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

/// Removes each item for which another one is at least as fast and needs no more memory. The fastest comes
/// first.
template <class Item, class PlanOf>
void keep_front(std::vector<Item>& items, const PlanOf& plan_of) {
    std::ranges::stable_sort(items, {}, [&](const Item& item) { return plan_of(item).seconds; });
    std::vector<Item> front;
    for (Item& item : items) {
        if (!front.empty() && plan_of(item).peak_bytes() >= plan_of(front.back()).peak_bytes()) continue;
        front.push_back(std::move(item));
    }
    items = std::move(front);
}

class Searcher {
  public:
    Searcher(const JobConfig& given, int num_ranks, const Machine& machine)
        : given_(given), num_ranks_(num_ranks), machine_(machine) {}

    Search run() {
        plan_given();
        add(try_meshes(given_, num_ranks_, machine_));
        if (trials_.empty()) {
            throw UserError("no mesh of {} ranks can train this model: {}", num_ranks_, first_refusal_);
        }
        add(try_refinements(promising(), num_ranks_, machine_));
        plan_in_full();
        narrow_types();
        if (found_.best.empty()) return std::move(found_);
        found_.reason = reason_for_shards() + reason_for_overlap();
        cast_products();
        return std::move(found_);
    }

  private:
    void plan_given() {
        try {
            const JobConfig config = with_overlap_chosen(given_, num_ranks_, machine_).config;
            found_.given = Candidate{config, {}, make_plan(config, num_ranks_, machine_)};
        } catch (const UserError& error) {
            first_refusal_ = error.what();
        }
    }

    void add(std::vector<Trial> trials) {
        for (Trial& trial : trials) {
            if (trial.plan) {
                ++found_.num_planned;
                if (!trial.plan->fits()) ++found_.num_too_large;
                trials_.push_back(std::move(trial));
            } else if (first_refusal_.empty()) {
                first_refusal_ = trial.refusal;
            }
        }
    }

    static const Plan& plan_of(const Trial* trial) { return *trial->plan; }

    template <class Holds>
    std::vector<const Trial*> trials_with(const Holds& holds) const {
        std::vector<const Trial*> found;
        for (const Trial& trial : trials_) {
            if (holds(trial)) found.push_back(&trial);
        }
        return found;
    }

    /// The fastest of those for which `holds`.
    template <class Holds>
    std::vector<const Trial*> fastest(const Holds& holds) const {
        std::vector<const Trial*> found = trials_with(holds);
        std::ranges::stable_sort(found, {}, [](const Trial* trial) { return plan_of(trial).seconds; });
        constexpr size_t kMaxTries = 4;
        if (found.size() > kMaxTries) found.resize(kMaxTries);
        return found;
    }

    /// The trials that fit and of which no faster one needs less memory, the fastest first.
    std::vector<const Trial*> front() const {
        auto found = trials_with([](const Trial& trial) { return trial.plan->fits(); });
        keep_front(found, plan_of);
        return found;
    }

    std::vector<const Trial*> promising() const {
        std::vector<const Trial*> found;
        const auto add_each = [&](const auto& trials) {
            for (const Trial* trial : trials) {
                if (std::ranges::find(found, trial) == found.end()) found.push_back(trial);
            }
        };
        add_each(front() | std::views::take(kMaxRows));
        add_each(
            fastest([&](const Trial& each) { return !each.plan->fits() && could_fit(*each.plan, given_); }));
        add_each(
            fastest([](const Trial& each) { return each.plan->fits() && has_tensor_axis(each.config); }));
        return found;
    }

    Candidate planned_in_full(const JobConfig& config) const {
        return {config, changes_of(given_, config), make_plan(config, num_ranks_, machine_)};
    }

    /// Plans the front in full. If nothing fits, the smallest trial.
    void plan_in_full() {
        const std::vector<const Trial*> rough = front();
        for (size_t next = 0; next < rough.size() && found_.best.size() < kMaxRows;) {
            std::vector<JobConfig> configs;
            for (; next < rough.size() && found_.best.size() + configs.size() < kMaxRows; ++next)
                configs.push_back(rough[next]->config);
            for (Trial& trial : try_in_full(configs, num_ranks_, machine_)) {
                if (trial.plan->fits()) {
                    found_.best.push_back(
                        {trial.config, changes_of(given_, trial.config), *std::move(trial.plan)});
                } else {
                    ++found_.num_too_large;
                }
            }
        }
        keep_front(found_.best, [](const Candidate& candidate) -> const Plan& { return candidate.plan; });
        if (!found_.best.empty()) return;
        const auto smallest = std::ranges::min_element(
            trials_, {}, [](const Trial& trial) { return trial.plan->peak_bytes(); });
        found_.nearest.push_back(planned_in_full(smallest->config));
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
        constexpr double kNever = std::numeric_limits<double>::infinity();
        double to_beat = any_fits ? found_.best.front().plan.seconds : kNever;
        double rough_to_beat = any_fits ? make_rough_plan(best, num_ranks_, machine_).seconds : kNever;
        for (const NumberTypes* row : narrower_) {
            const double max_seconds = 0.99 * to_beat, max_rough_seconds = 0.99 * rough_to_beat;
            for (const Trial* trial : fastest([&](const Trial& each) {
                     return each.plan->seconds < max_rough_seconds &&
                            bytes_with(*each.plan, given_, *row) <= each.plan->room_bytes();
                 })) {
                const JobConfig config = with_types(trial->config, *row);
                const double rough_seconds = make_rough_plan(config, num_ranks_, machine_).seconds;
                if (rough_seconds >= max_rough_seconds) continue;
                Narrower found = narrower(row->meaning, config);
                const Plan& plan = found.candidate.plan;
                if (!plan.fits() || plan.seconds >= max_seconds) continue;
                to_beat = plan.seconds;
                rough_to_beat = rough_seconds;
                found_.narrower.push_back(std::move(found));
                break;
            }
        }
        if (any_fits || found_.narrower.size() > num_before || narrower_.empty()) return;
        found_.narrower.push_back(narrower(narrower_.back()->meaning, with_types(best, *narrower_.back())));
    }

    Narrower narrower(const char* meaning, const JobConfig& config) const {
        return {meaning, planned_in_full(config)};
    }

    /// Why the best candidate's shards are spread over its number of ranks: compares it with the candidate
    /// that has the other number and is the same otherwise. Empty if there is none.
    std::string reason_for_shards() const {
        // The refinements are left out, because they are tried for few candidates only.
        const auto without_shards = [](JobConfig config) {
            auto& mesh = config.parallelism;
            mesh.data_parallel_shard_degree = mesh.data_parallel_replicate_degree = 1;
            mesh.enable_async_tensor_parallel = Switch::Off;
            mesh.pipeline_parallel_schedule = config::PipelineSchedule::OneForwardOneBackward;
            return config;
        };
        const JobConfig& best = found_.best.front().config;
        const int shards = best.parallelism.data_parallel_shard_degree;
        for (const Trial& trial : trials_) {
            const JobConfig& other = trial.config;
            const int other_shards = other.parallelism.data_parallel_shard_degree;
            if (other_shards == shards || without_shards(other) != without_shards(best)) continue;
            JobConfig refined = best;  // the refinements of the best one also apply to the other
            refined.parallelism.data_parallel_shard_degree = other_shards;
            refined.parallelism.data_parallel_replicate_degree =
                other.parallelism.data_parallel_replicate_degree;
            return fmt::format("Parameters are sharded over {} ranks: over {}, {}.\n", shards, other_shards,
                               difference(refined, best));
        }
        return "";
    }

    /// A line: the effect of asynchronous tensor parallelism on the best candidate. Empty without a tensor
    /// axis.
    std::string reason_for_overlap() const {
        const JobConfig& best = found_.best.front().config;
        if (!machine_.is_gpu || !has_tensor_axis(best)) return "";
        const bool is_on = best.parallelism.enable_async_tensor_parallel == Switch::On;
        if (const std::string why = setup::why_no_overlap(best); !is_on && !why.empty())
            return fmt::format("Async tensor parallelism is off: {}.\n", why);
        return fmt::format("Async tensor parallelism is {}: {}, {}.\n", is_on ? "on" : "off",
                           is_on ? "off" : "on", difference(with_other_overlap(best), best));
    }

    /// The configurations in which casts of products are tried: the best ones, or the one in bfloat16 if the
    /// given type is float32; and the name under which the report lists the first of them.
    std::pair<std::vector<JobConfig>, const char*> bases_of_casts() const {
        const bool widens = given_.training.mixed_precision_param == Precision::Float32;
        std::vector<JobConfig> bases;
        if (widens && !found_.narrower.empty()) bases.push_back(found_.narrower.front().candidate.config);
        if (!widens) {
            for (const Candidate& each : found_.best) bases.push_back(each.config);
        }
        for (JobConfig& base : bases) {
            for (const config::Converter converter : base.model.converters) {  // spell out the default recipe
                if (converter == config::Converter::Float8) base.float8.recipe_name = base.float8.recipe();
                if (converter == config::Converter::Mx) base.mx.recipe_name = base.mx.recipe();
            }
        }
        return {std::move(bases), widens ? "A" : "number 1"};
    }

    /// The casts in the first of the bases in which they fit, planned in full if a step then gains. If they
    /// fit in none, the one that needs least memory. None if the first has them already. Throws UserError if
    /// all refuse them.
    std::optional<Candidate> with_casts(const NumberTypes& casts, const std::vector<JobConfig>& bases,
                                        double max_seconds) const {
        std::optional<Candidate> least;
        std::optional<UserError> refusal;
        for (const JobConfig& base : bases) {
            JobConfig config = base;
            casts.set(config);
            if (config == base) return std::nullopt;
            try {
                Candidate tried = with_faster_overlap(config);
                if (tried.plan.fits() && tried.plan.seconds < max_seconds)
                    tried = planned_in_full(tried.config);
                if (tried.plan.fits()) return tried;
                if (!least || tried.plan.peak_bytes() < least->plan.peak_bytes()) least = std::move(tried);
            } catch (const UserError& error) {  // for example, 32 does not divide a rank's tokens
                if (!refusal) refusal = error;
            }
        }
        if (!least) throw UserError(*refusal);
        return least;
    }

    /// Tries casts of products: lists casts that make a step at least 1 % faster than the first base, and
    /// adds a line to the reason for each of the others.
    void cast_products() {
        const auto [bases, name] = bases_of_casts();
        if (bases.empty()) return;
        const Plan first = make_rough_plan(bases.front(), num_ranks_, machine_);
        const double max_seconds = 0.99 * first.seconds;
        const std::vector<const NumberTypes*> casts = product_casts(given_, machine_);
        std::vector<std::optional<Candidate>> tried(casts.size());
        std::vector<std::string> refusals(casts.size());
        on_threads(casts.size(), [&, &bases = bases](size_t i) {
            try {
                tried[i] = with_casts(*casts[i], bases, max_seconds);
            } catch (const UserError& refusal) {
                refusals[i] = refusal.what();
            }
        });
        std::vector<Narrower> gaining;
        for (size_t i = 0; i < casts.size(); ++i) {
            if (!refusals[i].empty()) {
                found_.reason += fmt::format("{}: refused: {}.\n", casts[i]->meaning, refusals[i]);
            } else if (!tried[i]) {
                continue;  // the first has them
            } else if (tried[i]->plan.fits() && tried[i]->plan.seconds < max_seconds) {
                gaining.push_back({casts[i]->meaning, *std::move(tried[i])});
            } else {
                found_.reason +=
                    fmt::format("{}: {}.\n", casts[i]->meaning, difference(tried[i]->plan, first, name));
            }
        }
        std::ranges::stable_sort(gaining, {}, [](const Narrower& one) { return one.candidate.plan.seconds; });
        std::ranges::move(gaining, std::back_inserter(found_.narrower));
    }

    /// The better of the configuration with and without asynchronous tensor parallelism, by rough plans: one
    /// that fits, and the faster of two. Throws UserError if runs with both are refused.
    Candidate with_faster_overlap(const JobConfig& config) const {
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

    /// The same, by rough plans of the two.
    std::string difference(const JobConfig& config, const JobConfig& from) const {
        return difference(make_rough_plan(config, num_ranks_, machine_),
                          make_rough_plan(from, num_ranks_, machine_));
    }

    /// "a step would take 2 % more time than number 1 with these links: 0.1 s more for exposed tp".
    static std::string difference(const Plan& plan, const Plan& from, const char* name = "number 1") {
        if (!plan.fits()) return "a rank would need " + observe::gibibytes_text(plan.peak_bytes());
        const double more = 100 * (plan.seconds / from.seconds - 1);
        return fmt::format("a step would take {:.2g} % {} time than {} with these links{}", std::abs(more),
                           more < 0 ? "less" : "more", name, more < 0 ? "" : largest_growth(from, plan));
    }

    const JobConfig& given_;
    int num_ranks_;
    const Machine& machine_;
    std::vector<const NumberTypes*> narrower_ = narrower_types(given_);
    Search found_;
    std::vector<Trial> trials_;  // those with plans
    std::string first_refusal_;
};

}  // namespace

Search search(const JobConfig& config, int num_ranks, const Machine& machine) {
    return Searcher(config, num_ranks, machine).run();
}

}  // namespace argosy::plan
