// Every collective of every element type and backend against a plain computation of what each rank should
// hold.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>

#include "base/error.h"
#include "comm/backends.h"
#include "comm/communicator.h"
#include "comm/numbers.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::self;

// 40009 elements do not fit into the ring of Backend::SmallRing.
constexpr int64_t kCounts[] = {0, 1, 3, 64, 10007, 40009};

class OnBackend : public ::testing::TestWithParam<Backend> {
  protected:
    Communicator& world() const { return group_of(GetParam()); }
};

class Collective : public ::testing::TestWithParam<std::tuple<Backend, at::ScalarType>> {
  protected:
    Communicator& world() const { return group_of(std::get<Backend>(GetParam())); }
    at::ScalarType type() const { return std::get<at::ScalarType>(GetParam()); }
    at::Tensor numbers_of(int rank, int64_t count) const { return numbers(rank, count, type()); }
    at::Tensor output(int64_t count) const { return at::zeros({count}, type()); }

    /// Returns the expected result: element i is the sum or the maximum of element i of all ranks.
    at::Tensor reduced(int64_t count, Reduction reduction) const {
        std::vector<double> values(count);
        for (int64_t i = 0; i < count; ++i) {
            values[i] = number(0, i);
            for (int rank = 1; rank < world().size(); ++rank) {
                values[i] = reduction == Reduction::Sum ? values[i] + number(rank, i)
                                                        : std::max(values[i], number(rank, i));
            }
        }
        return at::tensor(values, at::kDouble).to(type());
    }
};

TEST_P(Collective, AllGatherPutsRanksInOrder) {
    for (const int64_t count : kCounts) {
        const at::Tensor in = numbers_of(world().rank(), count), out = output(count * world().size());
        world().run({OpKind::AllGather, out, in});
        for (int rank = 0; rank < world().size(); ++rank) {
            EXPECT_TRUE(at::equal(out.narrow(0, rank * count, count), numbers_of(rank, count)));
        }
    }
}

TEST_P(Collective, AllReduce) {
    for (const Reduction reduction : {Reduction::Sum, Reduction::Max}) {
        for (const int64_t count : kCounts) {
            const at::Tensor in = numbers_of(world().rank(), count), out = output(count);
            world().run({OpKind::AllReduce, out, in, reduction});
            EXPECT_TRUE(at::equal(out, reduced(count, reduction))) << count;
            EXPECT_TRUE(at::equal(in, numbers_of(world().rank(), count))) << "its input changed";
        }
    }
}

TEST_P(Collective, AllReduceInPlace) {
    const at::Tensor both = numbers_of(world().rank(), 103);
    world().run({OpKind::AllReduce, both, both});
    EXPECT_TRUE(at::equal(both, reduced(103, Reduction::Sum)));
}

TEST_P(Collective, ReduceScatterLeavesEachRankItsPiece) {
    for (const Reduction reduction : {Reduction::Sum, Reduction::Max}) {
        for (const int64_t count : kCounts) {
            const int64_t total = count * world().size();
            const at::Tensor in = numbers_of(world().rank(), total), out = output(count);
            world().run({OpKind::ReduceScatter, out, in, reduction});
            const at::Tensor expected = reduced(total, reduction).narrow(0, count * world().rank(), count);
            EXPECT_TRUE(at::equal(out, expected)) << count;
            EXPECT_TRUE(at::equal(in, numbers_of(world().rank(), total))) << "its input changed";
        }
    }
}

TEST_P(Collective, BroadcastFromEveryRank) {
    for (int root = 0; root < world().size(); ++root) {
        const at::Tensor buffer = numbers_of(world().rank(), 77);
        world().run({.kind = OpKind::Broadcast, .out = buffer, .peer = root});
        EXPECT_TRUE(at::equal(buffer, numbers_of(root, 77)));
    }
}

