#include "plan/rank_trace.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "ops/planned_gpu.h"
#include "parallel/repeated_ops.h"
#include "setup/profiler.h"
#include "train/dry_step.h"

namespace argosy::plan {
namespace {

int64_t num_bytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

/// The bytes that a rank publishes in a collective through shared memory (comm/transfer.h).
int64_t published_bytes(const comm::RecordedOp& op) {
    if (op.size == 1) return 0;
    switch (op.kind) {
        case comm::OpKind::AllGather:
            return op.num_bytes() / op.size;
        case comm::OpKind::ReduceScatter:
            return op.num_bytes();
        case comm::OpKind::AllReduce:
            return op.size == 2 ? op.num_bytes() : op.num_bytes() + op.num_bytes() / op.size;
        case comm::OpKind::Broadcast:
            return op.rank == op.peer ? op.num_bytes() : 0;
        default:
            return 0;
    }
}

/// The used parts of the rings in which a rank publishes (comm/exchange.h), if all are on one node.
class SharedMemory {
  public:
    explicit SharedMemory(int64_t ring_bytes) : ring_bytes_(ring_bytes) {}
    void launched(int64_t number, const comm::Communicator& group, int64_t bytes) {
        Ring& ring = rings_[&group];
        ring.group_size = group.size();
        ring.in_flight += bytes;
        ring.most = std::max(ring.most, ring.in_flight);
        launches_[number] = {&ring, bytes};
    }
    void ended(int64_t number) {
        const auto [ring, bytes] = launches_.extract(number).mapped();
        ring->in_flight -= bytes;
    }
    /// The most bytes in flight in each group. A rank that is ahead of its peers needs up to twice as much.
    int64_t bytes() const {
        return sum([](const Ring&) { return 1; });
    }
    /// The rings of all ranks of the groups, which this rank reads.
    int64_t mapped_bytes() const {
        return sum([](const Ring& ring) { return ring.group_size; });
    }

  private:
    struct Ring {
        int64_t in_flight = 0, most = 0;
        int group_size = 1;
    };
    template <class NumRings>
    int64_t sum(NumRings num_rings) const {
        int64_t sum = 0;
        for (const auto& [group, ring] : rings_) sum += num_rings(ring) * std::min(ring.most, ring_bytes_);
        return sum;
    }
    int64_t ring_bytes_;
    std::map<const comm::Communicator*, Ring> rings_;
    std::map<int64_t, std::pair<Ring*, int64_t>> launches_;  // under way, by number, with their bytes
};

/// Bytes of a thread's tensors without data (LibTorch's device meta), which are those of the real tensors.
/// REQUIRES: the thread that makes a tensor frees it.
struct DryMemory {
    int64_t current_bytes = 0, peak_bytes = 0;
};

/// A block has no data: its context alone, which is its size.
class MetaAllocator final : public c10::Allocator {
  public:
    /// Replaces LibTorch's allocator of the device meta, for the rest of the process. Earlier tensors are not
    /// counted. Returns the memory of the calling thread.
    static DryMemory& install() {
        static std::once_flag once;
        std::call_once(once, [] {
            c10::SetAllocator(c10::DeviceType::Meta, new MetaAllocator, std::numeric_limits<uint8_t>::max());
        });
        return memory();
    }

    c10::DataPtr allocate(size_t num_bytes) override {
        DryMemory& own = memory();
        own.current_bytes += static_cast<int64_t>(num_bytes);
        own.peak_bytes = std::max(own.peak_bytes, own.current_bytes);
        return {nullptr, new Block{own, num_bytes}, &free, c10::DeviceType::Meta};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free; }
    void copy_data(void*, const void*, size_t) const override {}

  private:
    struct Block {
        DryMemory& memory;
        size_t num_bytes;
    };

    static DryMemory& memory() {
        // Never deleted, because tensors may outlive everything else.
        thread_local DryMemory* const of_thread = new DryMemory;
        return *of_thread;
    }

    static void free(void* context) {
        auto* const block = static_cast<Block*>(context);
        if (block == nullptr) return;
        block->memory.current_bytes -= static_cast<int64_t>(block->num_bytes);
        delete block;
    }
};

// Notes of the program, with the times that the machine needs.
struct WorkNote {
    ops::WorkKind kind;
    double seconds, flops, score_bytes;
};
struct LaunchNote {
    int64_t number;  // of the launch
    const comm::Communicator* group;
    int64_t published_bytes;
    Launch launch;
};
struct WaitNote {
    int64_t number;
};
using Note = std::variant<WorkNote, LaunchNote, WaitNote>;

class Tracer : private parallel::WorkRecords {
  public:
    Tracer(train::TrainerOptions options, const layout::MeshShape& shape, int rank, const Machine& machine,
           Repeats repeats)
        : options_(std::move(options)), shape_(shape), machine_(machine) {
        trace_.rank = rank;
        if (repeats == Repeats::FromRecords) options_.executor.records = this;
        options_.executor.observer = [this](const parallel::UnitOp* op) {
            pass_ = observe::name_of(op ? setup::kind_of(op->kind) : observe::ComputeKind::Other);
            if (op) enter(parallel::describe(*op));
        };
    }

