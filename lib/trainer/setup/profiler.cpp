#include "setup/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "base/strict_json.h"
#include "base/time_limit.h"
#include "comm/values.h"
#include "parallel/lowering.h"

namespace argosy::setup {
namespace {

constexpr int kNumRounds = 32;

struct CommonClock {
    double offset;  // seconds to add to this rank's clock to get rank 0's
    double start;   // by rank 0's clock: the same on all ranks
};

/// COLLECTIVE.
CommonClock common_clock(comm::Communicator& ranks) {
    Rounds own;
    for (int i = 0; i < kNumRounds; ++i) {
        own.entered.push_back(seconds_now());
        comm::maximum(ranks, 0);
        own.left.push_back(seconds_now());
    }
    const Rounds of_rank_0{comm::broadcast(ranks, own.entered), comm::broadcast(ranks, own.left)};
    return {ranks.rank() == 0 ? 0 : clock_offset(of_rank_0, own), of_rank_0.entered[0]};
}

}  // namespace

std::string exposed_text(const std::string& trace) {
    struct Exposed {
        double us = 0;
        int number = 0;  // of waits
    };
    std::map<std::string, Exposed> found;  // by "tp all-gather of wo"
    const nlohmann::ordered_json whole = parse_json(trace, "the trace");
    for (const auto& event : whole.at("traceEvents")) {
        if (event.at("ph") != "X") continue;
        std::string name = event.at("name");
        const bool waits = name.starts_with("wait "), submits = name.starts_with("submit ");
        const size_t comma = waits ? name.find(", ") : name.rfind(", ");
        if (!(waits || submits) || comma == name.npos) continue;
        if (waits) name.erase(comma, 1);  // "wait tp, all-gather of wo"
        if (submits) name.resize(comma);  // "submit tp all-gather of wo, 12.3 MB"
        Exposed& sum = found[name.substr(name.find(' ') + 1)];
        sum.us += event.at("dur").get<double>();
        sum.number += waits ? 1 : 0;
    }
    std::vector<std::pair<std::string, Exposed>> rows(found.begin(), found.end());
    std::ranges::stable_sort(rows, std::greater<>(), [](const auto& row) { return row.second.us; });
    std::vector<std::string> texts;
    for (const auto& [name, sum] : rows)
        texts.push_back(fmt::format("{} {:.3g} ms ({})", name, sum.us / 1000, sum.number));
    return fmt::format("{}", fmt::join(texts, "; "));
}

double clock_offset(const Rounds& of_rank_0, const Rounds& of_rank) {
    double least = -std::numeric_limits<double>::infinity(), most = -least;
    for (size_t i = 0; i < of_rank.entered.size(); ++i) {
        least = std::max(least, of_rank_0.entered[i] - of_rank.left[i]);
        most = std::min(most, of_rank_0.left[i] - of_rank.entered[i]);
    }
    return (least + most) / 2;
}

Profiler::Profiler(const config::JobConfig& config, Timeline& timeline, comm::Communicator& control)
    : enabled_(config.profiling.enable_profiling),
      freq_(config.profiling.profile_freq),
      folder_(std::filesystem::path(config.job.dump_folder) / config.profiling.save_traces_folder),
      timeline_(timeline),
      control_(control) {}

void Profiler::start_step(int64_t step) {
    if (!enabled_ || step % freq_ != 0) return;
    step_ = step;
    const CommonClock clock = common_clock(control_);
    timeline_.start(clock.offset, fmt::format("{} of {} ranks", clock.start, control_.size()));
}

void Profiler::finish_step() {
    if (!timeline_.recording()) return;
    const std::string trace = timeline_.stop();
    const auto folder = folder_ / fmt::format("step-{:08}", step_);
    try {
        const FileWait wait(fmt::format("writing a trace to '{}'", folder.string()));
        std::filesystem::create_directories(folder);
        ResultFile(folder / fmt::format("rank-{:05}.json", control_.rank()), begins_with(kTraceMark))
            .write(trace);
        const bool shows_waits = control_.rank() == 0 && control_.device().is_cpu();
        const std::string exposed = shows_waits ? exposed_text(trace) : "";
        if (!exposed.empty()) spdlog::info("exposed in step {} on rank 0: {}", step_, exposed);
    } catch (const std::exception& error) {  // a run does not end because a trace cannot be written
        spdlog::warn("no trace of step {}: {}", step_, error.what());
    }
}

observe::ComputeKind kind_of(parallel::UnitOpKind op) {
    using observe::ComputeKind;
    switch (op) {
        case parallel::UnitOpKind::Forward:
            return ComputeKind::Forward;
        case parallel::UnitOpKind::Recompute:
            return ComputeKind::Recompute;
        case parallel::UnitOpKind::Loss:
        case parallel::UnitOpKind::LossInput:
        case parallel::UnitOpKind::ForwardLoss:
            return ComputeKind::Head;
        case parallel::UnitOpKind::BackwardInput:
            return ComputeKind::Backward;
        case parallel::UnitOpKind::BackwardWeight:
            return ComputeKind::Weights;
        default:
            return ComputeKind::Other;
    }
}

train::TrainerOptions with_observers(train::TrainerOptions options, Timeline& timeline,
                                     observe::StepTimer& timer, const observe::MemoryMeter& memory) {
    options.executor.observer = [&](const parallel::UnitOp* op) {
        timer.compute(op ? kind_of(op->kind) : observe::ComputeKind::Other);
        if (!op || !timeline.takes_spans()) return;
        timeline.next_operation(parallel::describe(*op));
        if (timeline.recording()) timeline.memory(memory.current_bytes());
    };
    options.executor.launch_observer = [&](uint64_t graph) { timer.launched(graph); };
    return options;
}

}  // namespace argosy::setup
