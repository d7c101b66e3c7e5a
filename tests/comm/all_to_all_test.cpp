// An all-to-all of every element type and backend against a plain computation of what each rank should hold.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "base/error.h"
#include "comm/backends.h"
#include "comm/communicator.h"
#include "comm/numbers.h"
#include "expect_error.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::self;

/// sizes[a][b]: the elements of the part from rank a to rank b.
using Sizes = std::vector<std::vector<int64_t>>;

Sizes sizes_of(int num_ranks, int64_t each) { return Sizes(num_ranks, std::vector(num_ranks, each)); }

/// The same on every rank. A third of the parts is empty, and some are more than MPI buffers.
Sizes random_sizes(int num_ranks, unsigned seed) {
    constexpr int64_t kMost[] = {0, 9, 40009};
    std::mt19937 random(seed);
    Sizes sizes = sizes_of(num_ranks, 0);
    for (auto& row : sizes) {
        for (int64_t& size : row) size = static_cast<int64_t>(random()) % (kMost[random() % 3] + 1);
    }
    return sizes;
}

Communicator& world_of(Backend backend) {
    Communicator& group = group_of(backend);
    group.open_channels();
    return group;
}

class AllToAll : public ::testing::TestWithParam<std::tuple<Backend, at::ScalarType>> {
  protected:
    /// An operation, and what it should leave in its output.
    struct Exchange {
        Op op;
        at::Tensor expected;
        bool okay() const { return at::equal(op.out, expected); }
    };

    Communicator& world() const { return world_of(std::get<Backend>(GetParam())); }
    at::ScalarType type() const { return std::get<at::ScalarType>(GetParam()); }

    /// The parts of all-to-alls with different `salt` differ.
    Exchange exchange_of(int rank, const Sizes& sizes, int salt = 0) const {
        Exchange made{.op = {.kind = OpKind::AllToAll}, .expected = {}};
        std::vector<at::Tensor> in, expected;
        for (int peer = 0; peer < std::ssize(sizes); ++peer) {
            const int64_t sent = sizes[rank][peer], received = sizes[peer][rank];
            in.push_back(numbers(salt + 5 * rank + peer, sent, type()));
            expected.push_back(numbers(salt + 5 * peer + rank, received, type()));
            made.op.parts.sent.push_back(sent);
            made.op.parts.received.push_back(received);
            made.op.parts.total =
                std::accumulate(sizes[peer].begin(), sizes[peer].end(), made.op.parts.total);
        }
        made.op.in = at::cat(in);
        made.expected = at::cat(expected);
        made.op.out = at::zeros_like(made.expected);
        return made;
    }
    Exchange exchange_of(const Sizes& sizes, int salt = 0) const {
        return exchange_of(world().rank(), sizes, salt);
    }
    void expect_right(const Sizes& sizes) const {
        const Exchange exchange = exchange_of(sizes);
        const at::Tensor before = exchange.op.in.clone();
        world().run(exchange.op);
        EXPECT_TRUE(exchange.okay());
        EXPECT_TRUE(at::equal(exchange.op.in, before)) << "its input changed";
    }
};

TEST_P(AllToAll, HasPartsOfAnySize) {
    for (unsigned seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(seed);
        expect_right(random_sizes(world().size(), seed));
    }
    expect_right(sizes_of(world().size(), 100));
}

TEST_P(AllToAll, ARankMaySendOrReceiveNothing) {
    const int size = world().size();
    expect_right(sizes_of(size, 0));
    for (int idle = 0; idle < size; ++idle) {
        Sizes sends_nothing = sizes_of(size, 70), receives_nothing = sends_nothing;
        std::ranges::fill(sends_nothing[idle], 0);
        for (auto& row : receives_nothing) row[idle] = 0;
        expect_right(sends_nothing);
        expect_right(receives_nothing);
        receives_nothing[idle] = sends_nothing[idle];
        expect_right(receives_nothing);
    }
}

TEST_P(AllToAll, HasRows) {
    Exchange exchange = exchange_of(sizes_of(world().size(), 3 * 4));
    exchange.op.in = exchange.op.in.view({-1, 3});
    exchange.op.out = exchange.op.out.view({-1, 3});
    world().run(exchange.op);
    EXPECT_TRUE(at::equal(exchange.op.out.view(-1), exchange.expected));
}

TEST_P(AllToAll, OnOneRankCopiesItsInput) {
    const Exchange exchange = exchange_of(0, {{5}}), nothing = exchange_of(0, {{0}});
    self().run({{exchange.op, nothing.op}});
    EXPECT_TRUE(exchange.okay());
}

