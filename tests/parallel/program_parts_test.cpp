#include "parallel/recorded_run.h"

#include <gtest/gtest.h>

#include <string>

#include "parallel/programs.h"

namespace argosy::parallel {
namespace {

/// The parts of the first rank of `num_stages`, with one stage for each rank.
Program program(int num_stages, int num_microbatches, bool sharded = false) {
    const LoweringOptions options{.stages = with_shards(stages_of(std::vector<int>(num_stages, 2)), sharded)};
    const ScheduleShape shape{num_stages, num_stages, num_microbatches};
    return lower(transferred("1F1B", shape)[0], options);
}

/// "first+number:recording" of each part.
std::string in_words(const std::vector<ProgramPart>& parts) {
    std::string text;
    for (const ProgramPart& part : parts) {
        text += std::to_string(part.first_microbatch) + "+" + std::to_string(part.num_microbatches) + ":" +
                std::to_string(part.recording) + " ";
    }
    return text;
}

TEST(ProgramParts, AreMicrobatchesThatRunOneAfterTheOther) {
    EXPECT_EQ(in_words(parts_of(program(1, 1))), "0+1:0 ");
    EXPECT_EQ(in_words(parts_of(program(1, 4))), "0+1:0 1+1:1 2+1:1 3+1:1 ")
        << "gradients begin in the first";
}

TEST(ProgramParts, TogetherAreTheProgram) {
    const Program whole = program(1, 3);
    std::vector<UnitOp> ops;
    for (const ProgramPart& part : parts_of(whole)) {
        for (UnitOp op : part.ops) {
            EXPECT_EQ(op.microbatch, 0);
            op.microbatch += part.first_microbatch;
            ops.push_back(op);
        }
    }
    EXPECT_EQ(ops, whole.ops);
}

TEST(ProgramParts, AreOneIfAnOperationSpansMicrobatches) {
    EXPECT_EQ(in_words(parts_of(program(1, 4, /*sharded=*/true))), "0+4:0 ");
    EXPECT_EQ(in_words(parts_of(program(2, 4))), "0+4:0 ");
}

TEST(ProgramParts, AreOneIfMicrobatchesAlternate) {
    const Program turns{.ops = {{UnitOpKind::Forward, 0, 0, 0},
                                {UnitOpKind::Forward, 0, 0, 1},
                                {UnitOpKind::BackwardInput, 0, 0, 0}},
                        .num_slots = 2};
    EXPECT_EQ(in_words(parts_of(turns)), "0+2:0 ");
}

TEST(ProgramParts, WithOtherOperationsHaveARecordingOfTheirOwn) {
    Program longer = program(1, 4);
    longer.ops.push_back({UnitOpKind::BackwardWeight, 0, 0, 3});
    EXPECT_EQ(in_words(parts_of(longer)), "0+1:0 1+1:1 2+1:1 3+1:2 ");
}

}  // namespace
}  // namespace argosy::parallel