    RankTrace run() {
        const ops::PlannedGpu gpu(machine_.capability);
        comm::Recording recording({.launched = [this](const auto& launch) { take(note_of(launch)); },
                                   .waited = [this](int64_t number) { take(WaitNote{number}); }});
        if (machine_.peer_copies)
            recording.copies_along_ring = [this](const std::vector<int>& ranks) {
                return machine_.num_nodes(ranks) == 1;
            };
        const ops::WorkObserver work([this](const ops::Work& each) {
            take(WorkNote{each.kind, machine_.seconds(each), each.flops, each.score_bytes});
        });
        before_bytes_ = memory_.peak_bytes = memory_.current_bytes;
        train::DryRank dry(options_, shape_, trace_.rank, recording);
        dry_ = &dry;
        enter("the first step");
        train::Step& step = dry.trainer().step();
        const train::StepBatch batch = dry.batch();
        const train::StepTotals totals = step.forward_backward(batch);
        enter("the optimizer's update");
        is_optimizer_ = true;
        step.update(totals, /*lr=*/1e-3);
        enter("");
        dry_ = nullptr;
        trace_.num_records = std::ssize(records_);
        trace_.connections = recording.connections();
        trace_.connection_bytes = machine_.bytes_of(trace_.connections);
        trace_.peer_bytes = recording.peer_bytes;
        trace_.shared_bytes = shared_.bytes();
        trace_.mapped_shared_bytes = shared_.mapped_bytes();
        return std::move(trace_);
    }

  private:
    /// The phase before ends. If the memory was largest in it, its held bytes are those of now.
    void enter(std::string phase) {
        const int64_t peak = memory_.peak_bytes - before_bytes_;
        if (peak > trace_.peak.bytes && dry_) {
            train::Trainer& trainer = dry_->trainer();
            trace_.peak = {peak, held_bytes(trainer), phase_};
        }
        phase_ = std::move(phase);
        new_event_ = true;
    }

    // The operations of layers (parallel/repeated_ops.h).
    void run_aside(Work work) override {
        const DryMemory before = memory_;
        const bool was_aside = std::exchange(is_aside_, true);
        work();
        is_aside_ = was_aside;
        memory_ = before;
    }

    int record(Work work) override {
        const int64_t before = memory_.peak_bytes = memory_.current_bytes;
        Record& made = records_.emplace_back();
        noting_ = &made;
        work();
        noting_ = nullptr;
        made.bytes = memory_.current_bytes - before;
        made.peak_bytes = memory_.peak_bytes - before;
        return static_cast<int>(std::ssize(records_)) - 1;
    }

    void repeat(int number, Work replace) override {
        const Record& record = records_[number];
        const DryMemory before = memory_;
        replace();
        memory_ = {before.current_bytes + record.bytes,
                   std::max(before.peak_bytes, before.current_bytes + record.peak_bytes)};
        for (const Note& note : record.notes) std::visit([this](const auto& each) { add(each); }, note);
    }

    template <class Each>
    void take(Each note) {
        if (noting_ != nullptr) {
            noting_->notes.emplace_back(std::move(note));
        } else if (!is_aside_) {
            add(note);
        }
    }

    void add(const WorkNote& work) {
        trace_.flops += work.flops;
        trace_.score_bytes = std::max(trace_.score_bytes, work.score_bytes);
        if (!is_optimizer_) trace_.compute_seconds[work.kind] += work.seconds;
        auto& events = trace_.events;
        const bool extends = !std::exchange(new_event_, false) && !events.empty() &&
                             events.back().kind == Event::Kind::Compute &&
                             events.back().is_optimizer == is_optimizer_;
        if (!extends) events.push_back({.kind = Event::Kind::Compute, .is_optimizer = is_optimizer_});
        events.back().seconds += work.seconds;
        if (is_optimizer_ || !options_.executor.graphs) events.back().host_seconds += machine_.host_seconds;
        if (work.kind == ops::WorkKind::Product) events.back().product_seconds += work.seconds;
        if (work.kind != ops::WorkKind::Pass) events.back().dense_seconds += work.seconds;
    }

