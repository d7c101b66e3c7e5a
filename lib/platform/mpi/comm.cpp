#include "mpi/comm.h"

#include <mpi.h>
#include <sched.h>

#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "mpi/start_up.h"

namespace argosy::mpi {
namespace {

int int_count(size_t count) {
    constexpr size_t kMax = std::numeric_limits<int>::max();
    if (count > kMax) {
        throw UserError(
            "an operation over MPI has {} elements, and MPI counts up to {}: use smaller buffers "
            "(nccl-bench: "
            "a smaller --maxbytes)",
            count, kMax);
    }
    return static_cast<int>(count);
}

/// The part of a rank in the buffer of all parts.
const std::byte* part_of(const void* buffer, int rank, size_t count_per_rank, ElementType type) {
    return static_cast<const std::byte*>(buffer) +
           static_cast<size_t>(rank) * count_per_rank * static_cast<size_t>(size_bytes(type));
}

MPI_Comm copy_of(MPI_Comm handle) {
    const BoundedCall call("MPI_Comm_dup");
    MPI_Comm copy;
    check(MPI_Comm_dup(handle, &copy), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
}

}  // namespace

bool test_all(std::span<Request> requests) {
    constexpr size_t kMaxStatuses = 128;  // an all-to-all of 64 ranks
    MPI_Status statuses[kMaxStatuses];
    const bool few = requests.size() <= kMaxStatuses;
    int done = 0;
    const int result = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                                   few ? statuses : MPI_STATUSES_IGNORE);
    for (size_t i = 0; result == MPI_ERR_IN_STATUS && few && i < requests.size(); ++i) {
        if (statuses[i].MPI_ERROR != MPI_ERR_PENDING) check(statuses[i].MPI_ERROR, "MPI_Testall");
    }
    check(result, "MPI_Testall");
    return done != 0;
}

void wait(Request request) {
    while (!test_all({&request, 1})) sched_yield();
}

void make_progress() {
    int has_message = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &has_message, MPI_STATUS_IGNORE),
          "MPI_Iprobe");
}

std::string library() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
    return text;  // some versions count a final zero in the length
}

Comm Comm::world() { return Comm(copy_of(MPI_COMM_WORLD)); }
Comm Comm::self() { return Comm(copy_of(MPI_COMM_SELF)); }

Comm Comm::duplicate() const { return Comm(copy_of(handle_)); }

Comm::Comm(MPI_Comm handle) : handle_(handle) {
    check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
}

Comm::Comm(Comm&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)), rank_(other.rank_), size_(other.size_) {}

Comm& Comm::operator=(Comm&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    return *this;
}

// Frees nothing: communicators are few and live as long as the run, and MPI_Finalize frees them.
// MPI_Comm_free is collective, so a rank that unwinds from an error could not call it.
Comm::~Comm() = default;

Comm::NodePlace Comm::place_on_node() const {
    const BoundedCall call("MPI_Comm_split_type");
    MPI_Comm node;
    check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &node),
          "MPI_Comm_split_type");
    NodePlace place{};
    check(MPI_Comm_rank(node, &place.number), "MPI_Comm_rank");
    check(MPI_Comm_size(node, &place.num_ranks), "MPI_Comm_size");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    return place;
}

Comm Comm::subgroup(std::span<const int> ranks) const {
    MPI_Group all, members;
    check(MPI_Comm_group(handle_, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_create_group(handle_, members, /*tag=*/0, &made), "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    return Comm(made);
}

template <class Call, class... Args>
Request Comm::start(const char* name, Call call, Args... args) const {
    Request request = MPI_REQUEST_NULL;
    check(call(args..., handle_, &request), name);
    return request;
}

/// Checks the product, too: Open MPI computes count per rank * number of ranks in an int.
int Comm::int_count_per_rank(size_t count) const {
    int_count(count * static_cast<size_t>(size()));
    return static_cast<int>(count);
}

Request Comm::all_gather(void* out, const void* in, size_t count_per_rank, ElementType type) const {
    const int count = int_count_per_rank(count_per_rank);
    const bool in_place = in == part_of(out, rank(), count_per_rank, type);
    return start("MPI_Allgather", MPI_Iallgather, in_place ? MPI_IN_PLACE : in, count, datatype(type), out,
                 count, datatype(type));
}

Request Comm::reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                             Reduction reduction) const {
    return start("MPI_Reduce_scatter_block", MPI_Ireduce_scatter_block, in == out ? MPI_IN_PLACE : in, out,
                 int_count_per_rank(count_per_rank), datatype(type), operation(type, reduction));
}

Request Comm::all_reduce(void* out, const void* in, size_t count, ElementType type,
                         Reduction reduction) const {
    return start("MPI_Allreduce", MPI_Iallreduce, in == out ? MPI_IN_PLACE : in, out, int_count(count),
                 datatype(type), operation(type, reduction));
}

Request Comm::broadcast(void* buffer, size_t count, ElementType type, int root) const {
    return start("MPI_Bcast", MPI_Ibcast, buffer, int_count(count), datatype(type), root);
}

Request Comm::all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type) const {
    const int count = int_count_per_rank(count_per_rank);
    return start("MPI_Alltoall", MPI_Ialltoall, in == out ? MPI_IN_PLACE : in, count, datatype(type), out,
                 count, datatype(type));
}

Request Comm::gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root) const {
    const int count = int_count_per_rank(count_per_rank);
    const bool in_place = rank() == root && in == part_of(out, root, count_per_rank, type);
    return start("MPI_Gather", MPI_Igather, in_place ? MPI_IN_PLACE : in, count, datatype(type), out, count,
                 datatype(type), root);
}

Request Comm::barrier() const {
    Request request;
    check(MPI_Ibarrier(handle_, &request), "MPI_Ibarrier");
    return request;
}

Request Comm::send(const void* buffer, size_t count, ElementType type, int peer, bool synchronous,
                   int tag) const {
    Request request;
    const auto start = synchronous ? MPI_Issend : MPI_Isend;
    check(start(buffer, int_count(count), datatype(type), peer, tag, handle_, &request), "MPI_Isend");
    return request;
}

Request Comm::receive(void* buffer, size_t count, ElementType type, int peer, int tag) const {
    Request request;
    check(MPI_Irecv(buffer, int_count(count), datatype(type), peer, tag, handle_, &request), "MPI_Irecv");
    return request;
}

void check(int status, const char* call) {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw RunError("{} failed: {}", call, std::string(text, length));
}

}  // namespace argosy::mpi
