// What the backend's collectives do to small buffers, element by element, against plain loops.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <span>

#include "bench/bench_ranks.h"

namespace argosy::bench {
namespace {

using Numbers = std::vector<int64_t>;

constexpr int kCount = 5;

int64_t number(int rank, size_t index) { return 1000 * (rank + 1) + static_cast<int64_t>(index); }

Numbers numbers(int rank, size_t count) {
    Numbers made(count);
    for (size_t i = 0; i < count; ++i) made[i] = number(rank, i);
    return made;
}

class BackendTest : public ::testing::Test {
  protected:
    using Start = void (Backend::*)(const Call&);

    /// The output, on each rank, of an operation on buffers of so many elements.
    Numbers result(Start start, const Numbers& input, size_t output, Reduction reduction = Reduction::Sum) {
        const auto backend = ranks_.backend();
        const auto in = with(*backend, input), out = with(*backend, Numbers(output, -1));
        return run(*backend, start, call(in.get(), out.get(), reduction), out, output);
    }

    /// The whole buffer after an operation in place; `in` and `out` are the places of input and output in it.
    Numbers result_in_place(Start start, const Numbers& input, size_t in, size_t out) {
        const auto backend = ranks_.backend();
        const auto buffer = with(*backend, input);
        return run(
            *backend, start,
            call(buffer.get() + in * sizeof(int64_t), buffer.get() + out * sizeof(int64_t), Reduction::Sum),
            buffer, input.size());
    }

    Call call(const std::byte* in, std::byte* out, Reduction reduction) const {
        return {in, out, kCount, ElementType::Int64, reduction, root()};
    }

    int root() const { return size() - 1; }
    int rank() const { return ranks_.rank; }
    int size() const { return ranks_.size; }
    bool at_root() const { return rank() == root(); }
    size_t all() const { return static_cast<size_t>(size()) * kCount; }

    Numbers reduced(size_t from, const std::function<int64_t(int64_t, int64_t)>& combine) const {
        Numbers sum(kCount);
        for (size_t i = 0; i < kCount; ++i) {
            sum[i] = number(0, from + i);
            for (int other = 1; other < size(); ++other) sum[i] = combine(sum[i], number(other, from + i));
        }
        return sum;
    }
    Numbers summed(size_t from) const { return reduced(from, std::plus<>()); }
    Numbers gathered() const {
        Numbers every;
        for (int other = 0; other < size(); ++other) {
            for (size_t i = 0; i < kCount; ++i) every.push_back(number(other, i));
        }
        return every;
    }
    Numbers own_chunk_of(int giver) const {
        Numbers chunk(kCount);
        for (size_t i = 0; i < kCount; ++i)
            chunk[i] = number(giver, static_cast<size_t>(rank()) * kCount + i);
        return chunk;
    }

    /// Where a reduce_scatter in place leaves its part.
    size_t own_place() const {
        return ranks_.backend()->result_at_start() ? 0 : static_cast<size_t>(rank()) * kCount;
    }

  private:
    static Backend::Memory with(const Backend& backend, const Numbers& numbers) {
        auto memory = backend.allocate(numbers.size() * sizeof(int64_t));
        backend.write(memory.get(), std::as_bytes(std::span(numbers)));
        return memory;
    }

    static Numbers run(Backend& backend, Start start, const Call& call, const Backend::Memory& output,
                       size_t count) {
        (backend.*start)(call);
        backend.wait();
        Numbers found(count);
        backend.read(std::as_writable_bytes(std::span(found)), output.get());
        return found;
    }

    Ranks ranks_;
};

TEST_F(BackendTest, AllReduce) {
    const Numbers own = numbers(rank(), kCount);
    EXPECT_EQ(result(&Backend::all_reduce, own, kCount), summed(0));
    EXPECT_EQ(result_in_place(&Backend::all_reduce, own, 0, 0), summed(0));
    const auto max = [](int64_t a, int64_t b) { return std::max(a, b); };
    EXPECT_EQ(result(&Backend::all_reduce, own, kCount, Reduction::Max), reduced(0, max));
}

TEST_F(BackendTest, AllGather) {
    EXPECT_EQ(result(&Backend::all_gather, numbers(rank(), kCount), all()), gathered());
    Numbers buffer(all(), -1);
    const size_t place = static_cast<size_t>(rank()) * kCount;
    for (size_t i = 0; i < kCount; ++i) buffer[place + i] = number(rank(), i);
    EXPECT_EQ(result_in_place(&Backend::all_gather, buffer, place, 0), gathered());
}

TEST_F(BackendTest, ReduceScatter) {
    const Numbers own = numbers(rank(), all());
    const Numbers expected = summed(static_cast<size_t>(rank()) * kCount);
    EXPECT_EQ(result(&Backend::reduce_scatter, own, kCount), expected);
    const size_t place = own_place();
    const Numbers after = result_in_place(&Backend::reduce_scatter, own, 0, place);
    EXPECT_EQ(Numbers(after.begin() + place, after.begin() + place + kCount), expected);
}

TEST_F(BackendTest, Broadcast) {
    const Numbers own = numbers(rank(), kCount), roots = numbers(root(), kCount);
    const Numbers found = result(&Backend::broadcast, own, kCount);
    if (!at_root()) {
        EXPECT_EQ(found, roots);
    }
    EXPECT_EQ(result_in_place(&Backend::broadcast, own, 0, 0), roots);
}

TEST_F(BackendTest, AllToAll) {
    Numbers expected;
    for (int giver = 0; giver < size(); ++giver) {
        const Numbers chunk = own_chunk_of(giver);
        expected.insert(expected.end(), chunk.begin(), chunk.end());
    }
    const Numbers own = numbers(rank(), all());
    EXPECT_EQ(result(&Backend::all_to_all, own, all()), expected);
    EXPECT_EQ(result_in_place(&Backend::all_to_all, own, 0, 0), expected);
}

TEST_F(BackendTest, SendReceive) {
    const Numbers own = numbers(rank(), kCount), before = numbers((rank() + size() - 1) % size(), kCount);
    EXPECT_EQ(result(&Backend::send_receive, own, kCount), before);
    EXPECT_EQ(result_in_place(&Backend::send_receive, own, 0, 0), before);
}

}  // namespace
}  // namespace argosy::bench
