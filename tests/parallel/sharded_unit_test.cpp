// A unit with a shard on each rank: gathers give the whole parameters, and reductions give the ranks' sums.
#include "parallel/sharded_unit.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "expect_error.h"
#include "layout/param_spec.h"
#include "parallel/placement.h"
#include "parallel/unit_memory.h"
#include "support/allocation_log.h"
#include "support/communicator_double.h"
#include "support/tensors.h"
#include "support/world.h"

namespace argosy::parallel {
namespace {

using ::argosy::testing::identical;
using ::argosy::testing::kinds;
using ::argosy::testing::Submissions;
using ::argosy::testing::world;
using comm::OpKind;

constexpr Precision kFloat{at::kFloat, at::kFloat, at::kFloat};
constexpr Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};
constexpr Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr Precision kRounded{at::kFloat, at::kFloat, at::kFloat, /*bf16_gradients=*/true};
constexpr uint64_t kSeed = 3;

/// Numbers of rows that two and four do not divide, and fewer rows than ranks.
const std::vector<std::vector<int64_t>> kShapes = {{7, 3}, {5}, {2, 4}, {1}};

model::Place place_of(int number) { return {number, 1}; }

layout::ParamSpec spec_of(size_t i, int num_shards) {
    layout::ParamSpec spec{
        .name = "p" + std::to_string(i), .shape = kShapes[i], .init = {layout::InitKind::Normal, 1.0}};
    spec.shards = kDenseShards;
    if (num_shards > 1) spec.cuts = {{kDenseShards, 0, num_shards}};
    return spec;
}

const ops::FirstRounding& first_rounding() {
    static const ops::FirstRounding first(c10::kCPU);
    return first;
}

std::unique_ptr<ShardedParameter> make_parameter(const layout::ParamSpec& spec, comm::Mesh& mesh,
                                                 const Precision& precision) {
    const auto memory = ParameterMemory::allocate(shard_shape(spec, mesh.shape(), mesh.coordinates()),
                                                  precision, mesh.group(spec.shards));
    return std::make_unique<ShardedParameter>(spec, mesh, memory, kSeed, &first_rounding());
}

at::Tensor whole_value(const layout::ParamSpec& spec) {
    at::Tensor value = at::empty(spec.shape, at::kFloat);
    const layout::Slab all{std::vector<int64_t>(spec.shape.size(), 0), spec.shape};
    layout::initial_values(spec, all, kSeed, value.mutable_data_ptr<float>());
    return value;
}

/// The gradient of a rank: a multiple of small integers, so that sums are exact, in bf16 too.
at::Tensor gradient_of(const layout::ParamSpec& spec, int rank, int round, at::ScalarType type) {
    testing::RandomTensors random(100 + round);
    return random.integers(spec.shape, -8, 9).to(type) * (rank + 1);
}

struct Types {
    const char* name;
    Precision precision;
    ReduceAfter reduce_after = ReduceAfter::Microbatch;
};
void PrintTo(const Types& types, std::ostream* out) { *out << types.name; }

struct ShardedUnitTest : ::testing::TestWithParam<Types> {
    ShardedUnitTest() {
        std::vector<ShardedUnit::Parameter> of_unit;
        for (size_t i = 0; i < kShapes.size(); ++i) {
            parameters.push_back(make_parameter(spec_of(i, counted.size()), mesh, GetParam().precision));
            of_unit.push_back({place_of(static_cast<int>(i)), parameters.back().get()});
        }
        unit = std::make_unique<ShardedUnit>(of_unit, std::vector{&mesh.group(kDenseShards)}, JoinedMemory(),
                                             GetParam().reduce_after);
    }

    /// Adds gradients as a layer does in a microbatch.
    void add_gradients(int round) {
        const model::Gradients& gradients = unit->gradients();
        for (size_t i = 0; i < kShapes.size(); ++i) {
            model::GradientSum& sum = *gradients.sums[i];
            const at::Tensor own =
                gradient_of(parameters[i]->spec(), counted.rank(), round, GetParam().precision.reduce);
            if (sum.rounding) {
                sum.add_rounded(own);
            } else {
                sum.empty ? sum.sum.copy_(own) : sum.sum.add_(own);
            }
            sum.count_gradient();
        }
    }

