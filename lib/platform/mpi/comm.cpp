#include "mpi/comm.h"

#include <mpi.h>
#include <sched.h>

#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "mpi/start_up.h"

namespace argosy::mpi {
namespace {

/// The parts of all ranks in a buffer: `count` elements each, at a distance of `stride` elements. MPI's type
/// exists until this object and the operations that began with it have ended.
class Parts {
  public:
    Parts(int count, size_t stride, ElementType type)
        : count_(count),
          distance_(size_bytes(type) * (stride == 0 ? static_cast<size_t>(count) : stride)),
          type_(datatype(type)) {
        if (stride == 0 || stride == static_cast<size_t>(count)) return;
        MPI_Datatype part;
        check(MPI_Type_contiguous(count, datatype(type), &part), "MPI_Type_contiguous");
        check(MPI_Type_create_resized(part, 0, static_cast<MPI_Aint>(distance_), &made_),
              "MPI_Type_create_resized");
        check(MPI_Type_commit(&made_), "MPI_Type_commit");
        MPI_Type_free(&part);
        count_ = 1, type_ = made_;
    }
    ~Parts() {
        if (made_ != MPI_DATATYPE_NULL) MPI_Type_free(&made_);
    }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;

    int count() const { return count_; }
    MPI_Datatype type() const { return type_; }
    /// The part of a rank in the buffer of all parts.
    const std::byte* of(int rank, const void* buffer) const {
        return static_cast<const std::byte*>(buffer) + static_cast<size_t>(rank) * distance_;
    }

  private:
    int count_;
    size_t distance_;  // in bytes, between the starts of two parts
    MPI_Datatype type_, made_ = MPI_DATATYPE_NULL;
};

MPI_Comm copy_of(MPI_Comm handle) {
    const BoundedCall call("MPI_Comm_dup");
    MPI_Comm copy;
    check(MPI_Comm_dup(handle, &copy), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
}

}  // namespace

bool test_all(std::span<Request> requests) {
    constexpr size_t kMaxStatuses = 16;
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

Comm Comm::duplicate(Calls calls, size_t max_elements) const {
    return Comm(copy_of(handle_), calls, max_elements);
}

Comm::Comm(MPI_Comm handle, Calls calls, size_t max_elements)
    : handle_(handle), calls_(calls), max_elements_(max_elements) {
    check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
}

Comm::Comm(Comm&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      calls_(other.calls_),
      max_elements_(other.max_elements_),
      rank_(other.rank_),
      size_(other.size_) {}

Comm& Comm::operator=(Comm&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(calls_, other.calls_);
    std::swap(max_elements_, other.max_elements_);
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

template <class Blocking, class NonBlocking, class... Args>
Request Comm::start(const char* name, Blocking blocking, NonBlocking non_blocking, Args... args) const {
    Request request = MPI_REQUEST_NULL;
    check(calls_ == Calls::Blocking ? blocking(args..., handle_) : non_blocking(args..., handle_, &request),
          name);
    return request;
}

int Comm::int_count(size_t count) const {
    ARGOSY_CHECK(count <= max_elements_, "{} elements in one message; MPI 3 counts with int", count);
    return static_cast<int>(count);
}

/// Checks the product, too: Open MPI computes count per rank * number of ranks in an int.
int Comm::int_count_per_rank(size_t count) const {
    int_count(count * static_cast<size_t>(size()));
    return static_cast<int>(count);
}

Request Comm::all_gather(void* out, const void* in, size_t count_per_rank, ElementType type,
                         size_t stride) const {
    const int count = int_count_per_rank(count_per_rank);
    const Parts parts(count, stride, type);
    const bool in_place = in == parts.of(rank(), out);
    return start("MPI_Allgather", MPI_Allgather, MPI_Iallgather, in_place ? MPI_IN_PLACE : in, count,
                 datatype(type), out, parts.count(), parts.type());
}

Request Comm::reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                             Reduction reduction) const {
    return start("MPI_Reduce_scatter_block", MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block,
                 in == out ? MPI_IN_PLACE : in, out, int_count_per_rank(count_per_rank), datatype(type),
                 operation(type, reduction));
}

Request Comm::reduce_scatter(void* out, const void* in, std::span<const int> counts, ElementType type,
                             Reduction reduction) const {
    int_count(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    return start("MPI_Reduce_scatter", MPI_Reduce_scatter, MPI_Ireduce_scatter, in == out ? MPI_IN_PLACE : in,
                 out, counts.data(), datatype(type), operation(type, reduction));
}

Request Comm::all_reduce(void* out, const void* in, size_t count, ElementType type,
                         Reduction reduction) const {
    return start("MPI_Allreduce", MPI_Allreduce, MPI_Iallreduce, in == out ? MPI_IN_PLACE : in, out,
                 int_count(count), datatype(type), operation(type, reduction));
}

Request Comm::reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction,
                     int root) const {
    const bool in_place = in == out && rank() == root;
    return start("MPI_Reduce", MPI_Reduce, MPI_Ireduce, in_place ? MPI_IN_PLACE : in, out, int_count(count),
                 datatype(type), operation(type, reduction), root);
}

Request Comm::broadcast(void* buffer, size_t count, ElementType type, int root) const {
    return start("MPI_Bcast", MPI_Bcast, MPI_Ibcast, buffer, int_count(count), datatype(type), root);
}

Request Comm::all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type,
                         size_t stride) const {
    const Parts parts(int_count_per_rank(count_per_rank), stride, type);
    return start("MPI_Alltoall", MPI_Alltoall, MPI_Ialltoall, in == out ? MPI_IN_PLACE : in, parts.count(),
                 parts.type(), out, parts.count(), parts.type());
}

Request Comm::scatter(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                      size_t stride) const {
    const int count = int_count_per_rank(count_per_rank);
    const Parts parts(count, stride, type);
    const bool in_place = rank() == root && out == parts.of(root, in);
    return start("MPI_Scatter", MPI_Scatter, MPI_Iscatter, in, parts.count(), parts.type(),
                 in_place ? MPI_IN_PLACE : out, count, datatype(type), root);
}

Request Comm::gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                     size_t stride) const {
    const int count = int_count_per_rank(count_per_rank);
    const Parts parts(count, stride, type);
    const bool in_place = rank() == root && in == parts.of(root, out);
    return start("MPI_Gather", MPI_Gather, MPI_Igather, in_place ? MPI_IN_PLACE : in, count, datatype(type),
                 out, parts.count(), parts.type(), root);
}

Request Comm::barrier() const {
    Request request;
    check(MPI_Ibarrier(handle_, &request), "MPI_Ibarrier");
    return request;
}

Request Comm::send(const void* buffer, size_t count, ElementType type, int peer, bool synchronous) const {
    Request request;
    const auto start = synchronous ? MPI_Issend : MPI_Isend;
    check(start(buffer, int_count(count), datatype(type), peer, /*tag=*/0, handle_, &request), "MPI_Isend");
    return request;
}

Request Comm::receive(void* buffer, size_t count, ElementType type, int peer) const {
    Request request;
    check(MPI_Irecv(buffer, int_count(count), datatype(type), peer, /*tag=*/0, handle_, &request),
          "MPI_Irecv");
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
