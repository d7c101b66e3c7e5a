// A step of all ranks of a job: each rank's step is recorded without data, and the recordings run against
// each other. They fit together if no rank waits for ever and all ranks of a group submit the same
// operations.
//
// The rules are stricter than those of any backend. So a step that ends here ends on real ranks, too.
// 1. A rank goes past the launch of a collective when all ranks of the group have launched it.
// 2. It goes past the launch of messages at once, and past the wait for them when the other ranks have
//    launched theirs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "layout/mesh_shape.h"
#include "ops/ops_context.h"
#include "parallel/schedule.h"
#include "train/dry_step.h"
#include "train/tiny_run.h"

namespace argosy::train {
namespace {

/// A communicator: the name of its group, its number among those of this name, its ranks in the world.
using Group = std::tuple<std::string, int, std::vector<int>>;

/// A submission, or the wait for the end of one.
struct Event {
    bool is_wait = false;
    int64_t submission = 0;
    Group group = {};
    std::vector<comm::RecordedOp> ops = {};

    bool is_collective() const {
        return !is_wait && ops[0].kind != comm::OpKind::Send && ops[0].kind != comm::OpKind::Receive;
    }
    std::string text() const {
        std::string text = std::get<0>(group);
        for (const comm::RecordedOp& op : ops)
            text += fmt::format(" {} of {}", comm::kind_name(op.kind), op.num_elements);
        return text;
    }
    bool fits(const Event& other) const {
        return std::ranges::equal(ops, other.ops, [](const auto& one, const auto& two) {
            return std::tie(one.kind, one.type, one.num_elements) ==
                   std::tie(two.kind, two.type, two.num_elements);
        });
    }
};
using Events = std::vector<Event>;  // of a rank, in order

Events events_of(const TrainerOptions& options, const layout::MeshShape& mesh, int rank) {
    Events events;
    std::map<const comm::Communicator*, Group> groups;
    std::map<std::string, int> num_groups;
    comm::Recording recording(
        {.launched =
             [&](const comm::Recording::Launch& launch) {
                 const auto& ranks = dynamic_cast<const comm::RecordingCommunicator&>(launch.group);
                 if (ranks.size() == 1) return;
                 if (!groups.contains(&ranks))
                     groups[&ranks] = {ranks.name(), num_groups[ranks.name()]++, ranks.world_ranks()};
                 events.push_back({.submission = launch.number,
                                   .group = groups[&ranks],
                                   .ops = {launch.ops.begin(), launch.ops.end()}});
             },
         .waited = [&](int64_t number) { events.push_back({.is_wait = true, .submission = number}); }});
    record_step(options, mesh, rank, recording);
    return events;
}

bool is_all_to_all(const Event& event) {
    return event.is_collective() && event.ops[0].kind == comm::OpKind::AllToAll;
}

/// Runs the events of all ranks of a job.
class JointStep {
  public:
    explicit JointStep(const std::vector<Events>& ranks) : ranks_(ranks), next_(ranks.size()) {}

    /// Returns what does not fit together; empty if the step ends.
    std::string fault() {
        for (bool moves = true; moves && fault_.empty();) {
            moves = false;
            for (size_t rank = 0; rank < ranks_.size(); ++rank) moves |= advance(static_cast<int>(rank));
        }
        for (size_t rank = 0; rank < ranks_.size() && fault_.empty(); ++rank) {
            if (next_[rank] == ranks_[rank].size()) continue;
            const Event& event = ranks_[rank][next_[rank]];
            fault_ = fmt::format("deadlock: rank {} waits for ever in submission {} {}", rank,
                                 event.submission, event.text());
        }
        return fault_;
    }

  private:
    struct Collective {
        const Event* first = nullptr;  // to be launched
        size_t num_launched = 0;
    };
    struct Messages {
        std::vector<int64_t> sent, received;  // elements of each message
    };
    using Way = std::tuple<Group, int, int>;  // from and to a rank of the group

