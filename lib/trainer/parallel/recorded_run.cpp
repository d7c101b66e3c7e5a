#include "parallel/recorded_run.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace argosy::parallel {
namespace {

bool have_same_sizes(const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || a.sizes() == b.sizes());
}

int num_microbatches(const std::vector<UnitOp>& ops) {
    int number = 0;
    for (const UnitOp& op : ops) number = std::max(number, op.microbatch + 1);
    return number;
}

/// Returns one part for each microbatch, or no part if the operations of several microbatches alternate.
std::vector<ProgramPart> by_microbatch(const std::vector<UnitOp>& ops) {
    std::vector<ProgramPart> parts;
    for (UnitOp op : ops) {
        const int number = parts.empty() ? 0 : parts.back().first_microbatch;
        if (parts.empty() || op.microbatch > number) {
            parts.push_back(
                {.ops = {}, .first_microbatch = std::max(op.microbatch, 0), .num_microbatches = 1});
        } else if (op.microbatch >= 0 && op.microbatch < number) {
            return {};
        }
        if (op.microbatch >= 0) op.microbatch = 0;
        parts.back().ops.push_back(op);
    }
    return parts;
}

/// The first part writes the gradients and later parts add to them, so the first part shares its recording
/// with no other part.
void number_recordings(std::vector<ProgramPart>& parts) {
    int num_recordings = 0;
    for (auto part = parts.begin(); part != parts.end(); ++part) {
        const auto begin = part == parts.begin() ? part : parts.begin() + 1;
        const auto same =
            std::find_if(begin, part, [&](const ProgramPart& earlier) { return earlier.ops == part->ops; });
        part->recording = same == part ? num_recordings++ : same->recording;
    }
}

}  // namespace

std::vector<ProgramPart> parts_of(const Program& program) {
    std::vector<ProgramPart> parts;
    if (std::ranges::none_of(program.ops, affects_later_microbatches, &UnitOp::kind)) {
        parts = by_microbatch(program.ops);
    }
    if (parts.empty()) parts = {{program.ops, 0, num_microbatches(program.ops), 0}};
    number_recordings(parts);
    return parts;
}

RecordedRun::RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_weight,
                         const Run& run, const RecordedRun* before)
    : microbatches_(microbatches.begin(), microbatches.end()), loss_weight_(loss_weight.clone()) {
    for (model::Batch& batch : microbatches_) {
        for (const auto tensor : model::kBatchTensors) {
            if ((batch.*tensor).defined()) batch.*tensor = (batch.*tensor).clone();
        }
    }
    loss_sum_ = at::empty({}, loss_weight.options().dtype(at::kDouble));
    graph_.emplace([this, run] { loss_sum_.copy_(run(microbatches_, loss_weight_)); },
                   before ? &*before->graph_ : nullptr);
}

bool RecordedRun::fits(std::span<const model::Batch> microbatches) const {
    return std::ranges::equal(microbatches, microbatches_, [](const auto& a, const auto& b) {
        return a.num_sequences == b.num_sequences && a.seq_len == b.seq_len &&
               std::ranges::all_of(model::kBatchTensors,
                                   [&](const auto tensor) { return have_same_sizes(a.*tensor, b.*tensor); });
    });
}

at::Tensor RecordedRun::replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_weight) {
    for (size_t i = 0; i < microbatches.size(); ++i) {
        for (const auto tensor : model::kBatchTensors) {
            if ((microbatches[i].*tensor).defined())
                (microbatches_[i].*tensor).copy_(microbatches[i].*tensor);
        }
    }
    loss_weight_.copy_(loss_weight);
    graph_->replay();
    return loss_sum_.clone();
}

}  // namespace argosy::parallel