TEST_P(Collective, OnOneRankACollectiveCopiesItsInput) {
    const at::Tensor in = numbers_of(3, 5), gathered = output(5), reduced_alone = output(5);
    self().run({OpKind::AllGather, gathered, in});
    self().run({OpKind::ReduceScatter, reduced_alone, in});
    EXPECT_TRUE(at::equal(gathered, in));
    EXPECT_TRUE(at::equal(reduced_alone, in));
}

TEST_P(Collective, SeveralOpsInOneSubmission) {
    const int rank = world().rank(), size = world().size();
    const at::Tensor gathered = output(7 * size), summed = numbers_of(rank, 5), scattered = output(3);
    const std::vector<Op> ops = {{OpKind::AllGather, gathered, numbers_of(rank, 7)},
                                 {OpKind::AllReduce, summed, summed},
                                 {OpKind::ReduceScatter, scattered, numbers_of(rank, 3 * size)}};
    Pending pending = world().submit(ops);
    EXPECT_TRUE(pending.active());
    pending.wait();
    EXPECT_FALSE(pending.active());
    EXPECT_TRUE(at::equal(gathered.narrow(0, 7 * (size - 1), 7), numbers_of(size - 1, 7)));
    EXPECT_TRUE(at::equal(summed, reduced(5, Reduction::Sum)));
    EXPECT_TRUE(at::equal(scattered, reduced(3 * size, Reduction::Sum).narrow(0, 3 * rank, 3)));
}

TEST_P(Collective, ManyInFlightEndInAnyOrder) {
    constexpr int kInFlight = 9;
    std::vector<at::Tensor> tensors;
    std::vector<Pending> pending;
    for (int i = 0; i < kInFlight; ++i) {
        tensors.push_back(numbers_of(world().rank(), 100 + i));
        pending.push_back(world().submit({OpKind::AllReduce, tensors[i], tensors[i]}));
    }
    // Odd ranks wait in reverse order: ranks need not wait in the same order.
    std::vector<int> order(kInFlight);
    std::iota(order.begin(), order.end(), 0);
    if (world().rank() % 2 == 1) std::reverse(order.begin(), order.end());
    for (const int i : order) {
        pending[i].wait();
        EXPECT_TRUE(at::equal(tensors[i], reduced(100 + i, Reduction::Sum)));
    }
}

TEST_P(Collective, SubgroupGathersFromItsMembersOnly) {
    std::vector<int> members;  // the ranks of this rank's parity
    for (int rank = world().rank() % 2; rank < world().size(); rank += 2) members.push_back(rank);
    const auto group = world().subgroup(members, "tp");
    ASSERT_EQ(group->size(), static_cast<int>(members.size()));
    ASSERT_EQ(members[group->rank()], world().rank());
    EXPECT_EQ(group->name(), "tp");

    const at::Tensor out = output(11 * group->size());
    group->run({OpKind::AllGather, out, numbers_of(world().rank(), 11)});
    for (int i = 0; i < group->size(); ++i) {
        EXPECT_TRUE(at::equal(out.narrow(0, 11 * i, 11), numbers_of(members[i], 11)));
    }
}

INSTANTIATE_TEST_SUITE_P(All, Collective,
                         ::testing::Combine(all_backends(),
                                            ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16,
                                                              at::kLong)),
                         [](const auto& test) {
                             return backend_name(std::get<Backend>(test.param)) +
                                    toString(std::get<at::ScalarType>(test.param));
                         });

