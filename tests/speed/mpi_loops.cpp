// Plain loops around MPI's own calls, timed in the plainest way, with which nccl-bench has to agree. They
// share no code with the library. `bench_mpi_loops COLLECTIVE blocking|non-blocking ITERATIONS WARMUP
// BYTES...` prints one line per size on rank 0: bytes, and microseconds of one operation, the mean of the
// ranks' means.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

struct Ranks {
    int rank, size;
    bool blocking;
};

using Operation = std::function<void(float* in, float* out, int count)>;

template <class Blocking, class NonBlocking, class... Args>
void call(bool blocking, Blocking now, NonBlocking later, Args... args) {
    if (blocking) {
        now(args..., MPI_COMM_WORLD);
        return;
    }
    MPI_Request request;
    later(args..., MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// `count` is that of the larger buffer.
std::map<std::string, Operation> operations(const Ranks& ranks) {
    const int n = ranks.size, next = (ranks.rank + 1) % n, before = (ranks.rank + n - 1) % n;
    const bool b = ranks.blocking;
    return {
        {"all_reduce",
         [=](float* in, float* out, int count) {
             call(b, MPI_Allreduce, MPI_Iallreduce, in, out, count, MPI_FLOAT, MPI_SUM);
         }},
        {"all_gather",
         [=](float* in, float* out, int count) {
             call(b, MPI_Allgather, MPI_Iallgather, in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT);
         }},
        {"reduce_scatter",
         [=](float* in, float* out, int count) {
             call(b, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, count / n, MPI_FLOAT,
                  MPI_SUM);
         }},
        {"broadcast",
         [=](float* in, float* out, int count) {
             call(b, MPI_Bcast, MPI_Ibcast, ranks.rank == 0 ? in : out, count, MPI_FLOAT, 0);
         }},
        {"reduce",
         [=](float* in, float* out, int count) {
             call(b, MPI_Reduce, MPI_Ireduce, in, out, count, MPI_FLOAT, MPI_SUM, 0);
         }},
        {"alltoall",
         [=](float* in, float* out, int count) {
             call(b, MPI_Alltoall, MPI_Ialltoall, in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT);
         }},
        {"scatter",
         [=](float* in, float* out, int count) {
             call(b, MPI_Scatter, MPI_Iscatter, in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT, 0);
         }},
        {"gather",
         [=](float* in, float* out, int count) {
             call(b, MPI_Gather, MPI_Igather, in, count / n, MPI_FLOAT, out, count / n, MPI_FLOAT, 0);
         }},
        {"sendrecv",
         [=](float* in, float* out, int count) {
             MPI_Sendrecv(in, count, MPI_FLOAT, next, 0, out, count, MPI_FLOAT, before, 0, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE);
         }},
    };
}

double mean_microseconds(const Operation& run, int iterations, int warmup, size_t bytes, int num_ranks) {
    const size_t count = bytes / sizeof(float);
    std::vector<float> in(count, 1), out(count, 0);
    const auto loop = [&](int times) {
        for (int i = 0; i < times; ++i) run(in.data(), out.data(), static_cast<int>(count));
    };
    loop(warmup);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    loop(iterations);
    double mean = 1e6 * (MPI_Wtime() - start) / iterations, sum = 0;
    MPI_Allreduce(&mean, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / num_ranks;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    Ranks ranks{};
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    if (argc < 6) {
        std::fprintf(stderr,
                     "usage: bench_mpi_loops COLLECTIVE blocking|non-blocking ITERATIONS WARMUP BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    ranks.blocking = std::string(argv[2]) == "blocking";
    const Operation run = operations(ranks).at(argv[1]);
    for (int i = 5; i < argc; ++i) {
        const size_t bytes = std::strtoull(argv[i], nullptr, 10);
        const double mean = mean_microseconds(run, std::atoi(argv[3]), std::atoi(argv[4]), bytes, ranks.size);
        if (ranks.rank == 0) std::printf("%zu %.6f\n", bytes, mean);
    }
    MPI_Finalize();
    return 0;
}