    /// Checks this rank's rows of the gradients, summed over `num_rounds` rounds and all ranks.
    void expect_gradients(int num_rounds) {
        for (const auto& parameter : parameters) {
            const layout::Slab& slab = parameter->slab();
            at::Tensor expected = at::zeros(parameter->spec().shape, GetParam().precision.reduce);
            for (int round = 0; round < num_rounds; ++round) {
                for (int rank = 0; rank < counted.size(); ++rank) {
                    expected += gradient_of(parameter->spec(), rank, round, GetParam().precision.reduce);
                }
            }
            const at::Tensor& found = parameter->gradient().sum;
            EXPECT_FALSE(parameter->gradient().empty);
            EXPECT_TRUE(identical(
                parameter->own_rows(found),
                expected.narrow(0, slab.offset[0], slab.size[0]).to(GetParam().precision.gradient())))
                << parameter->spec().name;
            const int64_t padding = found.size(0) - slab.size[0];
            EXPECT_TRUE(found.narrow(0, slab.size[0], padding).eq(0).all().item<bool>()) << "in the padding";
        }
    }

    Submissions submissions;
    testing::CommunicatorDouble counted = submissions.recorded(world());
    comm::Mesh mesh{layout::resolve({.shard = -1}, counted.size()), counted};
    std::vector<std::unique_ptr<ShardedParameter>> parameters;
    std::unique_ptr<ShardedUnit> unit;
};

TEST_P(ShardedUnitTest, GatherGivesTheWholeParameter) {
    if (unit->sharded()) unit->gather();
    for (size_t i = 0; i < kShapes.size(); ++i) {
        const at::Tensor expected = whole_value(parameters[i]->spec()).to(GetParam().precision.compute);
        EXPECT_TRUE(identical(unit->weights().tensors[i], expected)) << kShapes[i];
    }
}

TEST_P(ShardedUnitTest, GathersAgainAfterTheWeightsChanged) {
    if (unit->sharded()) {
        unit->gather();
        unit->weights();
        unit->release();
        EXPECT_FALSE(unit->weights().tensors[0].defined());
    }
    for (const auto& parameter : parameters) {
        parameter->own_rows(parameter->master()).mul_(2);
        parameter->refresh_compute();
    }
    if (unit->sharded()) unit->gather();
    for (size_t i = 0; i < kShapes.size(); ++i) {
        const at::Tensor expected = (whole_value(parameters[i]->spec()) * 2).to(GetParam().precision.compute);
        EXPECT_TRUE(identical(unit->weights().tensors[i], expected));
    }
}

TEST_P(ShardedUnitTest, GradientsBecomeTheRanksSum) {
    add_gradients(0);
    if (unit->sharded()) unit->sets()[0].reduce();
    unit->sets()[0].finish_reduce();
    expect_gradients(1);
}

TEST_P(ShardedUnitTest, ReductionsAccumulate) {
    for (const int round : {0, 1, 2}) {
        add_gradients(round);
        if (!unit->sharded()) continue;
        unit->sets()[0].reduce();
        unit->sets()[0].finish_reduce();
    }
    expect_gradients(3);
}

TEST_P(ShardedUnitTest, GradientsAccumulateBeforeOneReduction) {
    for (const int round : {0, 1, 2}) add_gradients(round);
    if (unit->sharded()) unit->sets()[0].reduce();
    unit->sets()[0].finish_reduce();
    expect_gradients(3);
}

// The next microbatch writes its gradients while the reduction of the last one is under way.
TEST_P(ShardedUnitTest, GradientsOfTheNextMicrobatchMayComeDuringAReduction) {
    add_gradients(0);
    if (unit->sharded()) unit->sets()[0].reduce();
    add_gradients(1);
    unit->sets()[0].finish_reduce();
    if (unit->sharded()) unit->sets()[0].reduce();
    unit->sets()[0].finish_reduce();
    expect_gradients(2);
}

TEST_P(ShardedUnitTest, LaunchesOnceForAllParametersAndOnOneRankNever) {
    if (unit->sharded()) unit->gather();
    unit->weights();
    add_gradients(0);
    if (unit->sharded()) unit->sets()[0].reduce();
    unit->sets()[0].finish_reduce();
    const auto& log = submissions.log;
    ASSERT_EQ(log.size(), unit->sharded() ? 2 : 0);
    if (!unit->sharded()) return;
    EXPECT_EQ(kinds(log[0]), std::vector(kShapes.size(), OpKind::AllGather));
    EXPECT_EQ(kinds(log[1]), std::vector(kShapes.size(), OpKind::ReduceScatter));
}

// A sum that lasts for several microbatches has the type of the gradients; one that is reduced after each
// microbatch is in fp32, and so are the data between ranks.
TEST_P(ShardedUnitTest, SumsHaveTheTypeOfTheGradientsWhereTheyLast) {
    const bool lasts = !unit->sharded() || GetParam().reduce_after == ReduceAfter::Step;
    const Precision& precision = GetParam().precision;
    const at::ScalarType expected = lasts ? precision.gradient() : precision.reduce;
    for (const model::GradientSum* sum : unit->gradients().sums) {
        EXPECT_EQ(sum->sum.scalar_type(), expected);
        EXPECT_EQ(sum->rounding.has_value(), expected == at::kBFloat16);
    }
    add_gradients(0);
    if (!unit->sharded()) return;
    unit->sets()[0].reduce();
    unit->sets()[0].finish_reduce();
    EXPECT_EQ(submissions.log.back()[0].type, comm::element_type(precision.reduce));
}

// A reduction that ends during the next microbatch rounds with the random bits of its own.
TEST_P(ShardedUnitTest, RoundingsAreNumberedByTheMicrobatch) {
    if (!GetParam().precision.bf16_gradients) return;
    add_gradients(0);
    const auto expect_next = [&](const model::GradientSum& sum, int64_t microbatch, int64_t count) {
        EXPECT_EQ(sum.rounding->microbatch, microbatch);
        EXPECT_EQ(sum.rounding->count, count);
    };
    if (unit->sharded()) {
        unit->gradients(3);
        unit->sets()[0].reduce();
        unit->gradients(4);
        unit->sets()[0].finish_reduce();
        expect_next(parameters[0]->gradient(), 3, 1);
        return;
    }
    expect_next(parameters[0]->gradient(), 0, 1);
    unit->gradients(0);
    expect_next(parameters[0]->gradient(), 0, 1);
    unit->gradients(1);
    expect_next(parameters[0]->gradient(), 1, 0);
}

TEST_P(ShardedUnitTest, ReductionNeedsEveryGradient) {
    unit->gradients();
    if (unit->sharded()) EXPECT_ERROR(unit->sets()[0].reduce(), RunError, "p0 has no gradient to reduce");
    EXPECT_TRUE(submissions.log.empty());
}

TEST_P(ShardedUnitTest, OneRankComputesWithTheParametersThemselves) {
    if (unit->sharded()) unit->gather();
    for (size_t i = 0; i < kShapes.size(); ++i) {
        ShardedParameter& parameter = *parameters[i];
        const bool one_type = GetParam().precision.compute == GetParam().precision.master;
        EXPECT_EQ(parameter.compute().data_ptr() == parameter.master().data_ptr(), one_type);
        EXPECT_EQ(unit->weights().tensors[i].data_ptr() == parameter.compute().data_ptr(), !unit->sharded());
        EXPECT_EQ(unit->gradients().sums[i] == &parameter.gradient(), !unit->sharded());
        const int64_t rows = layout::chunk(parameter.spec().shape[0], counted.size(), 0).size;
        EXPECT_EQ(parameter.master().size(0), rows) << "memory for more than the piece";
    }
}

TEST_P(ShardedUnitTest, RefusesCallsInTheWrongOrder) {
    if (unit->sharded()) {
        EXPECT_ERROR(unit->sets()[0].reduce(), RunError, "internal error");  // no gradients yet
        unit->gather();
        EXPECT_ERROR(unit->gather(), RunError, "internal error");
        unit->weights();
    } else {
        EXPECT_ERROR(unit->sets()[0].gather(), RunError, "internal error");
        EXPECT_ERROR(unit->sets()[0].release(), RunError, "internal error");
        EXPECT_ERROR(unit->sets()[0].reduce(), RunError, "internal error");
    }
}

// Two of the four parameters are summed with the unit.
TEST(ReplicatedUnit, SumsItsParametersInPlaceInOneLaunch) {
    Submissions submissions;
    auto counted = submissions.recorded(world());
    comm::Mesh mesh(layout::resolve({.replicate = counted.size(), .shard = 1}, counted.size()), counted);
    std::vector<std::unique_ptr<ShardedParameter>> parameters;
    std::vector<ShardedUnit::Parameter> of_unit;
    const auto own = [&](size_t i, int rank) {
        return gradient_of(parameters[i]->spec(), rank, /*round=*/0, at::kFloat);
    };
    for (size_t i = 0; i < kShapes.size(); ++i) {
        parameters.push_back(make_parameter(spec_of(i, 1), mesh, kFloat));
        of_unit.push_back({place_of(static_cast<int>(i)), parameters.back().get(),
                           i % 2 == 1 ? &mesh.group(layout::Axis::Replicate) : nullptr});
    }
    ShardedUnit unit(of_unit, {&mesh.group(kDenseShards)});
    unit.sets()[0].finish_sum();  // of nothing
    EXPECT_ERROR(unit.sets()[0].sum(), RunError, "p1 has no gradient to sum");
    for (size_t i = 0; i < kShapes.size(); ++i) {
        parameters[i]->gradient().sum.copy_(own(i, counted.rank()));
        parameters[i]->gradient().empty = false;
    }

    unit.sets()[0].sum();
    EXPECT_ERROR(unit.sets()[0].sum(), RunError, "internal error");  // one at a time
    unit.sets()[0].finish_sum();
    for (size_t i = 0; i < kShapes.size(); ++i) {
        at::Tensor expected = own(i, counted.rank());
        for (int rank = 0; rank < counted.size(); ++rank) {
            if (of_unit[i].summed_over && rank != counted.rank()) expected += own(i, rank);
        }
        EXPECT_TRUE(identical(parameters[i]->gradient().sum, expected)) << parameters[i]->spec().name;
    }
    const auto& log = submissions.log;
    ASSERT_EQ(log.size(), 1);
    EXPECT_EQ(kinds(log[0]), std::vector(2, OpKind::AllReduce));
    EXPECT_EQ(log[0][0].group, mesh.group(layout::Axis::Replicate).name());
}

// Gradients in bf16 are summed in fp32. Each replica rounds the sum to the same bits, on average to the sum
// itself, and to other bits than the sums of microbatches.
TEST(ReplicatedUnit, RoundsTheSumOfBf16GradientsAlikeOnAllRanks) {
    constexpr int64_t kRows = 200, kColumns = 100;
    Submissions submissions;
    auto counted = submissions.recorded(world());
    comm::Mesh mesh(layout::resolve({.replicate = counted.size(), .shard = 1}, counted.size()), counted);
    layout::ParamSpec spec{.name = "p", .shape = {kRows, kColumns}};
    if (counted.size() > 1) spec.gradient.axes.add(layout::Axis::Replicate);
    const auto parameter = make_parameter(spec, mesh, kRounded);
    ShardedUnit unit({{place_of(0), parameter.get(), &mesh.group(layout::Axis::Replicate)}},
                     {&mesh.group(kDenseShards)});
    at::Tensor expected = at::zeros(spec.shape, at::kDouble);
    for (int rank = 0; rank < counted.size(); ++rank) {
        const at::Tensor own = testing::RandomTensors(rank).normal(spec.shape, at::kFloat);
        expected += own;
        if (rank == counted.rank()) parameter->gradient().add_rounded(own);
    }
    parameter->gradient().count_gradient();
    const at::Tensor before = parameter->gradient().sum.clone();
    unit.sets()[0].sum();
    unit.sets()[0].finish_sum();
    ASSERT_EQ(submissions.log.back()[0].type, ElementType::Float32);

    const at::Tensor& sum = parameter->gradient().sum;
    ASSERT_EQ(sum.scalar_type(), at::kBFloat16);
    const at::Tensor all = at::empty({counted.size() * kRows, kColumns}, at::kBFloat16);
    counted.run({.kind = OpKind::AllGather, .out = all, .in = sum});
    for (int rank = 0; rank < counted.size(); ++rank) {
        EXPECT_TRUE(identical(all.narrow(0, rank * kRows, kRows), sum)) << "of rank " << rank;
    }
    // One rounding on each rank and one of the sum, each by less than 2^-7 of a number of about 1 or of the
    // sum.
    const at::Tensor error = sum.to(at::kDouble) - expected;
    EXPECT_LT(error.abs().max().item<double>(), 0.05 * counted.size());
    EXPECT_LT(std::abs(error.mean().item<double>()),
              4 * 0.01 * counted.size() / std::sqrt(double{kRows * kColumns}));
    EXPECT_TRUE(counted.size() > 1 || identical(sum, before)) << "nothing to sum";
}

// Casts of many weights follow an update: each writes the bytes of the weights once, without a copy.
TEST(ShardedParameterTest, IsCastToFloat8InPlace) {
    constexpr at::ScalarType kE4M3 = at::ScalarType::Float8_e4m3fn;
    comm::Mesh mesh(layout::resolve({}, testing::self().size()), testing::self());
    const layout::ParamSpec spec{.name = "p", .shape = {64, 96}, .init = {layout::InitKind::Normal, 1.0}};
    const auto parameter = make_parameter(spec, mesh, {at::kFloat, kE4M3, at::kFloat});
    const ops::Cast cast{kE4M3, ops::Scaling::Matrix};
    const at::Tensor largest = ops::largest_magnitude(parameter->master());
    const ops::Operand expected = ops::cast(parameter->master(), cast, ops::SumOver::Columns, largest);
    const void* const memory = parameter->compute().const_data_ptr();
    auto& log = testing::AllocationLog::of<c10::DeviceType::CPU>();
    log.start();
    parameter->cast_to_float8(cast, largest);
    for (const int64_t bytes : log.sizes()) EXPECT_LT(bytes, 64 * 96);
    EXPECT_EQ(parameter->compute().const_data_ptr(), memory);
    EXPECT_TRUE(identical(parameter->compute().view(at::kByte), expected.values.view(at::kByte)));
    EXPECT_TRUE(identical(parameter->scale(), expected.scale));
}

// The ranks' random bits differ while a gradient is a part of a sum, and agree where the ranks hold copies.
TEST(ShardedParameterTest, PartsOfASumRoundWithDifferentBits) {
    comm::Mesh mesh(layout::resolve({.replicate = world().size(), .shard = 1}, world().size()), world());
    layout::ParamSpec partial{.name = "p", .shape = {8, 4}};
    partial.gradient.axes.add(layout::Axis::Replicate);
    const layout::ParamSpec whole{.name = "p", .shape = {8, 4}};
    const auto key_of = [&](const layout::ParamSpec& spec) {
        return make_parameter(spec, mesh, kRounded)->gradient().rounding->key;
    };
    const ops::RoundingKey own = key_of(partial), common = key_of(whole);
    EXPECT_EQ(common, ops::rounding_key(kSeed, "p", ops::Rounded::Gradient));
    EXPECT_EQ(own, ops::rounding_key(kSeed, "p", ops::Rounded::Gradient, 1 + world().rank()));
    EXPECT_NE(own, common);
}

/// A unit with q, k and v, whose rows one, two and four divide, and gate and up, whose rows two does not
/// divide.
struct JoinedUnitTest : ::testing::TestWithParam<Precision> {
    JoinedUnitTest() {
        const std::vector<model::Parameter> declared = unit_parameters();
        UnitMemory memory(declared, mesh, GetParam());
        std::vector<ShardedUnit::Parameter> of_unit;
        for (int number = 0; const model::Parameter& each : declared) {
            parameters.push_back(
                std::make_unique<ShardedParameter>(each.spec, mesh, memory.of(number++), kSeed));
            of_unit.push_back({each.place, parameters.back().get()});
        }
        unit =
            std::make_unique<ShardedUnit>(of_unit, std::vector{&mesh.group(kDenseShards)}, memory.joined());
    }