// Through shared memory, every collective adds in the order of ranks. All ranks then get the same bits, in
// every layout.
TEST(SharedMemorySum, AddsInTheOrderOfRanks) {
    for (const Backend backend : {Backend::SharedMemory, Backend::SmallRing}) {
        Communicator& group = group_of(backend);
        for (const int64_t count : {5, 30011}) {
            const int64_t total = count * group.size();
            std::vector<at::Tensor> parts;  // of all ranks
            at::Tensor sum;
            for (int rank = 0; rank < group.size(); ++rank) {
                parts.push_back(numbers(rank, total, at::kFloat).mul(0.1).add(rank));
                sum = rank == 0 ? parts[0].clone() : sum.add(parts[rank]);
            }
            const at::Tensor& own = parts[group.rank()];
            const at::Tensor all = at::zeros({total}), piece = at::zeros({count});
            group.run({OpKind::AllReduce, all, own});
            group.run({OpKind::ReduceScatter, piece, own});
            EXPECT_TRUE(at::equal(all, sum));
            EXPECT_TRUE(at::equal(piece, sum.narrow(0, count * group.rank(), count)));
        }
    }
}

// Ties lie half way between two bf16 numbers; the even one wins. One rank holds the small part, one the large
// one, the others nothing, so that the order of the additions does not matter.
class BFloat16Sum : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(All, BFloat16Sum, all_backends(), name_of_backend);

TEST_P(BFloat16Sum, RoundsToNearestEven) {
    if (world().size() == 1) GTEST_SKIP() << "a sum needs two ranks";
    const double step = 1.0 / 128;  // between neighbours in [1, 2)
    const std::vector<double> large = {1, 1 + step, 1, 1, -1, 3e38, 1 + step};
    const std::vector<double> small = {step / 2,  step / 2, step * 0.75, step * 0.25,
                                       -step / 2, 3e38,     -step / 2};
    const std::vector<double> sums = {1, 1 + 2 * step, 1 + step, 1, -1, INFINITY, 1};
    const auto count = static_cast<int64_t>(sums.size());
    at::Tensor part = at::zeros({count}, at::kBFloat16);
    if (world().rank() == 0) part = at::tensor(small, at::kDouble).to(at::kBFloat16);
    if (world().rank() == world().size() - 1) part = at::tensor(large, at::kDouble).to(at::kBFloat16);
    world().run({OpKind::AllReduce, part, part});
    EXPECT_TRUE(at::equal(part.to(at::kDouble), at::tensor(sums, at::kDouble))) << part.to(at::kDouble)[0];
}

class Submission : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(All, Submission, all_backends(), name_of_backend);

TEST_P(Submission, EmptySubmissionIsDoneAtOnce) {
    Pending pending = world().submit(std::vector<Op>{});
    pending.wait();
    EXPECT_FALSE(pending.active());
}

TEST_P(Submission, RefusesWhatItCannotSend) {
    const at::Tensor wide = at::zeros({4, 4}, at::kFloat);
    for (Communicator* group : {&self(), &world()}) {
        const int64_t size = group->size();
        EXPECT_THROW(group->run({OpKind::AllReduce, wide.t().narrow(0, 0, 2), wide}), RunError);
        EXPECT_THROW(group->run({OpKind::AllGather, at::zeros({3 * size}), at::zeros({4})}), RunError);
        EXPECT_THROW(group->run({OpKind::ReduceScatter, at::zeros({3}), at::zeros({4 * size})}), RunError);
        const at::Tensor truths = at::zeros({4}, at::kBool);
        EXPECT_THROW(group->run({OpKind::AllReduce, truths, truths}), RunError);
        EXPECT_THROW(group->run({OpKind::AllReduce, at::zeros({4}, at::kDouble), at::zeros({4})}), RunError);
    }
}

// A Pending may outlive the tensors that its caller held.
TEST_P(Submission, KeepsItsTensorsAlive) {
    at::Tensor out = at::zeros({world().size() * 1000}, at::kFloat);
    const float* data = out.const_data_ptr<float>();
    Pending pending = world().submit({OpKind::AllGather, out, numbers(world().rank(), 1000, at::kFloat)});
    out.reset();
    const at::Tensor other = at::zeros({world().size() * 1000}, at::kFloat);
    EXPECT_NE(other.const_data_ptr<float>(), data) << "its memory was given away";
    pending.wait();
    EXPECT_EQ(other.abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace argosy::comm
