#include <cstring>
#include <memory>
#include <vector>

#include "support/fake_gpus.h"
#include "support/fake_nccl.h"

using namespace argosy;  // C functions have no namespace of their own
using namespace argosy::testing;

namespace {

/// Input and output of a reduction in private memory of the fake: MPI has other rules for in-place buffers.
struct Reduced {
    std::vector<std::byte> in, out;

    Reduced(const void* from, size_t count_in, size_t count_out, ncclDataType_t type)
        : in(bytes_of(type, count_in)), out(bytes_of(type, count_out)) {
        if (!in.empty()) std::memcpy(in.data(), from, in.size());
    }

    void give(void* to) const {
        if (!out.empty()) std::memcpy(to, out.data(), out.size());
    }
};

template <class Start>
ncclResult_t reduce(const void* in, void* out, size_t count_in, size_t count_out, ncclDataType_t type,
                    ncclComm_t comm, cudaStream_t stream, Start start) {
    if (!is_on_device(in, bytes_of(type, count_in))) return ncclInvalidArgument;
    if (!is_on_device(out, bytes_of(type, count_out))) return ncclInvalidArgument;
    const auto data = std::make_shared<std::unique_ptr<Reduced>>();
    return submit(
        comm, stream,
        [=] {
            *data = std::make_unique<Reduced>(in, count_in, count_out, type);
            MPI_Request request;
            start(**data, &request);
            return request;
        },
        [=] { (*data)->give(out); });
}

}  // namespace

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return reduce(in, out, count, count, type, comm, stream, [=](Reduced& data, MPI_Request* request) {
        MPI_Iallreduce(data.in.data(), data.out.data(), static_cast<int>(count), datatype(type),
                       operation(type, op), comm->ranks, request);
    });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    if (!is_alive(comm)) return ncclInvalidArgument;
    // In place the result has one valid position, and no other buffer may overlap the input.
    const size_t bytes = bytes_of(type, count);
    const auto* const begin = static_cast<const std::byte*>(in);
    const auto* const result = static_cast<const std::byte*>(out);
    const bool apart = result + bytes <= begin || result >= begin + bytes * comm->size;
    if (!apart && result != begin + bytes * comm->rank) return ncclInvalidArgument;
    if (comm->is_registered(in) && comm->is_registered(out)) ++fake_gpus().num_registered_reductions;
    return reduce(in, out, count * comm->size, count, type, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Ireduce_scatter_block(data.in.data(), data.out.data(), static_cast<int>(count),
                                                datatype(type), operation(type, op), comm->ranks, request);
                  });
}