    LaunchNote note_of(const comm::Recording::Launch& recorded) {
        const auto& group = dynamic_cast<const comm::RecordingCommunicator&>(recorded.group);
        Launch launch{.group = group.name(),
                      .channel = channel_of(group),
                      .is_beside = machine_.is_gpu,
                      .kind = recorded.ops[0].kind,
                      .purpose = recorded.purpose};
        int64_t published = 0;
        for (const comm::RecordedOp& op : recorded.ops) {
            const comm::MovedBytes moved = comm::moved_bytes(op);
            launch.moved.sent += moved.sent;
            launch.moved.received += moved.received;
            published += published_bytes(op);
            if (op.kind == comm::OpKind::Send) launch.send_to.push_back(group.world_ranks()[op.peer]);
            if (op.kind == comm::OpKind::Receive) launch.receive_from.push_back(group.world_ranks()[op.peer]);
        }
        launch.seconds = machine_.seconds(recorded.ops, group.world_ranks());
        if (!launch.is_message()) launch.held = machine_.held_by_collective();  // messages are small
        return {recorded.number, &group, published, std::move(launch)};
    }

    void add(const LaunchNote& note) {
        shared_.launched(note.number, *note.group, note.published_bytes);
        comm::MovedBytes& moved = trace_.moved[note.launch.group];
        moved.sent += note.launch.moved.sent;
        moved.received += note.launch.moved.received;
        index_of_[note.number] = std::ssize(trace_.launches);
        trace_.events.push_back({.kind = Event::Kind::Launch, .launch = std::ssize(trace_.launches)});
        trace_.launches.push_back(note.launch);
        trace_.launches.back().pass = pass_;
        trace_.launches.back().in_update = is_optimizer_;
    }

    void add(const WaitNote& wait) {
        trace_.events.push_back({.kind = Event::Kind::Wait, .launch = index_of_.at(wait.number)});
        index_of_.erase(wait.number);
        shared_.ended(wait.number);
    }

    /// Groups of one name are numbered in the order of their first launch, which is the same on all ranks.
    int channel_of(const comm::Communicator& group) {
        auto& groups = channels_[group.name()];
        return groups.try_emplace(&group, static_cast<int>(groups.size())).first->second;
    }

    train::TrainerOptions options_;
    const layout::MeshShape& shape_;
    const Machine& machine_;
    DryMemory& memory_ = MetaAllocator::install();
    int64_t before_bytes_ = 0;
    train::DryRank* dry_ = nullptr;  // null: under construction
    std::string phase_ = "the construction of the model";
    const char* pass_ = observe::name_of(observe::ComputeKind::Other);
    bool new_event_ = false;  // a Compute event has the work of one operation of the program
    bool is_optimizer_ = false;
    std::map<int64_t, int64_t> index_of_;  // launches under way, by their numbers
    std::map<std::string, std::map<const comm::Communicator*, int>> channels_;
    SharedMemory shared_{machine_.ring_bytes};
    struct Record {
        std::vector<Note> notes = {};       // its waits are all for its own launches
        int64_t bytes = 0, peak_bytes = 0;  // more than before
    };
    std::deque<Record> records_;
    Record* noting_ = nullptr;  // null: none is made
    bool is_aside_ = false;     // what the program notes is no part of the step
    RankTrace trace_;
};

}  // namespace

HeldBytes held_bytes(train::Trainer& trainer) {
    parallel::ParallelModel& model = trainer.model();
    HeldBytes held;
    for (const auto& parameter : model.parameters()) {
        held.weights += num_bytes(parameter->master());
        if (!parameter->compute().is_same(parameter->master()))
            held.copies += num_bytes(parameter->compute());
        held.gradients += num_bytes(parameter->gradient().sum);
    }
    for (const train::State& state : trainer.step().states()) held.states += num_bytes(state.tensor);
    for (parallel::Stage& stage : model.stages()) {
        for (parallel::ShardedUnit& unit : stage.units) {
            for (const parallel::ShardedSet& set : unit.sets()) {
                held.gathered += set.gathered_bytes();
                held.gradients += set.gradient_bytes();
            }
        }
    }
    return held;
}

HeldBytes planned_bytes(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank) {
    comm::Recording recording;
    train::DryRank dry(options, shape, rank, recording);
    return held_bytes(dry.trainer());
}

RankTrace trace_rank(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank,
                     const Machine& machine, Repeats repeats) {
    // Tensors that neighbours write to may outlive an operation, and no record has their pool.
    if (machine.peer_copies) repeats = Repeats::Run;
    return Tracer(options, shape, rank, machine, repeats).run();
}

}  // namespace argosy::plan
