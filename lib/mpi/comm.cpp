#include "mpi/comm.h"

#include <bit>
#include <climits>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "mpi/status.h"

namespace argosy::mpi {
namespace {

/// Two-byte numbers as memory holds them, and their values.
struct Float16 {
    static float value(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
    static uint16_t rounded(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
};

struct BFloat16 {
    static float value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
    static uint16_t rounded(float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);     // a quiet NaN stays one
        return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);  // to nearest, ties to even
    }
};

template <class Number, Reduction kReduction>
void reduce(void* in, void* inout, int* length, MPI_Datatype*) {
    const auto* from = static_cast<const uint16_t*>(in);
    auto* into = static_cast<uint16_t*>(inout);
    for (int i = 0; i < *length; ++i) {
        const float a = Number::value(from[i]), b = Number::value(into[i]);
        into[i] = Number::rounded(kReduction == Reduction::Sum ? a + b : (a > b ? a : b));
    }
}

/// MPI 3 has neither: a type of two bytes and its own reductions, made at first use and kept until the
/// process ends.
struct TwoByteType {
    MPI_Datatype type;
    MPI_Op sum, max;
};

template <class Number>
const TwoByteType& two_byte_type() {
    static const TwoByteType made = [] {
        TwoByteType own;
        check(MPI_Type_contiguous(2, MPI_BYTE, &own.type), "MPI_Type_contiguous");
        check(MPI_Type_commit(&own.type), "MPI_Type_commit");
        check(MPI_Op_create(reduce<Number, Reduction::Sum>, 1, &own.sum), "MPI_Op_create");
        check(MPI_Op_create(reduce<Number, Reduction::Max>, 1, &own.max), "MPI_Op_create");
        return own;
    }();
    return made;
}

MPI_Datatype datatype(Type type) {
    switch (type) {
        case Type::Byte:
            return MPI_BYTE;
        case Type::Int64:
            return MPI_INT64_T;
        case Type::Float32:
            return MPI_FLOAT;
        case Type::Float64:
            return MPI_DOUBLE;
        case Type::Float16:
            return two_byte_type<Float16>().type;
        case Type::BFloat16:
            return two_byte_type<BFloat16>().type;
    }
    return MPI_DATATYPE_NULL;
}

MPI_Op operation(Type type, Reduction reduction) {
    const bool sum = reduction == Reduction::Sum;
    if (type == Type::Float16 || type == Type::BFloat16) {
        const auto& own = type == Type::Float16 ? two_byte_type<Float16>() : two_byte_type<BFloat16>();
        return sum ? own.sum : own.max;
    }
    return sum ? MPI_SUM : MPI_MAX;
}

int int_count(size_t count) {
    ARGOSY_CHECK(count <= INT_MAX, "{} elements in one message; MPI 3 counts with int", count);
    return static_cast<int>(count);
}

/// Open MPI multiplies the count per rank by the ranks in an int, too.
int int_count_per_rank(size_t count, int num_ranks) {
    int_count(count * static_cast<size_t>(num_ranks));
    return static_cast<int>(count);
}

MPI_Comm duplicate(MPI_Comm handle) {
    MPI_Comm copy;
    check(MPI_Comm_dup(handle, &copy), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
}

}  // namespace

bool test_all(std::span<Request> requests) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall");
    return done != 0;
}

void make_progress() {
    int there = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

Comm Comm::world() { return Comm(duplicate(MPI_COMM_WORLD)); }
Comm Comm::self() { return Comm(duplicate(MPI_COMM_SELF)); }

Comm::Comm(Comm&& other) noexcept : handle_(std::exchange(other.handle_, MPI_COMM_NULL)) {}

Comm& Comm::operator=(Comm&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
}

// Communicators are few and live as long as the run. Freeing one is collective, which a rank that unwinds
// from an error cannot promise, so MPI_Finalize takes them all.
Comm::~Comm() = default;

int Comm::rank() const {
    int rank = 0;
    check(MPI_Comm_rank(handle_, &rank), "MPI_Comm_rank");
    return rank;
}

int Comm::size() const {
    int size = 0;
    check(MPI_Comm_size(handle_, &size), "MPI_Comm_size");
    return size;
}

bool Comm::within_one_node() const {
    MPI_Comm node;
    check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &node),
          "MPI_Comm_split_type");
    int ranks_here = 0;
    check(MPI_Comm_size(node, &ranks_here), "MPI_Comm_size");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    return ranks_here == size();
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

Request Comm::all_gather(void* out, const void* in, size_t count_per_rank, Type type) const {
    Request request;
    const int count = int_count_per_rank(count_per_rank, size());
    check(MPI_Iallgather(in, count, datatype(type), out, count, datatype(type), handle_, &request),
          "MPI_Iallgather");
    return request;
}

Request Comm::reduce_scatter(void* out, const void* in, size_t count_per_rank, Type type,
                             Reduction reduction) const {
    Request request;
    check(MPI_Ireduce_scatter_block(in, out, int_count_per_rank(count_per_rank, size()), datatype(type),
                                    operation(type, reduction), handle_, &request),
          "MPI_Ireduce_scatter_block");
    return request;
}

Request Comm::all_reduce(void* out, const void* in, size_t count, Type type, Reduction reduction) const {
    Request request;
    check(MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, int_count(count), datatype(type),
                         operation(type, reduction), handle_, &request),
          "MPI_Iallreduce");
    return request;
}

Request Comm::broadcast(void* buffer, size_t count, Type type, int root) const {
    Request request;
    check(MPI_Ibcast(buffer, int_count(count), datatype(type), root, handle_, &request), "MPI_Ibcast");
    return request;
}

Request Comm::barrier() const {
    Request request;
    check(MPI_Ibarrier(handle_, &request), "MPI_Ibarrier");
    return request;
}

Request Comm::send(const void* buffer, size_t count, Type type, int peer, bool synchronous) const {
    Request request;
    const auto start = synchronous ? MPI_Issend : MPI_Isend;
    check(start(buffer, int_count(count), datatype(type), peer, /*tag=*/0, handle_, &request), "MPI_Isend");
    return request;
}

Request Comm::receive(void* buffer, size_t count, Type type, int peer) const {
    Request request;
    check(MPI_Irecv(buffer, int_count(count), datatype(type), peer, /*tag=*/0, handle_, &request),
          "MPI_Irecv");
    return request;
}

}  // namespace argosy::mpi
