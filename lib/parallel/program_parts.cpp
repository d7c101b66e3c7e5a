#include "parallel/program_parts.h"

#include <algorithm>

namespace argosy::parallel {
namespace {

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

}  // namespace argosy::parallel
