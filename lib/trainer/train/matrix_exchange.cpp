#include "train/matrix_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "ops/work.h"

namespace argosy::train {
namespace {

using layout::Axis;
using layout::AxisSet;

/// The axes whose ranks hold the parts of a replica of the model; with one tensor rank those of the shards,
/// which have a group already.
AxisSet axes_of_parts(const std::vector<const layout::ParamSpec*>& specs, const layout::MeshShape& mesh) {
    AxisSet axes = {Axis::Shard, Axis::Context};
    if (mesh.degree(Axis::Tensor) > 1) axes.add(Axis::Tensor);
    for (const layout::ParamSpec* spec : specs) {
        for (const layout::Cut& cut : spec->cuts) axes.add(cut.axes);
    }
    return axes;
}

/// The axes whose ranks hold the same parts: replicas, unless shards lie over them.
AxisSet axes_of_copies(const std::vector<const layout::ParamSpec*>& specs, const layout::MeshShape& mesh) {
    return axes_of_parts(specs, mesh).has(Axis::Replicate) ? AxisSet() : AxisSet(Axis::Replicate);
}

std::vector<const layout::ParamSpec*> specs_of(const std::vector<MatrixExchange::Matrix>& matrices) {
    std::vector<const layout::ParamSpec*> specs;
    for (const auto& matrix : matrices) specs.push_back(matrix.spec);
    return specs;
}

std::vector<layout::Coordinates> coordinates_of(const layout::MeshShape& shape,
                                                const std::vector<int>& ranks) {
    std::vector<layout::Coordinates> coordinates;
    for (const int rank : ranks) coordinates.push_back(shape.coordinates(rank));
    return coordinates;
}

/// The costliest matrices go to the rank with the last part of the sequence, of which plans are made.
int first_owner(const layout::MeshShape& mesh, AxisSet axes) {
    layout::Coordinates last{};
    last[static_cast<int>(Axis::Context)] = mesh.degree(Axis::Context) - 1;
    return mesh.index(last, axes);
}

/// Copies a part of a matrix to or from a buffer.
void copy(const at::Tensor& to, const at::Tensor& from) {
    ops::note_pass({from, to});
    to.copy_(from.view(to.sizes()));
}

int64_t sum_of(const std::vector<int64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

/// Divides with these matrices shared.
Division divide(std::span<const MatrixCost> costs, int num_ranks, int group_size, std::vector<bool> shared) {
    // 1. the costliest matrix that is left goes to the rank or group with the smallest sum; shared ones
    // first, so the ranks of a group have equal sums and equally many matrices until the last of these
    std::vector<size_t> order(costs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t matrix) {
        return std::pair(bool{shared[matrix]}, costs[matrix].alone);
    });
    std::vector<double> sums(num_ranks, 0);
    std::vector<std::vector<size_t>> of_rank(num_ranks);
    for (const size_t matrix : order) {
        const auto least = std::ranges::min_element(sums) - sums.begin();  // the first of its group
        for (auto rank = least; rank < least + (shared[matrix] ? group_size : 1); ++rank) {
            sums[rank] += shared[matrix] ? costs[matrix].shared : costs[matrix].alone;
            of_rank[rank].push_back(matrix);
        }
    }
    // 2. the group of the rank with the largest sum comes first, and that rank first in it
    const auto largest = std::ranges::max_element(sums) - sums.begin(), place = largest % group_size;
    std::ranges::rotate(of_rank, of_rank.begin() + largest - place);
    std::swap(of_rank[0], of_rank[place]);
    // 3. the wave w has the matrix w of each rank
    std::vector<Owned> waves(std::ranges::max(of_rank, {}, &std::vector<size_t>::size).size(),
                             Owned(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
        for (size_t wave = 0; wave < of_rank[rank].size(); ++wave) waves[wave][rank] = of_rank[rank][wave];
    }
    return {std::move(waves), std::move(shared), sums[largest]};
}

}  // namespace

Division divide_over_owners(std::span<const MatrixCost> costs, int num_ranks, int group_size) {
    std::set<double, std::greater<>> candidates;  // costs of matrices that sharing makes cheaper for a rank
    for (const MatrixCost& cost : costs) {
        if (cost.shared < cost.alone) candidates.insert(cost.alone);
    }
    std::vector<bool> shared(costs.size(), false);
    Division best = divide(costs, num_ranks, group_size, shared);
    for (const double candidate : candidates) {
        for (size_t i = 0; i < costs.size(); ++i)
            shared[i] = costs[i].shared < costs[i].alone && costs[i].alone >= candidate;
        Division division = divide(costs, num_ranks, group_size, shared);
        if (division.largest_sum < best.largest_sum) best = std::move(division);
    }
    return best;
}

void prefer_holders(Division& division, std::span<const MatrixCost> costs,
                    std::span<const std::vector<int>> holders) {
    // 1. places by the cost of what they hold, and matrices by that cost and their holders
    using Places = std::vector<std::pair<int, std::optional<size_t>*>>;  // with their ranks
    std::map<double, Places> places;
    std::map<std::pair<double, int>, std::deque<size_t>> of_holder;
    for (Owned& wave : division.waves) {
        for (int rank = 0; rank < std::ssize(wave); ++rank) {
            if (wave[rank] && !division.shared[*wave[rank]])
                places[costs[*wave[rank]].alone].emplace_back(rank, &wave[rank]);
        }
    }
    for (size_t matrix = 0; matrix < costs.size(); ++matrix) {
        for (const int rank : holders[matrix]) of_holder[{costs[matrix].alone, rank}].push_back(matrix);
    }
    // 2. a place gets a matrix that its rank holds, the last waves first, so that in the others all travel
    // together; the other places get the matrices that are left
    std::vector<bool> is_placed(costs.size(), false);
    for (auto& [cost, of_cost] : places) {
        std::vector<size_t> left;
        for (auto& [rank, place] : of_cost) left.push_back(**place);
        Places others;
        for (auto& [rank, place] : std::views::reverse(of_cost)) {
            std::deque<size_t>& held = of_holder[{cost, rank}];
            while (!held.empty() && is_placed[held.front()]) held.pop_front();
            if (held.empty()) {
                others.emplace_back(rank, place);
                continue;
            }
            is_placed[held.front()] = true;
            *place = held.front();
        }
        std::erase_if(left, [&](size_t matrix) { return is_placed[matrix]; });
        for (size_t i = 0; i < others.size(); ++i) *others[i].second = left[i];
    }
}

MatrixExchange::Groups MatrixExchange::open_groups(const std::vector<const layout::ParamSpec*>& specs,
                                                   comm::Mesh& mesh) {
    const Groups groups = {mesh.group(axes_of_parts(specs, mesh.shape())),
                           mesh.group(axes_of_copies(specs, mesh.shape()))};
    groups.parts.open_collectives(comm::Collectives::Others);
    groups.copies.open_collectives(comm::Collectives::Others);
    return groups;
}

MatrixExchange::MatrixExchange(const std::vector<Matrix>& matrices, at::ScalarType type, comm::Mesh& mesh)
    : matrices_(matrices),
      tensors_(at::TensorOptions(mesh.device()).dtype(type)),
      mesh_(mesh),
      groups_(open_groups(specs_of(matrices), mesh)) {
    const AxisSet axes = axes_of_parts(specs_of(matrices), mesh.shape());
    coordinates_ = coordinates_of(mesh.shape(), mesh.shape().group(mesh.world().rank(), axes));
    std::vector<MatrixCost> costs;
    for (const Matrix& matrix : matrices) costs.push_back(matrix.cost);
    // Ranks of a tensor group are neighbours in parts_, and stay so: the first owner is the first of a group.
    division_ = divide_over_owners(costs, parts_.size() * copies_.size(), mesh.shape().degree(Axis::Tensor));
    const int first = first_owner(mesh.shape(), axes);
    for (Owned& wave : division_.waves) std::ranges::rotate(wave, wave.end() - first);
    prefer_holders(division_, costs, holders());
}

/// The ranks of all replicas that hold a matrix whole.
std::vector<std::vector<int>> MatrixExchange::holders() const {
    std::vector<std::vector<int>> holders(matrices_.size());
    for (size_t first = 0; first < matrices_.size();) {
        const auto& [spec, matrix, cost] = matrices_[first];
        const size_t next = first + spec->shape[0] / matrix.size;  // of the next parameter
        for (int rank = 0; rank < parts_.size(); ++rank) {
            const layout::Slab held = layout::slab_of(*spec, mesh_.shape(), coordinates_[rank]);
            if (held.size[1] != spec->shape[1]) continue;
            const int64_t begin = held.offset[0], end = begin + held.size[0];
            for (int64_t i = (begin + matrix.size - 1) / matrix.size; i < end / matrix.size; ++i) {
                for (int replica = 0; replica < copies_.size(); ++replica)
                    holders[first + i].push_back(replica * parts_.size() + rank);
            }
        }
        first = next;
    }
    return holders;
}

void MatrixExchange::run(const Visitor& visitor) {
    if (division_.waves.empty()) return;
    const size_t last = division_.waves.size() - 1;
    Arriving next = gather(0, visitor), returned, spreading;
    for (size_t wave = 0; wave <= last; ++wave) {
        Arriving gathered = std::move(next);
        if (wave < last) next = gather(wave + 1, visitor);
        gathered.pending.wait();
        const at::Tensor result = compute(wave, gathered, visitor);
        if (wave > 1) apply(wave - 2, std::move(spreading), visitor);
        if (wave > 0) spreading = spread(wave - 1, std::move(returned));
        returned = give_back(wave, result);
    }
    if (last > 0) apply(last - 1, std::move(spreading), visitor);
    apply(last, spread(last, std::move(returned)), visitor);
}

/// Whether nothing travels in this replica, since each owner has the only copy of its whole matrix.
bool MatrixExchange::stays(size_t wave) const {
    for (int rank = 0; rank < parts_.size(); ++rank) {
        const auto matrix = owned(wave, copies_.rank(), rank);
        if (!matrix) continue;
        const bool is_whole = part_size(*matrix, rank) == extent(*matrix, rank).num_elements();
        if (!is_whole || num_copies_of_part(*matrix) > 1) return false;
    }
    return true;
}

/// Starts to send the parts of a wave's matrices to their owners.
MatrixExchange::Arriving MatrixExchange::gather(size_t wave, const Visitor& visitor) {
    if (stays(wave)) return {.tensors = {own(wave) ? visitor.part(*own(wave)).flatten() : empty(0)}};
    Outgoing outgoing(parts_.size());
    for (int rank = 0; rank < parts_.size(); ++rank) {
        if (own(wave) && is_source(*own(wave), rank, parts_.rank()))
            outgoing.received[rank] = part_size(*own(wave), rank);
        const auto matrix = owned(wave, copies_.rank(), rank);
        if (!matrix) continue;
        outgoing.total += extent(*matrix, rank).num_elements();
        if (is_source(*matrix, parts_.rank(), rank) && part_size(*matrix, parts_.rank()) > 0)
            outgoing.sent[rank] = visitor.part(*matrix);
    }
    return send(outgoing);
}

/// Returns the result of this rank's matrix or slice, if it owns one.
at::Tensor MatrixExchange::compute(size_t wave, const Arriving& gathered, const Visitor& visitor) {
    const auto matrix = own(wave);
    if (!matrix) return {};
    const at::Tensor whole = at::empty(extent(*matrix, parts_.rank()).size, tensors_);
    int64_t begin = 0;
    for (int rank = 0; rank < parts_.size(); ++rank) {
        if (!is_source(*matrix, rank, parts_.rank())) continue;
        const at::Tensor part = part_of(whole, *matrix, rank);
        copy(part, gathered.tensors[0].narrow(0, begin, part.numel()));
        begin += part.numel();
    }
    return visitor.compute(*matrix, whole);
}

/// Starts to send each rank of the replica its parts of the results.
MatrixExchange::Arriving MatrixExchange::give_back(size_t wave, const at::Tensor& result) {
    if (stays(wave)) return {.tensors = {result.defined() ? result.flatten() : empty(0)}};
    Outgoing outgoing(parts_.size());
    for (int rank = 0; rank < parts_.size(); ++rank) {
        if (result.defined() && is_within(*own(wave), rank, parts_.rank()))
            outgoing.sent[rank] = part_of(result, *own(wave), rank);
        if (const auto matrix = owned_in_part(wave, copies_.rank(), rank))
            outgoing.received[rank] = part_size(*matrix, parts_.rank());
        if (const auto matrix = owned(wave, copies_.rank(), rank))
            outgoing.total += extent(*matrix, rank).num_elements() * num_copies_of_part(*matrix);
    }
    return send(outgoing);
}

MatrixExchange::Arriving MatrixExchange::send(const Outgoing& outgoing) {
    comm::Parts sizes{.received = outgoing.received, .total = outgoing.total};
    for (const at::Tensor& part : outgoing.sent) sizes.sent.push_back(part.defined() ? part.numel() : 0);
    const at::Tensor in = empty(sum_of(sizes.sent)), out = empty(sum_of(sizes.received));
    for (int64_t begin = 0; const at::Tensor& part : outgoing.sent) {
        if (!part.defined()) continue;
        copy(in.narrow(0, begin, part.numel()).view(part.sizes()), part);
        begin += part.numel();
    }
    return {parts_.submit({.kind = comm::OpKind::AllToAll, .out = out, .in = in, .parts = std::move(sizes)}),
            {out}};
}

/// Starts to send the parts that came back in this replica to the others.
MatrixExchange::Arriving MatrixExchange::spread(size_t wave, Arriving returned) {
    if (copies_.size() == 1) return returned;
    returned.pending.wait();
    Arriving spread;
    std::vector<comm::Op> ops;
    for (int replica = 0; replica < copies_.size(); ++replica) {
        int64_t size = 0;
        for (int rank = 0; rank < parts_.size(); ++rank) {
            if (const auto matrix = owned_in_part(wave, replica, rank))
                size += part_size(*matrix, parts_.rank());
        }
        spread.tensors.push_back(replica == copies_.rank() ? returned.tensors[0] : empty(size));
        if (size == 0) continue;
        ops.push_back({.kind = comm::OpKind::Broadcast, .out = spread.tensors.back(), .peer = replica});
    }
    spread.pending = copies_.submit(ops);
    return spread;
}

void MatrixExchange::apply(size_t wave, Arriving spread, const Visitor& visitor) {
    spread.pending.wait();
    for (int replica = 0; replica < copies_.size(); ++replica) {
        int64_t begin = 0;
        for (int rank = 0; rank < parts_.size(); ++rank) {
            const auto matrix = owned_in_part(wave, replica, rank);
            if (!matrix) continue;
            const layout::Slab part = own_part(*matrix);
            const int64_t size = part.num_elements();
            if (size > 0)
                visitor.apply(*matrix, spread.tensors[replica].narrow(0, begin, size).view(part.size));
            begin += size;
        }
    }
}

std::optional<size_t> MatrixExchange::owned(size_t wave, int replica, int rank) const {
    return division_.waves[wave][replica * parts_.size() + rank];
}

std::optional<size_t> MatrixExchange::own(size_t wave) const {
    return owned(wave, copies_.rank(), parts_.rank());
}

std::optional<size_t> MatrixExchange::owned_in_part(size_t wave, int replica, int rank) const {
    const auto matrix = owned(wave, replica, rank);
    return matrix && is_within(*matrix, parts_.rank(), rank) ? matrix : std::nullopt;
}

layout::Slab MatrixExchange::extent(size_t matrix, int owner) const {
    return slab(matrix, owner, is_shared(matrix) ? 1 : 0);
}

layout::Slab MatrixExchange::slab(size_t matrix, int rank) const {
    constexpr int kAllCuts = -1;
    return slab(matrix, rank, kAllCuts);
}

/// The rows of the matrix in what the rank holds after the first cuts.
layout::Slab MatrixExchange::slab(size_t matrix, int rank, int num_cuts) const {
    const auto& [spec, rows, cost] = matrices_[matrix];
    layout::Slab slab = layout::slab_of(*spec, mesh_.shape(), coordinates_[rank], num_cuts);
    const int64_t end = std::clamp(slab.offset[0] + slab.size[0], rows.begin, rows.begin + rows.size);
    slab.offset[0] = std::clamp(slab.offset[0], rows.begin, end);
    slab.size[0] = end - slab.offset[0];
    return slab;
}

bool MatrixExchange::is_within(size_t matrix, int rank, int owner) const {
    constexpr int kTensor = static_cast<int>(Axis::Tensor);
    return !is_shared(matrix) || coordinates_[rank][kTensor] == coordinates_[owner][kTensor];
}

bool MatrixExchange::is_source(size_t matrix, int rank, int owner) const {
    const auto share = [&](int of) {
        return layout::share_of(*matrices_[matrix].spec, mesh_.shape(), coordinates_[of]).index;
    };
    return is_within(matrix, rank, owner) && share(rank) == share(owner);
}

at::Tensor MatrixExchange::part_of(const at::Tensor& whole, size_t matrix, int rank) const {
    const layout::Slab part = slab(matrix, rank), around = extent(matrix, parts_.rank());
    at::Tensor view = whole;
    for (int64_t dim = 0; dim < whole.dim(); ++dim)
        view = view.narrow(dim, part.offset[dim] - around.offset[dim], part.size[dim]);
    return view;
}

int MatrixExchange::num_copies_of_part(size_t matrix) const {
    return layout::share_of(*matrices_[matrix].spec, mesh_.shape(), coordinates_[0]).count / copies_.size();
}

at::Tensor MatrixExchange::empty(int64_t size) const { return at::empty({size}, tensors_); }

}  // namespace argosy::train