    bool advance(int rank) {
        const size_t before = next_[rank];
        while (next_[rank] < ranks_[rank].size() && fault_.empty() && run(rank, ranks_[rank][next_[rank]]))
            ++next_[rank];
        return next_[rank] > before;
    }

    /// Returns false if other ranks have to go on first.
    bool run(int rank, const Event& event) {
        if (event.is_wait) return messages_are_there(rank, event.submission);
        return event.is_collective() ? meet(rank, event) : start_messages(rank, event);
    }

    /// A collective of this rank and the ranks of its group.
    bool meet(int rank, const Event& event) {
        if (launched_.insert({{rank, event.submission}, 0}).second) {
            const int64_t number = num_collectives_[{event.group, rank}]++;
            Collective& joint = collectives_[{event.group, number}];
            if (joint.first == nullptr) joint.first = &event;
            if (!joint.first->fits(event))
                fault_ = fmt::format("rank {} launches {}, and the first of its group {}", rank, event.text(),
                                     joint.first->text());
            ++joint.num_launched;
            launched_[{rank, event.submission}] = number;
        }
        const Collective& joint = collectives_[{event.group, launched_[{rank, event.submission}]}];
        return joint.num_launched == std::get<2>(event.group).size();
    }

    bool start_messages(int rank, const Event& event) {
        for (const comm::RecordedOp& op : event.ops) {
            const bool sends = op.kind == comm::OpKind::Send;
            const Way way = sends ? Way{event.group, op.rank, op.peer} : Way{event.group, op.peer, op.rank};
            std::vector<int64_t>& own = sends ? messages_[way].sent : messages_[way].received;
            under_way_[{rank, event.submission}].emplace_back(way, own.size());
            own.push_back(op.num_bytes());
        }
        return true;
    }

    bool messages_are_there(int rank, int64_t submission) {
        for (const auto& [way, number] : under_way_[{rank, submission}]) {
            const auto& [sent, received] = messages_[way];
            if (number >= sent.size() || number >= received.size()) return false;
            if (sent[number] != received[number])
                fault_ = fmt::format("rank {}: a message of {} bytes is received as {}", rank, sent[number],
                                     received[number]);
        }
        return true;
    }

