// Prints what every layout of this number of ranks computes, a line each: losses and gradient norms of three steps in all their
// digits, and hashes of the first step's gradients, of the operations that the ranks run, and of those that they submit to
// each other. Two commits that only move code print the same lines on the same processor:
//
//     for ranks in 1 2 4 8; do jobs/mpirun.sh $ranks build/tests/record_layouts; done | grep : >lines
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>

#include "base/random.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

using argosy::parallel::Action;
using argosy::parallel::LoweringOptions;
using argosy::parallel::Program;

namespace {

argosy::Fnv program_hash;  // of the programs that were lowered since it was last set

}  // namespace

extern "C" {
// The linker sends the trainer's calls of lower() to __wrap_..., and __real_... is the function itself.
Program __real__ZN6argosy8parallel5lowerERKSt6vectorINS0_6ActionESaIS2_EERKNS0_15LoweringOptionsE(
    const std::vector<Action>&, const LoweringOptions&);
Program __wrap__ZN6argosy8parallel5lowerERKSt6vectorINS0_6ActionESaIS2_EERKNS0_15LoweringOptionsE(
    const std::vector<Action>& actions, const LoweringOptions& options) {
    Program program =
        __real__ZN6argosy8parallel5lowerERKSt6vectorINS0_6ActionESaIS2_EERKNS0_15LoweringOptionsE(actions, options);
    for (const argosy::parallel::UnitOp& op : program.ops) {
        for (const int value : {static_cast<int>(op.kind), op.stage, op.unit, op.microbatch, op.slot, op.source_slot})
            program_hash.add(value);
    }
    return program;
}
}

namespace argosy::testing {
namespace {

using model::RecomputeMode;
using parallel::Precision;

constexpr int kNumSteps = 3;

struct Kind {
    const char* name;
    Precision precision;
    RecomputeMode recompute;
};
constexpr Kind kKinds[] = {
    {"fp64", {at::kDouble, at::kDouble, at::kDouble}, RecomputeMode::None},
    {"fp32", {at::kFloat, at::kFloat, at::kFloat}, RecomputeMode::Selective},
    {"bf16", {at::kFloat, at::kBFloat16, at::kFloat}, RecomputeMode::Full},
    {"bf16_gradients", {at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true}, RecomputeMode::Selective}};

/// The family that tiny_spec() lacks: untied, without biases, two heads of keys for four of queries.
std::optional<model::ModelSpec> spec_of(const std::string& family) {
    if (family != "llama2") return std::nullopt;
    model::ModelSpec spec = tiny_spec("mistral");
    spec.name = family;
    spec.sliding_window.reset();
    spec.tied_embeddings = false;
    return spec;
}

uint64_t hash_of(const NamedTensors& tensors) {
    Fnv hash;
    for (const auto& [name, tensor] : tensors) {
        const at::Tensor values = tensor.contiguous();
        for (int64_t i = 0; i < values.numel(); ++i)
            hash.add(std::bit_cast<int64_t>(values.const_data_ptr<double>()[i]));
    }
    return hash.hash();
}

uint64_t hash_of(const std::vector<std::vector<comm::RecordedOp>>& launches) {
    Fnv hash;
    for (const auto& launch : launches) {
        hash.add(std::ssize(launch));
        for (const comm::RecordedOp& op : launch) {
            for (const char letter : op.group) hash.add(letter);
            for (const int64_t value : {int64_t{op.rank}, int64_t{op.size}, static_cast<int64_t>(op.kind),
                                        static_cast<int64_t>(op.type), op.num_elements, int64_t{op.peer}})
                hash.add(value);
        }
    }
    return hash.hash();
}

/// COLLECTIVE: one hash of the hashes of all ranks.
uint64_t hash_over_ranks(uint64_t own) {
    const at::Tensor halves = at::zeros({world().size(), 2}, at::kDouble);
    halves[world().rank()][0].fill_(static_cast<double>(own >> 32));
    halves[world().rank()][1].fill_(static_cast<double>(own & 0xffffffff));
    world().run({.kind = comm::OpKind::AllReduce, .out = halves, .in = halves});
    return hash_of(NamedTensors{{"", halves}});
}

void record(const std::string& family, const Layout& layout, const Kind& kind) {
    Submissions submissions;
    CommunicatorDouble ranks = submissions.recorded(world());
    program_hash = {};
    TinyRun run({.family = family,
                 .layout = layout,
                 .precision = kind.precision,
                 .recompute = kind.recompute,
                 .spec = spec_of(family)},
                ranks);
    std::string line = family + " " + layout.name + " " + kind.name + ":";
    uint64_t gradients = 0;
    for (int step = 0; step < kNumSteps; ++step) {
        const train::StepTotals totals = run.forward_backward(step);
        if (step == 0) {
            const size_t num_launches = submissions.log.size();
            gradients = hash_of(run.gradients());
            submissions.log.resize(num_launches);
        }
        const train::StepResult result = run.update(totals);
        char numbers[64];
        std::snprintf(numbers, sizeof numbers, " %a %a", result.loss, result.grad_norm);
        line += numbers;
    }
    const uint64_t program = hash_over_ranks(program_hash.hash());
    const uint64_t submitted = hash_over_ranks(hash_of(submissions.log));
    if (world().rank() == 0) {
        std::printf("%s %016lx %016lx %016lx\n", line.c_str(), gradients, program, submitted);
        std::fflush(stdout);
    }
}

TEST(Layouts, Record) {
    for (const std::string family : {"llama2", "llama3", "qwen2", "qwen3", "mistral"}) {
        for (const Layout& layout : every_layout(world().size())) {
            for (const Kind& kind : kKinds) record(family, layout, kind);
        }
    }
}

}  // namespace
}  // namespace argosy::testing
