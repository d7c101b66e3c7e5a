#include "observe/step_timer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace argosy::observe {
const char* describe(Phase phase) {
    switch (phase) {
        case Phase::Data:
            return "the reading of a step's data";
        case Phase::Compute:
            return "forward and backward, outside the units (recording graphs, or norms of gradients)";
        case Phase::Optimizer:
            return "the optimizer's update";
        case Phase::Checkpoint:
            return "the save of a checkpoint";
        case Phase::Validation:
            return "validation";
        case Phase::Evaluation:
            return "the evaluation of tasks";
    }
    return "";
}

double StepTimes::all_exposed_ms() const {
    double sum = 0;
    for (const auto& [name, ms] : exposed_ms) sum += ms;
    return sum;
}

StepTimes& StepTimes::operator+=(const StepTimes& more) {
    total_ms += more.total_ms;
    for (const StepPart& part : kStepParts) this->*part.ms += more.*part.ms;
    for (const auto& [name, ms] : more.exposed_ms) exposed_ms[name] += ms;
    if (more.compute_kinds_ms) {
        if (!compute_kinds_ms) compute_kinds_ms.emplace();
        for (int i = 0; i < kNumComputeKinds; ++i) (*compute_kinds_ms)[i] += (*more.compute_kinds_ms)[i];
    }
    return *this;
}

StepTimer::StepTimer(const comm::Mesh& mesh, std::function<double()> clock)
    : mesh_(mesh), clock_(std::move(clock)) {
    if (mesh.device().is_cuda()) gpu_kinds_.emplace(mesh);
}

StepTimer::PhaseScope::PhaseScope(StepTimer& timer, Phase phase) : timer_(timer), outer_(timer.open_) {
    timer_.switch_to(phase);
}

StepTimer::PhaseScope::~PhaseScope() { timer_.switch_to(outer_); }

StepTimer::Reading StepTimer::read() const {
    Reading reading{.seconds = clock_()};
    mesh_.for_each_shared_group([&](const comm::Communicator& group, int number) {
        const std::string name = number == comm::Mesh::kExperts ? "ep" : group.name();
        reading.exposed_seconds[name] += group.exposed_seconds();
    });
    return reading;
}

void StepTimer::add_time_since_last() {
    Reading now = read();
    const double elapsed = now.seconds - last_.seconds;
    const bool training = open_ != Phase::Validation && open_ != Phase::Evaluation;
    double exposed = 0;
    for (const auto& [name, seconds] : now.exposed_seconds) {
        const double waited = training ? seconds - last_.exposed_seconds[name] : 0;
        exposed_seconds_[name] += waited;
        exposed += waited;
    }
    const size_t part = open_ ? static_cast<size_t>(*open_) : kNumPhases;
    // Sums of exposed seconds are rounded, so a wait that fills the interval may exceed it by an ulp.
    const double own = std::max(elapsed - exposed, 0.0);
    part_seconds_[part] += own;
    if (open_ == Phase::Compute) kind_seconds_[static_cast<size_t>(kind_)] += own;
    last_ = std::move(now);
}

void StepTimer::switch_to(std::optional<Phase> next) {
    add_time_since_last();
    if (gpu_kinds_ && open_ == Phase::Compute) gpu_kinds_->end();
    open_ = next;
    kind_ = ComputeKind::Other;
}

void StepTimer::start_step() {
    ARGOSY_CHECK(!in_step_, "a step within a step");
    in_step_ = true;
    part_seconds_ = {};
    kind_seconds_ = {};
    has_kinds_ = false;
    exposed_seconds_ = {};
    if (!std::exchange(has_steps_, true)) last_ = read();
    start_seconds_ = last_.seconds;
}

StepTimer::PhaseScope StepTimer::phase(Phase phase) {
    ARGOSY_CHECK(in_step_, "a phase outside a step");
    return PhaseScope(*this, phase);
}

void StepTimer::move(Phase from, Phase to, double seconds) {
    ARGOSY_CHECK(in_step_, "time of a phase outside a step");
    double& left = part_seconds_[static_cast<size_t>(from)];
    const double moved = std::clamp(seconds, 0.0, left);
    left -= moved;
    part_seconds_[static_cast<size_t>(to)] += moved;
}

void StepTimer::launched(uint64_t graph) {
    if (!gpu_kinds_ || open_ != Phase::Compute) return;
    gpu_kinds_->launched(graph);
    has_kinds_ = true;
}

void StepTimer::compute(ComputeKind kind) {
    if (open_ != Phase::Compute) return;
    if (gpu_kinds_) gpu_kinds_->begin(kind);
    has_kinds_ = gpu_kinds_ || !mesh_.device().is_cuda();
    if (mesh_.device().is_cuda()) return;
    if (kind == kind_) return;
    add_time_since_last();
    kind_ = kind;
}

StepTimes StepTimer::finish_step() {
    ARGOSY_CHECK(in_step_ && !open_, "a step that has not started, or a phase still open at its end");
    switch_to(std::nullopt);
    in_step_ = false;
    StepTimes times;
    times.total_ms = 1e3 * (last_.seconds - start_seconds_);
    for (size_t i = 0; i < kStepParts.size(); ++i) times.*kStepParts[i].ms = 1e3 * part_seconds_[i];
    if (has_kinds_) {
        const auto seconds =
            gpu_kinds_ ? gpu_kinds_->take(part_seconds_[static_cast<int>(Phase::Compute)]) : kind_seconds_;
        times.compute_kinds_ms.emplace();
        for (int i = 0; i < kNumComputeKinds; ++i) (*times.compute_kinds_ms)[i] = 1e3 * seconds[i];
    }
    for (const auto& [name, seconds] : exposed_seconds_) times.exposed_ms[name] = 1e3 * seconds;
    return times;
}

}  // namespace argosy::observe
