#include "observe/rank_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/median.h"
#include "base/strict_json.h"
#include "comm/values.h"
#include "observe/step_lines.h"

namespace argosy::observe {
namespace {

constexpr int kRanksOfEachWindow = 256;  // with more ranks, only some windows are written
constexpr size_t kMaxHostsNamed = 4;     // sentences of one kind about a window or a run
constexpr int kMinShareOfWindows = 4;    // in_run(): a rank was slow in one of as many windows

/// A rank's host and GPU, as ranks send them.
struct SentHost {
    int32_t gpu = -1;
    char name[64] = {};
};

/// Four digits, or whole milliseconds above 1000.
std::string rounded(float ms) { return ms < 1000 ? fmt::format("{:.4g}", ms) : fmt::format("{:.0f}", ms); }

/// "4..7", or "4, 6".
std::string ranks_text(std::span<const int> numbers) {
    const bool consecutive = numbers.back() - numbers.front() + 1 == std::ssize(numbers);
    if (numbers.size() > 2 && consecutive) return fmt::format("{}..{}", numbers.front(), numbers.back());
    return fmt::format("{}", fmt::join(numbers, ", "));
}

/// "18 %", or "15 to 18 %".
std::string range_text(const std::vector<float>& shares) {
    const auto [least, greatest] = std::ranges::minmax(shares);
    const double from = std::round(100 * least), to = std::round(100 * greatest);
    return from == to ? fmt::format("{} %", to) : fmt::format("{} to {} %", from, to);
}

/// Names what each of the slow ranks is compared with: the other of two ranks with the same work ("rank 1"),
/// or the median of such ranks ("the median of 8 ranks"). `equals`: the ranks with the work of slow[0]; other
/// works have as many. `num_works`: the number of different works.
std::string others_text(std::span<const int> slow, const std::vector<int>& equals, size_t num_works) {
    if (equals.size() == 2 && slow.size() > 1) return "the other rank with the same work";
    if (equals.size() == 2) return fmt::format("rank {}", equals[0] == slow[0] ? equals[1] : equals[0]);
    return num_works == 1 ? fmt::format("the median of {} ranks", equals.size())
                          : fmt::format("the median of the {} ranks with the same work", equals.size());
}

}  // namespace

std::string ranks_header(const RankHosts& hosts, const layout::MeshShape& mesh) {
    nlohmann::ordered_json header = {{"hosts", hosts.names}, {"host_of_rank", hosts.host_of_rank}};
    if (std::ranges::any_of(hosts.gpu_of_rank, [](int gpu) { return gpu >= 0; }))
        header["gpu_of_rank"] = hosts.gpu_of_rank;
    for (int axis = 0; axis < layout::kNumAxes; ++axis) {
        header["mesh"][layout::AxisSet(static_cast<layout::Axis>(axis)).name()] = mesh.degrees[axis];
    }
    return json_text(header);
}

std::string ranks_line(int64_t step, int64_t num_steps, std::span<const RankStep> ranks) {
    constexpr std::pair<const char*, float RankStep::*> kTimes[] = {{"total_ms", &RankStep::total_ms},
                                                                    {"compute_ms", &RankStep::compute_ms},
                                                                    {"data_ms", &RankStep::data_ms},
                                                                    {"exposed_ms", &RankStep::exposed_ms}};
    std::string line = fmt::format(R"({{"step":{},"num_steps":{})", step, num_steps);
    for (const auto& [name, time] : kTimes) {
        line += fmt::format(R"(,"{}":[)", name);
        for (const RankStep& rank : ranks) line += rounded(rank.*time) + ",";
        line.back() = ']';
    }
    return line + "}";
}

SlowRanks::SlowRanks(RankHosts hosts, const layout::MeshShape& mesh, layout::AxisSet unequal_axes)
    : hosts_(std::move(hosts)), ranks_on_host_(hosts_.names.size()) {
    const size_t num_ranks = hosts_.host_of_rank.size();
    equals_.resize(mesh.degree(unequal_axes));
    for (int rank = 0; std::cmp_less(rank, num_ranks); ++rank) {
        ++ranks_on_host_[hosts_.host_of_rank[rank]];
        equals_of_rank_.push_back(mesh.index(mesh.coordinates(rank), unequal_axes));
        equals_[equals_of_rank_.back()].push_back(rank);
    }
    states_.assign(kKinds.size(), State(num_ranks));
}

std::vector<SlowRanks::Excess> SlowRanks::excesses(Kind kind, std::span<const RankStep> window) const {
    std::vector<Excess> found(window.size());
    const auto ms = [&](int rank) {
        return kind == Compute ? window[rank].compute_ms : window[rank].data_ms;
    };
    for (const std::vector<int>& equals : equals_) {
        if (equals.empty()) continue;
        std::vector<double> times;
        for (const int rank : equals) times.push_back(ms(rank));
        const double middle = lower_median(std::move(times));  // so that half of the ranks can be slow
        for (const int rank : equals) {
            const double more = ms(rank) - middle;
            const double whole = kind == Compute ? middle : window[rank].total_ms;
            if (more < kMinExcessMs || whole <= 0) continue;
            found[rank].share = more / whole;
            found[rank].shown = kind == Compute ? found[rank].share : ms(rank) / whole;
        }
    }
    return found;
}

std::vector<std::string> SlowRanks::add(std::span<const RankStep> window) {
    ++num_windows_;
    std::vector<std::string> warnings;
    for (const Kind kind : kKinds) {
        State& state = states_[kind];
        const double limit = kind == Compute ? kMaxComputeExcess : kMaxDataExcess;
        const std::vector<Excess> excess = excesses(kind, window);
        std::vector<int> become_slow;
        for (int rank = 0; std::cmp_less(rank, excess.size()); ++rank) {
            const bool slow = excess[rank].share > limit, found = slow && state.slow_before[rank];
            state.share[rank] = static_cast<float>(excess[rank].shown);
            if (found) {
                ++state.num_slow[rank];
                state.shares[rank] += state.share[rank];
                if (!state.reported[rank]) become_slow.push_back(rank);
            }
            // A rank that was slow is reported again only after two windows in which it is not.
            state.reported[rank] = found || (state.reported[rank] && (slow || state.slow_before[rank]));
            state.slow_before[rank] = slow;
        }
        std::ranges::copy(sentences(kind, become_slow, state.share, ""), std::back_inserter(warnings));
    }
    return warnings;
}

std::vector<std::string> SlowRanks::now() const {
    std::vector<std::string> all;
    for (const Kind kind : kKinds) {
        const State& state = states_[kind];
        std::vector<int> ranks;
        for (int rank = 0; std::cmp_less(rank, state.reported.size()); ++rank) {
            if (state.reported[rank] && state.slow_before[rank]) ranks.push_back(rank);
        }
        std::ranges::copy(sentences(kind, ranks, state.share, ""), std::back_inserter(all));
    }
    return all;
}

std::vector<std::string> SlowRanks::in_run() const {
    std::vector<std::string> all;
    for (const Kind kind : kKinds) {
        const State& state = states_[kind];
        std::vector<int> ranks;
        std::vector<float> means(state.shares);
        for (int rank = 0; std::cmp_less(rank, means.size()); ++rank) {
            if (state.num_slow[rank] == 0) continue;
            means[rank] /= static_cast<float>(state.num_slow[rank]);
            if (kMinShareOfWindows * state.num_slow[rank] >= num_windows_) ranks.push_back(rank);
        }
        std::ranges::copy(sentences(kind, ranks, means, " in a quarter of the time or more"),
                          std::back_inserter(all));
    }
    return all;
}

/// "rank 5 (host n3, GPU 1)", "ranks 4, 6 (host n2)", or "all ranks of host n2 (4..7)".
std::string SlowRanks::subject(int host, std::span<const int> ranks) const {
    const std::string& name = hosts_.names[host];
    if (ranks.size() == 1) {
        const int gpu = hosts_.gpu_of_rank[ranks[0]];
        return fmt::format("rank {} (host {}{})", ranks[0], name,
                           gpu < 0 ? "" : fmt::format(", GPU {}", gpu));
    }
    if (std::cmp_equal(ranks.size(), ranks_on_host_[host]))
        return fmt::format("all ranks of host {} ({})", name, ranks_text(ranks));
    return fmt::format("ranks {} (host {})", ranks_text(ranks), name);
}

/// One sentence for each host, with `end` after the comparison.
std::vector<std::string> SlowRanks::sentences(Kind kind, std::span<const int> ranks,
                                              std::span<const float> shares, const std::string& end) const {
    std::map<int, std::vector<int>> ranks_by_host;
    for (const int rank : ranks) ranks_by_host[hosts_.host_of_rank[rank]].push_back(rank);
    std::vector<std::string> texts;
    for (const auto& [host, slow] : ranks_by_host) {
        if (texts.size() == kMaxHostsNamed) {
            texts.push_back(fmt::format("ranks of {} more hosts {}: ranks.jsonl has the times of all ranks",
                                        ranks_by_host.size() - kMaxHostsNamed,
                                        kind == Compute ? "compute as slowly" : "wait for data"));
            break;
        }
        std::vector<float> found;
        for (const int rank : slow) found.push_back(shares[rank]);
        const std::string others = others_text(slow, equals_[equals_of_rank_[slow[0]]], equals_.size());
        const bool one_host = hosts_.names.size() == 1;  // the ranks differ in what they use of it
        const bool has_gpu = hosts_.gpu_of_rank[slow[0]] >= 0;
        const char* const plural = slow.size() == 1 ? "s" : "";
        texts.push_back(
            kind == Compute
                ? fmt::format("{} compute{} {} slower than {}{}: {}", subject(host, slow), plural,
                              range_text(found), others, end,
                              !one_host ? "check that node's clocks, temperature and other programs"
                              : has_gpu ? "check clocks and temperature of the GPU, and what else runs here"
                                        : "check what else runs on its cores")
                : fmt::format("{} wait{} for data in {} of the step, more than {}{}: {}", subject(host, slow),
                              plural, range_text(found), others, end,
                              one_host ? "check what else runs on its cores"
                                       : "check that node's path to the token files and its other programs"));
    }
    return texts;
}

RankTimes::RankTimes(const RankTimesOptions& options, const MetricsOptions& metrics,
                     comm::Communicator& control)
    : options_(options),
      metrics_(metrics),
      control_(control),
      hosts_(gather_hosts()),
      slow_ranks_(hosts_, options.mesh, options.unequal_axes) {
    if (control.rank() != 0 || control.size() == 1) return;
    const std::filesystem::path path = std::filesystem::path(metrics.dump_folder) / "ranks.jsonl";
    if (metrics.last_own_step) set_aside_steps_after(*metrics.last_own_step, path);
    file_.emplace(path.string());
    file_->append_line(ranks_header(hosts_, options_.mesh));
}

/// COLLECTIVE unless the job has one rank. Empty on other ranks than 0, and for a job of one rank.
RankHosts RankTimes::gather_hosts() const {
    RankHosts hosts;
    if (control_.size() == 1) return hosts;
    SentHost own{.gpu = control_.device().is_cuda() ? control_.device().index() : -1};
    options_.host.copy(own.name, sizeof(own.name) - 1);
    const std::vector<SentHost> all = comm::all_gather(control_, own);
    if (control_.rank() != 0) return hosts;
    std::map<std::string, int> numbers;
    for (const SentHost& sent : all) {
        const auto [host, is_new] = numbers.emplace(sent.name, static_cast<int>(hosts.names.size()));
        if (is_new) hosts.names.emplace_back(sent.name);
        hosts.host_of_rank.push_back(host->second);
        hosts.gpu_of_rank.push_back(sent.gpu);
    }
    return hosts;
}

bool RankTimes::add(int64_t step, const StepTimes& times) {
    window_ += times;
    ++num_steps_;
    if (num_windows_ > 0 && !metrics_.ends_window(step)) return false;
    if (control_.size() > 1) exchange(step);
    window_ = {};
    num_steps_ = 0;
    ++num_windows_;
    return true;
}

void RankTimes::exchange(int64_t step) {
    const auto mean = [&](double sum_ms) {
        return static_cast<float>(sum_ms / static_cast<double>(num_steps_));
    };
    const RankStep own = {mean(window_.total_ms), mean(window_.compute_ms), mean(window_.data_ms),
                          mean(window_.all_exposed_ms())};
    const std::vector<RankStep> ranks = comm::all_gather(control_, own);
    if (!file_) return;
    write(step, ranks);
    // The first step takes longer on some ranks than on others, because they prepare it.
    if (num_windows_ == 0) return;
    for (const std::string& warning : slow_ranks_.add(ranks)) spdlog::warn("{}", warning);
}

void RankTimes::write(int64_t step, std::span<const RankStep> ranks) {
    const int stride = (control_.size() + kRanksOfEachWindow - 1) / kRanksOfEachWindow;
    if (num_windows_ % stride != 0) return;
    if (file_->renew()) file_->append_line(ranks_header(hosts_, options_.mesh));
    file_->append_line(ranks_line(step, num_steps_, ranks));
}

}  // namespace argosy::observe
