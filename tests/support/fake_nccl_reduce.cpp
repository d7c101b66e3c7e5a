#include <cstring>
#include <memory>
#include <vector>

#include "support/fake_gpus.h"
#include "support/fake_nccl.h"

using namespace argosy;  // C functions have no namespace of their own
using namespace argosy::testing;

namespace {

/// Input and output of a reduction in private memory of the fake: MPI has other rules for in-place buffers,
/// and an average changes the input first, or the output last.
struct Reduced {
    std::vector<std::byte> in, out;

    Reduced(const void* from, size_t count_in, size_t count_out, ncclDataType_t type, ncclRedOp_t op,
            int size)
        : in(bytes_of(type, count_in)), out(bytes_of(type, count_out)) {
        if (!in.empty()) std::memcpy(in.data(), from, in.size());
        const ElementType element = element_of(type);
        if (op != ncclAvg || !is_floating(element)) return;
        const size_t width = bytes_of(type, 1);
        const uint64_t share_bits = bench::bits_of(1.0 / size, element);
        const double share = bench::value_of(reinterpret_cast<const std::byte*>(&share_bits), element);
        for (size_t at = 0; at < in.size(); at += width) {
            const uint64_t scaled = bench::bits_of(bench::value_of(&in[at], element) * share, element);
            std::memcpy(&in[at], &scaled, width);
        }
    }

    void give(void* to, ncclDataType_t type, ncclRedOp_t op, int size) {
        const ElementType element = element_of(type);
        if (op == ncclAvg && !is_floating(element)) bench::divide(out, element, size);
        if (!out.empty()) std::memcpy(to, out.data(), out.size());
    }
};

template <class Start>
ncclResult_t reduce(const void* in, void* out, size_t count_in, size_t count_out, ncclDataType_t type,
                    ncclRedOp_t op, bool has_result, ncclComm_t comm, cudaStream_t stream, Start start) {
    if (!is_on_device(in, bytes_of(type, count_in))) return ncclInvalidArgument;
    if (has_result && !is_on_device(out, bytes_of(type, count_out))) return ncclInvalidArgument;
    const auto data = std::make_shared<std::unique_ptr<Reduced>>();
    return submit(
        comm, stream,
        [=] {
            *data = std::make_unique<Reduced>(in, count_in, count_out, type, op, comm->size);
            MPI_Request request;
            start(**data, &request);
            return request;
        },
        [=] {
            if (has_result) (*data)->give(out, type, op, comm->size);
        });
}

}  // namespace

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return reduce(in, out, count, count, type, op, true, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
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
    return reduce(in, out, count * comm->size, count, type, op, true, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Ireduce_scatter_block(data.in.data(), data.out.data(), static_cast<int>(count),
                                                datatype(type), operation(type, op), comm->ranks, request);
                  });
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    if (!is_alive(comm)) return ncclInvalidArgument;
    return reduce(in, out, count, count, type, op, comm->rank == root, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Ireduce(data.in.data(), data.out.data(), static_cast<int>(count), datatype(type),
                                  operation(type, op), root, comm->ranks, request);
                  });
}
