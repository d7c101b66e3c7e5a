#include "comm/transfer.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/units.h"

namespace argosy::comm {
namespace {

constexpr int64_t kCacheLineBytes = 64;  // blocks and chunks are whole cache lines

/// Above this size an all-reduce takes two steps: each rank sums up one piece, then the pieces are gathered.
/// Two steps read less if there are many ranks, but the second step needs every rank's attention.
constexpr int64_t kMaxBytesSummedByAll = 32 << 10;

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
const std::byte* constant_bytes_of(const at::Tensor& tensor) {
    return static_cast<const std::byte*>(tensor.const_data_ptr());
}

bool in_pieces(const Transfer& transfer) {
    return transfer.pattern == Pattern::AllGather || transfer.pattern == Pattern::ReduceScatter;
}

/// A range of the buffer, in bytes from its start.
struct ByteRange {
    int64_t begin, bytes;
};

/// Returns the range of `rank`'s piece, or of the whole buffer, that a round carries.
ByteRange range_of(const Transfer& transfer, int64_t round, int rank) {
    const int64_t start = in_pieces(transfer) ? rank * transfer.piece_bytes : 0;
    const int64_t end = in_pieces(transfer) ? std::min(start + transfer.piece_bytes, transfer.total_bytes)
                                            : transfer.total_bytes;
    const int64_t begin = start + (round - transfer.first_round) * transfer.chunk_bytes;
    return {begin, std::clamp(end - begin, int64_t{0}, transfer.chunk_bytes)};
}

void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void read_reduced(const Transfer& transfer, const ByteRange& own, const Party& party,
                  std::span<const std::byte* const> blocks, int64_t offset_in_block, std::byte* out) {
    std::vector<const std::byte*> sources(party.size);
    for (int rank = 0; rank < party.size; ++rank) {
        sources[rank] = rank == party.rank ? transfer.in + own.begin : blocks[rank] + offset_in_block;
    }
    reduce(out, sources, own.bytes, transfer.type, transfer.reduction);
}

uint64_t signature_of(const Transfer& transfer) {
    Fnv sum;
    sum.add(static_cast<int64_t>(transfer.pattern));
    sum.add(transfer.total_bytes);
    sum.add(transfer.piece_bytes);
    sum.add(static_cast<int64_t>(transfer.type));
    sum.add(static_cast<int64_t>(transfer.reduction));
    sum.add(transfer.root);
    return sum.hash();
}

/// Sets chunk_bytes such that all chunks of one round together fit into a block of the maximum size.
Transfer with_chunks(Transfer transfer, const Party& party) {
    const int64_t pieces = transfer.pattern == Pattern::ReduceScatter ? party.size : 1;
    const int64_t length = in_pieces(transfer) ? transfer.piece_bytes : transfer.total_bytes;
    const int64_t max_bytes = party.max_block_bytes / pieces / kCacheLineBytes * kCacheLineBytes;
    ARGOSY_CHECK(max_bytes > 0, "{} pieces in a block of {} bytes", pieces, party.max_block_bytes);
    transfer.chunk_bytes = std::min(max_bytes, round_up(length, kCacheLineBytes));
    return transfer;
}

/// Returns an all-reduce in one step or, if that reads less, in two: a reduce-scatter and an all-gather.
std::vector<Transfer> all_reduce(Transfer whole, const Party& party) {
    if (party.size == 2 || whole.total_bytes <= kMaxBytesSummedByAll) {
        whole.pattern = Pattern::AllReduce;
        return {whole};
    }
    whole.piece_bytes = round_up(divide_up(whole.total_bytes, party.size), kCacheLineBytes);
    std::byte* const own_piece = whole.out + std::min(party.rank * whole.piece_bytes, whole.total_bytes);
    Transfer sum = whole, gather = whole;
    sum.pattern = Pattern::ReduceScatter;
    sum.out = own_piece;
    gather.pattern = Pattern::AllGather;
    gather.in = own_piece;
    gather.needs_previous = true;
    return {sum, gather};
}

std::vector<Transfer> without_chunks(const Op& op, const Party& party) {
    ARGOSY_CHECK(!is_reduction(op) || can_reduce(op.out.scalar_type()), "{} of elements of type {}",
                 kind_name(op.kind), toString(op.out.scalar_type()));
    Transfer transfer{.out = bytes_of(op.out), .type = op.out.scalar_type(), .reduction = op.reduction};
    if (op.in.defined()) transfer.in = constant_bytes_of(op.in);
    const auto out_bytes = static_cast<int64_t>(op.out.nbytes());
    transfer.total_bytes = out_bytes;
    switch (op.kind) {
        case OpKind::AllGather:
            transfer.pattern = Pattern::AllGather;
            transfer.piece_bytes = out_bytes / party.size;
            return {transfer};
        case OpKind::ReduceScatter:
            transfer.pattern = Pattern::ReduceScatter;
            transfer.piece_bytes = out_bytes;
            transfer.total_bytes = out_bytes * party.size;
            return {transfer};
        case OpKind::AllReduce:
            return all_reduce(transfer, party);
        case OpKind::Broadcast:
            transfer.pattern = Pattern::Broadcast;
            transfer.in = transfer.out;
            transfer.root = op.peer;
            return {transfer};
        default:
            throw RunError("internal error: not a collective");
    }
}

constexpr int64_t kTileElements = 1024;  // their sums stay in the L1 cache

/// `count` is a compile-time constant for all tiles but the last, because the compiler vectorizes only then.
template <class Element, Reduction kReduction, class Count>
void reduce_tile(Element* out, std::span<const std::byte* const> sources, int64_t begin, Count count) {
    using Sum = std::conditional_t<sizeof(Element) == 2, float, Element>;
    const auto elements = [&](size_t i) { return reinterpret_cast<const Element*>(sources[i]) + begin; };
    Sum sums[kTileElements];
    const Element* first = elements(0);
    for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (size_t source = 1; source < sources.size(); ++source) {
        const Element* more = elements(source);
        for (int64_t i = 0; i < count; ++i) {
            const Sum value = static_cast<Sum>(more[i]);
            sums[i] = kReduction == Reduction::Sum ? sums[i] + value : (value > sums[i] ? value : sums[i]);
        }
    }
    for (int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<Element>(sums[i]);
}

template <class Element, Reduction kReduction>
void reduce_elements(std::byte* to, std::span<const std::byte* const> sources, int64_t bytes) {
    auto* const out = reinterpret_cast<Element*>(to);
    const int64_t count = bytes / static_cast<int64_t>(sizeof(Element));
    int64_t begin = 0;
    for (; begin + kTileElements <= count; begin += kTileElements) {
        reduce_tile<Element, kReduction>(out, sources, begin,
                                         std::integral_constant<int64_t, kTileElements>());
    }
    reduce_tile<Element, kReduction>(out, sources, begin, count - begin);
}

using Kernel = void (*)(std::byte*, std::span<const std::byte* const>, int64_t);

struct Kernels {
    at::ScalarType type;
    Kernel sum, max;
};

template <class Element>
constexpr Kernels kernels(at::ScalarType type) {
    return {type, reduce_elements<Element, Reduction::Sum>, reduce_elements<Element, Reduction::Max>};
}

constexpr Kernels kKernels[] = {
    kernels<float>(at::kFloat),    kernels<double>(at::kDouble),
    kernels<int64_t>(at::kLong),   kernels<c10::BFloat16>(at::kBFloat16),
};

const Kernels* find(at::ScalarType type) {
    const auto* found = std::find_if(std::begin(kKernels), std::end(kKernels),
                                     [&](const Kernels& k) { return k.type == type; });
    return found == std::end(kKernels) ? nullptr : found;
}

}  // namespace

int64_t Transfer::num_rounds() const {
    const int64_t length = in_pieces(*this) ? piece_bytes : total_bytes;
    return length == 0 ? 0 : divide_up(length, chunk_bytes);
}

std::vector<Transfer> transfers(const Op& op, const Party& party) {
    std::vector<Transfer> made = without_chunks(op, party);
    for (Transfer& transfer : made) {
        transfer = with_chunks(transfer, party);
        transfer.signature = signature_of(transfer);
    }
    return made;
}

int64_t block_bytes(const Transfer& transfer, const Party& party) {
    if (!publishes(transfer, party.rank)) return 0;
    const int num_pieces = transfer.pattern == Pattern::ReduceScatter ? party.size : 1;
    return num_pieces * transfer.chunk_bytes;
}

bool publishes(const Transfer& transfer, int rank) {
    return transfer.pattern != Pattern::Broadcast || transfer.root == rank;
}

void write_block(const Transfer& transfer, int64_t round, const Party& party, std::byte* block) {
    if (!publishes(transfer, party.rank)) return;
    if (transfer.pattern == Pattern::ReduceScatter) {
        for (int rank = 0; rank < party.size; ++rank) {
            const ByteRange part = range_of(transfer, round, rank);
            if (rank != party.rank)
                copy(block + rank * transfer.chunk_bytes, transfer.in + part.begin, part.bytes);
        }
        return;
    }
    const ByteRange own = range_of(transfer, round, party.rank);
    // The input of a gather is only this rank's piece.
    const int64_t start = transfer.pattern == Pattern::AllGather ? party.rank * transfer.piece_bytes : 0;
    copy(block, transfer.in + own.begin - start, own.bytes);
}

void read_blocks(const Transfer& transfer, int64_t round, const Party& party,
                 std::span<const std::byte* const> blocks) {
    const ByteRange own = range_of(transfer, round, party.rank);
    const int64_t own_start = party.rank * transfer.piece_bytes;
    switch (transfer.pattern) {
        case Pattern::AllGather:
            for (int rank = 0; rank < party.size; ++rank) {
                const ByteRange part = range_of(transfer, round, rank);
                const bool mine = rank == party.rank;
                copy(transfer.out + part.begin, mine ? transfer.in + own.begin - own_start : blocks[rank],
                     part.bytes);
            }
            return;
        case Pattern::ReduceScatter:
            return read_reduced(transfer, own, party, blocks, party.rank * transfer.chunk_bytes,
                                transfer.out + own.begin - own_start);
        case Pattern::AllReduce:
            return read_reduced(transfer, own, party, blocks, 0, transfer.out + own.begin);
        case Pattern::Broadcast:
            if (party.rank != transfer.root) copy(transfer.out + own.begin, blocks[transfer.root], own.bytes);
            return;
    }
}

bool can_reduce(at::ScalarType type) { return find(type) != nullptr; }

void reduce(std::byte* out, std::span<const std::byte* const> sources, int64_t bytes, at::ScalarType type,
            Reduction reduction) {
    const Kernels* kernels_of_type = find(type);
    ARGOSY_CHECK(kernels_of_type, "a reduction of elements of type {}", toString(type));
    const Kernel kernel = reduction == Reduction::Sum ? kernels_of_type->sum : kernels_of_type->max;
    kernel(out, sources, bytes);
}

}  // namespace argosy::comm
