#include "parallel/executor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "base/error.h"
#include "gpu/device.h"
#include "ops/cross_entropy.h"
#include "ops/numerics.h"
#include "ops/ops_context.h"

// The idea: a step is a fixed list of operations (UnitOp), so the executor needs one switch and no decisions.
// The list is cut into parts (recorded_run.h): one for each microbatch where the microbatches are
// independent, else a single part. A part either runs operation by operation (run_ops) or, on a GPU, as one
// recorded graph (run_graph).
//
// Invariants:
// 1. Every rank runs its own list in order.
// 2. Gather, Reduce, Sum, Send and Receive return at once. The operation that needs the result waits for it:
//    FinishReduce, FinishSum, ShardedUnit::weights(), TakeActivation, TakeGradient, or AddTable.
// 3. A channel (transfers.h) holds one message. A Send therefore waits first until the message before has
//    ended.
// 4. The slot gets a message at the Take.
//
// Shapes: rows = num_sequences * seq_len / tensor parallel degree, rounded up; activations between layers
// [rows, dim].
namespace argosy::parallel {

using comm::OpKind;

Executor::Executor(ParallelModel& model, comm::Mesh& mesh, const Program& program,
                   const ExecutorOptions& options)
    : model_(model),
      world_(mesh.world()),
      activations_(mesh.group(layout::Axis::Pipeline)),
      gradients_(gradient_group(mesh, model.stage_map())),
      tensor_degree_(mesh.degree(layout::Axis::Tensor)),
      parts_(parts_of(program)),
      recompute_(program.recompute),
      forward_only_(program.forward_only),
      options_(options),
      recorded_(parts_.size()),
      slots_(program.num_slots) {
    if (options.records != nullptr) repeated_.emplace(*options.records);
    activations_.open_channels();
    if (&gradients_ != &activations_) gradients_.open_channels();
}

Stage& Executor::stage_of(const UnitOp& op) {
    return model_.stages()[model_.stage_map().local_index(op.stage)];
}

ShardedSet& Executor::set_of(const UnitOp& op) { return stage_of(op).units[op.unit].sets()[op.set]; }

Slot& Executor::slot_of(const UnitOp& op) {
    Slot& slot = slots_[op.slot];
    slot.tapes.resize(stage_of(op).layers.size());
    slot.weight_work.resize(stage_of(op).layers.size());
    return slot;
}

at::Tensor Executor::run(std::span<const model::Batch> microbatches, double loss_weight, int64_t update) {
    // 1. make the weight a scalar tensor [], so that a recorded graph can read a new value in each step
    const auto type = ops::accumulation_type(model_.precision().compute);
    const at::Tensor weight = at::full({}, loss_weight, at::TensorOptions(model_.device()).dtype(type));
    // 2. use graphs from the second run on: the first run connects ranks, and chooses algorithms, which a
    //    graph cannot record
    const bool has_run = std::exchange(has_run_, true);
    const bool graphs = options_.graphs && has_run && gpu::holds(weight);
    // 3. run each part over its own microbatches and add up the losses
    at::Tensor sum = at::zeros({}, at::TensorOptions(model_.device()).dtype(at::kDouble));
    for (const ProgramPart& part : parts_) {
        const auto own = microbatches.subspan(part.first_microbatch, part.num_microbatches);
        model_.start_roundings(update, part.first_microbatch);
        sum.add_(graphs ? run_graph(part, own, weight) : run_ops(part, own, weight));
    }
    return sum;
}

at::Tensor Executor::run_graph(const ProgramPart& part, std::span<const model::Batch> microbatches,
                               const at::Tensor& loss_weight) {
    // 1. record the part, unless a recording for microbatches of this size exists
    std::unique_ptr<RecordedRun>& recorded = recorded_[part.recording];
    if (!recorded || !recorded->fits(microbatches)) {
        if (recorded) {
            // All recordings share their memory, so all are dropped before a new one is made. Every recording
            // runs in every step, so the first part of a step detects a change of the batch size.
            for (auto& each : recorded_) each.reset();
        }
        const auto run = [this, &part](auto batches, const at::Tensor& weight) {
            return run_ops(part, batches, weight);
        };
        recorded = std::make_unique<RecordedRun>(microbatches, loss_weight, run, recorded_.front().get());
    }
    // 2. launch the graph; the watchdog watches its collectives as it does outside of a graph
    at::Tensor loss;
    world_.launch_graph("forward and backward", [&] {
        loss = recorded->replay(microbatches, loss_weight);
        return recorded->number();
    });
    if (options_.launch_observer) options_.launch_observer(recorded->number());
    // 3. mark the gradients as present: a replay runs no host code that would do so
    for (const auto& parameter : model_.parameters()) parameter->gradient().empty = false;
    return loss;
}

at::Tensor Executor::run_ops(const ProgramPart& part, std::span<const model::Batch> microbatches,
                             const at::Tensor& loss_weight) {
    // 1. set the state that the operations read
    microbatches_ = microbatches;
    loss_weight_ = loss_weight;
    loss_sum_ = at::zeros({}, at::TensorOptions(model_.device()).dtype(at::kDouble));
    // 2. run the operations; current_op_ is for messages, so its microbatch is counted over the step
    for (const UnitOp& op : part.ops) {
        current_op_ = op;
        if (op.microbatch >= 0) current_op_->microbatch += part.first_microbatch;
        if (options_.observer) options_.observer(&*current_op_);
        run_op(op);
    }
    current_op_.reset();
    // 3. wait for the last messages, which still read activations or gradients
    for (auto& [channel, pending] : sending_) pending.wait();
    if (options_.observer) options_.observer(nullptr);
    return std::exchange(loss_sum_, {});
}

void Executor::run_op(const UnitOp& op) {
    Stage& stage = stage_of(op);
    switch (op.kind) {
        case UnitOpKind::Gather:
            return set_of(op).gather();
        case UnitOpKind::Release:
            return set_of(op).release();
        case UnitOpKind::Forward:
        case UnitOpKind::Loss:
        case UnitOpKind::LossInput:
        case UnitOpKind::Recompute:
        case UnitOpKind::BackwardInput:
        case UnitOpKind::BackwardWeight:
            return run_layer_op(op, stage, slot_of(op));
        case UnitOpKind::ForwardLoss:
            return forward_loss(op, stage, slot_of(op));
        case UnitOpKind::Reduce:
            return set_of(op).reduce();
        case UnitOpKind::FinishReduce:
            return set_of(op).finish_reduce();
        case UnitOpKind::Sum:
            return set_of(op).sum();
        case UnitOpKind::FinishSum:
            return set_of(op).finish_sum();
        case UnitOpKind::SendTable:
            return set_of(op).send_table(activations_);
        case UnitOpKind::ReceiveTable:
            return set_of(op).receive_table(activations_);
        case UnitOpKind::AddTable:
            return set_of(op).add_table();
        case UnitOpKind::SendActivation:
            return send(activations_, slot_of(op).stream, op.stage + 1);
        case UnitOpKind::SendGradient:
            return send(gradients_, slot_of(op).gradient, op.stage - 1);
        case UnitOpKind::ReceiveActivation:
            return receive(op, activations_, op.stage - 1);
        case UnitOpKind::ReceiveGradient:
            return receive(op, gradients_, op.stage + 1);
        case UnitOpKind::TakeActivation:
            return take(op, activations_, slot_of(op).stream);
        case UnitOpKind::TakeGradient:
            return take(op, gradients_, slot_of(op).gradient);
        case UnitOpKind::MoveActivation:
            slot_of(op).stream = std::exchange(slots_[op.source_slot].stream, {});
            return;
        case UnitOpKind::MoveGradient:
            slot_of(op).gradient = std::exchange(slots_[op.source_slot].gradient, {});
            return;
    }
}

void Executor::run_layer_op(const UnitOp& op, Stage& stage, Slot& slot) {
    ShardedUnit& unit = stage.units[op.unit];
    const LayerOp layer_op = {
        .kind = op.kind,
        .stage = stage,
        .unit = op.unit,
        .gradients = makes_gradients(op.kind) ? &unit.gradients(op.microbatch) : nullptr,
        .weights = op.kind == UnitOpKind::BackwardWeight ? nullptr : &unit.weights(),
        .batch = microbatches_[op.microbatch],
        .recompute = recompute_,
        .loss_weight = loss_weight_};
    if (repeated_) return repeated_->run(layer_op, slot);
    const at::Tensor sum = parallel::run(layer_op, slot);
    if (sum.defined()) loss_sum_.add_(sum);
    if (forward_only_) slot.tapes[op.unit] = {};
}

void Executor::forward_loss(const UnitOp& op, Stage& stage, Slot& slot) {
    // stream [rows, dim] -> sum of losses []
    const model::Batch& batch = microbatches_[op.microbatch];
    const ops::SoftmaxSums sums =
        stage.head->softmax_sums(stage.units[op.unit].weights(), std::exchange(slot.stream, {}), batch);
    if (options_.take_softmax_sums) return options_.take_softmax_sums(current_op_->microbatch, sums);
    loss_sum_.add_(ops::cross_entropy_sum(sums, model::head_targets(batch)));
}

void Executor::send(comm::Communicator& group, at::Tensor& x, int to_stage) {
    // 1. wait for the end of the message before: the channel holds one message
    const int peer = model_.stage_map().rank_of(to_stage);
    comm::Pending& channel = sending_[{&group == &gradients_, peer}];
    channel.wait();
    // 2. start the send and return; the tensor moves from the slot to the channel
    channel = group.submit({.kind = OpKind::Send, .in = std::exchange(x, {}).contiguous(), .peer = peer});
}

void Executor::receive(const UnitOp& op, comm::Communicator& group, int from_stage) {
    Incoming& incoming = incoming_[{&group, op.stage, op.microbatch}];
    ARGOSY_CHECK(!incoming.x.defined(), "{} is under way", describe(op));
    // 1. allocate x [rows, dim]
    const model::Batch& batch = microbatches_[op.microbatch];
    const int64_t rows = layout::chunk(batch.tokens.numel(), tensor_degree_, 0).size;
    incoming.x = at::empty({rows, model_.spec().dim},
                           at::TensorOptions(model_.device()).dtype(model_.precision().compute));
    // 2. start the receive and return
    incoming.pending = group.submit(
        {.kind = OpKind::Receive, .out = incoming.x, .peer = model_.stage_map().rank_of(from_stage)});
}

void Executor::take(const UnitOp& op, comm::Communicator& group, at::Tensor& x) {
    auto incoming = incoming_.extract({&group, op.stage, op.microbatch});
    ARGOSY_CHECK(!incoming.empty(), "{} without a receive", describe(op));
    incoming.mapped().pending.wait();
    x = std::move(incoming.mapped().x);
}

}  // namespace argosy::parallel