TEST_P(AllToAll, SeveralGoInOneSubmissionWithOtherCollectives) {
    const int size = world().size();
    const Exchange first = exchange_of(random_sizes(size, 20), 1),
                   second = exchange_of(random_sizes(size, 21), 2);
    const at::Tensor own = numbers(world().rank(), 7, type()), all = at::zeros({7 * size}, type());
    world().run({{first.op, {OpKind::AllGather, all, own}, second.op}});
    EXPECT_TRUE(first.okay());
    EXPECT_TRUE(second.okay());
    for (int rank = 0; rank < size; ++rank)
        EXPECT_TRUE(at::equal(all.narrow(0, 7 * rank, 7), numbers(rank, 7, type())));
}

TEST_P(AllToAll, ManyInFlightEndInAnyOrder) {
    std::vector<Exchange> exchanges;
    std::vector<Pending> pending;
    for (int i = 0; i < 6; ++i) {
        exchanges.push_back(exchange_of(random_sizes(world().size(), 30 + i), i));
        pending.push_back(world().submit(exchanges[i].op));
    }
    if (world().rank() % 2 == 1) std::ranges::reverse(pending);
    for (Pending& each : pending) each.wait();
    for (const Exchange& exchange : exchanges) EXPECT_TRUE(exchange.okay());
}

TEST_P(AllToAll, SubgroupExchangesPartsOfItsMembersOnly) {
    std::vector<int> members;  // the ranks of this rank's parity
    for (int rank = world().rank() % 2; rank < world().size(); rank += 2) members.push_back(rank);
    const auto group = world().subgroup(members, "tp");
    const int salt = 100 * (world().rank() % 2);
    const Exchange exchange = exchange_of(group->rank(), random_sizes(group->size(), 40), salt);
    group->run(exchange.op);
    EXPECT_TRUE(exchange.okay());
}

// The messages have the sizes of the parts, and ranks submit them and the all-to-alls in different orders.
TEST_P(AllToAll, DoesNotMixWithMessages) {
    if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
    const int rank = world().rank(), size = world().size();
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const Exchange first = exchange_of(sizes_of(size, 60), 1), second = exchange_of(sizes_of(size, 60), 2);
    const at::Tensor sent = numbers(9 + rank, 60, type()), received = at::zeros({60}, type());
    const Op send{.kind = OpKind::Send, .in = sent, .peer = next},
        receive{.kind = OpKind::Receive, .out = received, .peer = previous};
    std::vector<Pending> pending;
    if (rank % 2 == 0) pending.push_back(world().submit(send));
    pending.push_back(world().submit(first.op));
    if (rank % 2 == 1) pending.push_back(world().submit(send));
    pending.push_back(world().submit({{receive, second.op}}));
    for (Pending& each : pending) each.wait();
    EXPECT_TRUE(first.okay());
    EXPECT_TRUE(second.okay());
    EXPECT_TRUE(at::equal(received, numbers(9 + previous, 60, type())));
}

INSTANTIATE_TEST_SUITE_P(All, AllToAll,
                         ::testing::Combine(all_backends(), ::testing::Values(at::kFloat, at::kDouble,
                                                                              at::kBFloat16, at::kLong)),
                         [](const auto& test) {
                             return backend_name(std::get<Backend>(test.param)) +
                                    toString(std::get<at::ScalarType>(test.param));
                         });

class RefusedAllToAll : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(All, RefusedAllToAll, all_backends(), name_of_backend);

TEST_P(RefusedAllToAll, HasPartsThatDoNotFit) {
    for (Communicator* group : {&self(), &world_of(GetParam())}) {
        const int64_t size = group->size();
        const std::vector<int64_t> twos(size, 2);
        const Op good{.kind = OpKind::AllToAll,
                      .out = at::zeros({2 * size}),
                      .in = at::zeros({2 * size}),
                      .parts = {twos, twos, 2 * size * size}};
        const auto refused = [&](const std::string& why, auto change) {
            Op op = good;
            change(op);
            EXPECT_ERROR(group->run(op), RunError, why);
        };
        group->run(good);
        refused("without one of its buffers", [](Op& op) { op.in = at::Tensor(); });
        refused("parts on", [](Op& op) { op.parts.sent.push_back(0); });
        refused("parts on", [](Op& op) { op.parts.received.pop_back(); });
        refused("a part of -1 elements", [](Op& op) { op.parts.sent[0] = -1; });
        refused("in a buffer of", [](Op& op) { ++op.parts.received[0]; });
        refused("of which one rank has", [&](Op& op) { op.parts.total = 2 * size - 1; });
        refused("", [&](Op& op) { op.in = at::zeros({2 * size}, at::kDouble); });
        refused("not contiguous", [&](Op& op) { op.out = at::zeros({2 * size, 2}).select(1, 0); });
        refused("sends itself 3 elements and receives 2", [&](Op& op) {
            ++op.parts.sent[group->rank()];
            ++op.parts.total;
            op.in = at::zeros({2 * size + 1});
        });
    }
}

}  // namespace
}  // namespace argosy::comm