    const std::vector<Events>& ranks_;
    std::vector<size_t> next_;  // event of each rank
    std::map<std::pair<Group, int>, int64_t> num_collectives_;
    std::map<std::pair<Group, int64_t>, Collective> collectives_;
    std::map<std::pair<int, int64_t>, int64_t> launched_;  // collectives' numbers, by rank and submission
    std::map<Way, Messages> messages_;
    std::map<std::pair<int, int64_t>, std::vector<std::pair<Way, size_t>>> under_way_;
    std::string fault_;
};

/// Exchanges the middle one of a rank's all-to-alls and the next different collective among the same ranks.
void swap_collectives(Events& events) {
    std::vector<size_t> all_to_alls;
    for (size_t i = 0; i < events.size(); ++i) {
        if (is_all_to_all(events[i])) all_to_alls.push_back(i);
    }
    ASSERT_FALSE(all_to_alls.empty());
    const size_t first = all_to_alls[all_to_alls.size() / 2];
    const Event& one = events[first];
    size_t next = first + 1;
    const auto differs = [&](const Event& other) {
        return other.is_collective() && std::get<2>(other.group) == std::get<2>(one.group) &&
               !(other.group == one.group && other.fits(one));
    };
    while (next < events.size() && !differs(events[next])) ++next;
    ASSERT_LT(next, events.size());
    std::swap(events[first], events[next]);
}

struct Job {
    layout::MeshRequest mesh;
    model::RecomputeMode recompute = model::RecomputeMode::None;
    parallel::Reshard reshard = parallel::Reshard::Never;
    int num_ranks() const { return mesh.pipeline * mesh.replicate * mesh.shard * mesh.context * mesh.tensor; }
};

/// Experts over tp, over cp x tp, over all that shards, with and without replicas, and over a part of it.
const std::vector<Job> kJobs = {
    {{.pipeline = 2, .shard = 2, .tensor = 2, .expert = 2, .num_experts = 8}},
    {{.pipeline = 2, .shard = 1, .context = 2, .tensor = 2, .expert = 4, .num_experts = 8}, model::RecomputeMode::Full},
    {{.pipeline = 2, .replicate = 2, .shard = 2, .expert = 2, .num_experts = 8}, {}, parallel::Reshard::EveryPass},
    {{.pipeline = 4, .shard = 2, .expert = 2, .num_experts = 8}},
    {{.pipeline = 4, .shard = 2, .tensor = 2, .expert = 4, .num_experts = 8}, {}, parallel::Reshard::EveryPass},
    {{.pipeline = 2, .shard = 4, .tensor = 2, .expert = 4, .num_experts = 8}},
};

/// Not all layers have experts.
TrainerOptions options_of(const Job& job, const std::string& schedule) {
    model::ModelSpec spec = testing::tiny_spec("llama3");
    spec.num_layers = 8;
    spec.experts = {.router = {.num_experts = 8, .top_k = 2}, .hidden_dim = 24, .dense_layers = {0, 5}};
    const int num_stages = job.mesh.pipeline * parallel::default_stages_per_rank(schedule);
    return {.spec = spec,
            .model = {.seq_len = 16, .microbatch_size = 1},
            .stage_layers = parallel::split_layers(spec.num_layers, num_stages, 0, 0),
            .schedule = schedule,
            .reshard = job.reshard,
            .recompute = job.recompute,
            .num_microbatches = 2 * job.mesh.pipeline,
            .step = {.balance = {.sequence_loss = 1}}};  // sums over cp x tp in each forward pass
}

std::vector<Events> events_of_job(const Job& job, const std::string& schedule) {
    const layout::MeshShape mesh = layout::resolve(job.mesh, job.num_ranks());
    const TrainerOptions options = options_of(job, schedule);
    std::vector<Events> ranks;
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) ranks.push_back(events_of(options, mesh, rank));
    return ranks;
}

TEST(JointStep, OfExpertsEndsInEverySchedule) {
    const ops::OpsContext tensors;
    for (const Job& job : kJobs) {
        for (const std::string& schedule : parallel::schedule_names()) {
            SCOPED_TRACE(fmt::format("{} {}", layout::resolve(job.mesh, job.num_ranks()).name(), schedule));
            std::vector<Events> ranks = events_of_job(job, schedule);
            EXPECT_EQ(JointStep(ranks).fault(), "");
            for (const int rank : {0, job.num_ranks() - 1}) {
                std::vector<Events> swapped = ranks;
                swap_collectives(swapped[rank]);
                EXPECT_NE(JointStep(swapped).fault(), "") << rank;
            }
        }
    }
}

TEST(JointStep, NamesWhatDoesNotFit) {
    const ops::OpsContext tensors;
    const std::vector<Events> ranks = events_of_job(kJobs[0], "1F1B");
    std::vector<Events> fewer = ranks;
    const auto is_message = [](const Event& event) { return !event.is_wait && !event.is_collective(); };
    fewer[0].erase(std::ranges::find_if(fewer[0], is_message));
    EXPECT_NE(JointStep(fewer).fault().find("deadlock: rank "), std::string::npos)
        << JointStep(fewer).fault();
    std::vector<Events> larger = ranks;
    ++std::ranges::find_if(larger[0], is_all_to_all)->ops[0].num_elements;
    EXPECT_NE(JointStep(larger).fault().find("launches tp all-to-all of "), std::string::npos)
        << JointStep(larger).fault();
}

}  // namespace
}  // namespace argosy::train
