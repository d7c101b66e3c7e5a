#include "parallel/expert_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "layout/slab.h"

namespace argosy::parallel {

using comm::Op;
using comm::OpKind;
using model::SlotExchange;

namespace {

constexpr const char* kExperts = "experts";

/// The order that sorts what arrives from rank after rank, sorted by expert, by expert and then by rank.
/// `counts` [ranks, experts here] are the slots from each rank for each expert.
at::Tensor order_by_expert(const at::Tensor& counts) {
    const at::Tensor flat = counts.flatten();
    const at::Tensor begins = (flat.cumsum(0) - flat).view_as(counts).t().flatten();  // by expert, then rank
    const at::Tensor sizes = counts.t().flatten(), ends = sizes.cumsum(0);
    const at::Tensor shift = at::repeat_interleave(begins - (ends - sizes), sizes);
    return (at::arange(shift.size(0), shift.options()) + shift).to(at::kInt);
}

class TravellingSlots : public model::ComingSlots {
  public:
    /// `order`: that of the rows, where it is not the order of their arrival.
    TravellingSlots(comm::Communicator& group, const std::vector<at::Tensor>& in,
                    const std::vector<int64_t>& sent, const std::vector<int64_t>& received, int64_t total,
                    at::Tensor order = {})
        : order_(std::move(order)) {
        const int64_t num_rows = std::accumulate(received.begin(), received.end(), int64_t{0});
        std::vector<Op> ops;
        for (const at::Tensor& rows : in) {
            std::vector<int64_t> shape = rows.sizes().vec();
            shape[0] = num_rows;
            rows_.push_back(at::empty(shape, rows.options()));
            const int64_t row_size = rows_.back().stride(0);
            const auto elements = [&](std::vector<int64_t> slots) {
                for (int64_t& each : slots) each *= row_size;
                return slots;
            };
            ops.push_back({.kind = OpKind::AllToAll,
                           .out = rows_.back(),
                           .in = rows.contiguous(),
                           .parts = {elements(sent), elements(received), total * row_size},
                           .purpose = {kExperts}});
        }
        pending_ = group.submit(ops);
    }

    std::vector<at::Tensor> take() override {
        pending_.wait();
        std::vector<at::Tensor> rows = std::exchange(rows_, {});
        if (!order_.defined()) return rows;
        for (at::Tensor& each : rows) each = ops::permute(each, order_, 1);
        return rows;
    }

  private:
    at::Tensor order_;
    std::vector<at::Tensor> rows_;
    comm::Pending pending_;
};

std::vector<int64_t> list_of(const at::Tensor& numbers) {
    const at::Tensor here = numbers.contiguous();
    const auto* data = here.const_data_ptr<int64_t>();
    return {data, data + here.numel()};
}

}  // namespace

std::unique_ptr<model::ExpertAxis> make_expert_axis(const model::ModelSpec& spec, comm::Mesh& mesh,
                                                    double planned_imbalance) {
    const layout::AxisSet axes = mesh.shape().expert_axes;
    if (!spec.experts || mesh.degree(axes) == 1) return std::make_unique<model::ExpertAxis>();
    comm::Communicator& group = mesh.group(axes, /*parts=*/1, comm::Mesh::kExperts);
    group.open_collectives(comm::Collectives::Others);
    return std::make_unique<ExpertParallelAxis>(group, planned_imbalance);
}

/// Without data, this rank's experts get the most slots: from each rank, this one too, as many. The other
/// ranks get equally many of the rest.
SlotExchange ExpertParallelAxis::planned(const ops::Routing& routing) const {
    const int64_t num_slots = routing.order.size(0), num_others = group_.size() - 1;
    const double share = static_cast<double>(num_slots) * planned_imbalance_ / group_.size();
    const int64_t here = std::min(num_slots, static_cast<int64_t>(std::ceil(share)));
    SlotExchange made{.total = num_slots * group_.size()};
    for (int other = 0; other < num_others; ++other)
        made.sent.push_back(layout::chunk(num_slots - here, num_others, other).size);
    made.sent.insert(made.sent.begin() + group_.rank(), here);
    made.received = std::vector<int64_t>(group_.size(), here);
    const int64_t num_rows = std::accumulate(made.received.begin(), made.received.end(), int64_t{0});
    made.order = at::empty({num_rows}, routing.order.options());
    made.counts = routing.counts.narrow(0, 0, routing.counts.size(0) / group_.size());
    return made;
}

SlotExchange ExpertParallelAxis::exchange(const ops::Routing& routing) const {
    const int64_t ranks = group_.size(), experts = routing.counts.size(0), experts_here = experts / ranks;
    const at::Tensor all = at::empty({ranks, experts}, routing.counts.options());
    group_.run({.kind = OpKind::AllGather, .out = all, .in = routing.counts, .purpose = {kExperts}});
    if (all.is_meta()) return planned(routing);
    // [from, to, experts there]; the host needs the numbers to start the messages
    const at::Tensor counts = all.cpu().view({ranks, ranks, experts_here});
    const at::Tensor here = counts.select(1, group_.rank()), slots = counts.sum(2);
    return {.sent = list_of(slots[group_.rank()]),
            .received = list_of(slots.select(1, group_.rank())),
            .total = slots.sum().item<int64_t>(),
            .order = order_by_expert(here).to(all.device()),
            .counts = here.sum(0).to(all.device())};
}

std::unique_ptr<model::ComingSlots> ExpertParallelAxis::start_dispatch(std::vector<at::Tensor> slots,
                                                                       const SlotExchange& exchange) const {
    return std::make_unique<TravellingSlots>(group_, slots, exchange.sent, exchange.received, exchange.total,
                                             exchange.order);
}

std::unique_ptr<model::ComingSlots> ExpertParallelAxis::start_combine(std::vector<at::Tensor> rows,
                                                                      const SlotExchange& exchange) const {
    for (at::Tensor& each : rows) each = ops::combine(each, exchange.order, 1);
    return std::make_unique<TravellingSlots>(group_, rows, exchange.received, exchange.sent, exchange.total);
}

}  // namespace argosy::parallel