    static std::vector<model::Parameter> unit_parameters() {
        model::Unit made;
        for (const std::vector<int64_t>& rows : {std::vector<int64_t>{5}, {8, 4, 4}, {7, 7}}) {
            std::vector<model::Parameter> place;
            for (const int64_t count : rows) {
                const size_t number = made.parameters().size() + place.size();
                place.push_back({{.name = "p" + std::to_string(number),
                                  .shape = {count, 3},
                                  .init = {layout::InitKind::Normal, 1.0}}});
                place.back().spec.shards = kDenseShards;
                if (world().size() > 1) place.back().spec.cuts = {{kDenseShards, 0, world().size()}};
            }
            made.add(place);
        }
        return made.parameters();
    }
    static constexpr int kQkv = 1, kGateUp = 4;
    /// The shards of the parameters [first, first + count).
    at::Tensor whole(size_t first, size_t count) const {
        std::vector<at::Tensor> values;
        for (size_t i = first; i < first + count; ++i) values.push_back(whole_value(parameters[i]->spec()));
        return at::cat(values).to(GetParam().compute);
    }

    comm::Mesh mesh{layout::resolve({.shard = -1}, world().size()), world()};
    std::vector<std::unique_ptr<ShardedParameter>> parameters;
    std::unique_ptr<ShardedUnit> unit;
};

TEST_P(JoinedUnitTest, WeightsAreOneMatrixWhereRowsDivide) {
    if (unit->sharded()) unit->gather();
    const model::Weights& weights = unit->weights();
    EXPECT_TRUE(identical(weights.joined.at(kQkv), whole(1, 3)));
    EXPECT_EQ(weights.joined.at(kQkv).data_ptr(), weights.tensors[1].data_ptr());
    EXPECT_FALSE(weights.joined.contains(0));
    EXPECT_EQ(weights.joined.contains(kGateUp), !unit->sharded());
    if (!unit->sharded()) {
        EXPECT_TRUE(identical(weights.joined.at(kGateUp), whole(4, 2)));
        return;
    }
    unit->release();
    EXPECT_FALSE(unit->weights().joined.contains(kQkv));
}

// Layers see the masters that the optimizer or a checkpoint wrote.
TEST_P(JoinedUnitTest, WeightsFollowTheMasters) {
    for (const auto& parameter : parameters) {
        parameter->own_rows(parameter->master()).mul_(2);
        parameter->refresh_compute();
    }
    if (unit->sharded()) unit->gather();
    const at::Tensor expected = whole(1, 3).to(GetParam().compute) * 2;
    EXPECT_TRUE(identical(unit->weights().joined.at(kQkv), expected));
}

// The second round shows that a joined sum starts anew.
TEST_P(JoinedUnitTest, GradientsOfAJoinReachTheirParameters) {
    const at::Tensor whole_sum = testing::RandomTensors(9).integers({16, 3}, -20, 20).to(GetParam().reduce);
    for (const int round : {1, 2}) {
        const model::Gradients& gradients = unit->gradients();
        for (size_t i = 0; i < parameters.size(); ++i) {
            gradients.sums[i]->sum.zero_();
            gradients.sums[i]->empty = false;
        }
        gradients.joined.at(kQkv).copy_(whole_sum);
        if (unit->sharded()) {
            unit->sets()[0].reduce();
            unit->sets()[0].finish_reduce();
        }
        const int times = unit->sharded() ? round * world().size() : 1;
        for (int64_t i = 1, begin = 0; i <= 3; ++i) {
            const layout::Slab& slab = parameters[i]->slab();
            EXPECT_TRUE(identical(parameters[i]->own_rows(parameters[i]->gradient().sum),
                                  whole_sum.narrow(0, begin + slab.offset[0], slab.size[0]) * times));
            begin += parameters[i]->spec().shape[0];
        }
        EXPECT_EQ(parameters[4]->gradient().sum.abs().sum().item<double>(), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Precisions, JoinedUnitTest, ::testing::Values(kFloat, kMixed, kDouble),
                         [](const auto& precision) {
                             return std::string(c10::toString(precision.param.compute));
                         });

INSTANTIATE_TEST_SUITE_P(AllTypes, ShardedUnitTest,
                         ::testing::Values(Types{"Float", kFloat}, Types{"BFloat16", kMixed},
                                           Types{"Double", kDouble}, Types{"Rounded", kRounded},
                                           Types{"RoundedPerStep", kRounded, ReduceAfter::Step}),
                         [](const auto& types) { return std::string(types.param.name); });

}  // namespace
}  // namespace argosy::parallel
