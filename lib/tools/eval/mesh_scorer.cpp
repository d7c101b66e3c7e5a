#include "eval/mesh_scorer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "comm/values.h"
#include "layout/mesh_shape.h"
#include "train/data_feed.h"

namespace argosy::eval {
namespace {

using layout::Axis;

train::TrainerOptions for_one_pass(train::TrainerOptions options, const comm::Mesh& mesh) {
    options.num_microbatches = mesh.degree(Axis::Pipeline);
    return options;
}

}  // namespace

void require_same_tasks(comm::Communicator& control, std::span<const Work> tasks) {
    for (const Work& work : tasks) {
        const auto found = comm::all_gather_texts(
            control, fmt::format("{} records, digest {}", work.task.documents.size(), digest(work)));
        for (size_t rank = 1; rank < found.size(); ++rank) {
            if (found[rank] == found[0]) continue;
            throw UserError(
                "the ranks do not have the same requests of {}: rank 0 has {}, rank {} has {}; copy the "
                "files of tasks, the tokenizer and the model's JSON files to all nodes",
                work.task.file.path.string(), found[0], rank, found[rank]);
        }
    }
}

MeshScorer::MeshScorer(parallel::ParallelModel& model, const train::TrainerOptions& options, comm::Mesh& mesh)
    : mesh_(mesh),
      options_(for_one_pass(options, mesh)),
      executor_(model, mesh, forward_program(options_, mesh),
                {.take_softmax_sums = [this](int number, const ops::SoftmaxSums& sums) {
                    // The ranks of a tensor group have the same sums, so one of them is enough.
                    if (mesh_.coordinate(Axis::Tensor) == 0) sums_->add(microbatches_[number], sums);
                }}) {}

Microbatch MeshScorer::microbatch(int64_t number) const {
    const int64_t size = options_.model.microbatch_size;
    std::vector<const Sequence*> own;  // null where there are no more
    for (int64_t i = number * size; i < (number + 1) * size; ++i)
        own.push_back(i < std::ssize(sequences_) ? &sequences_[i] : nullptr);
    std::function<at::Tensor(const at::Tensor&)> own_part;
    if (mesh_.degree(Axis::Context) > 1) {
        own_part = [&](const at::Tensor& rows) {
            return train::own_part(rows, options_.model.context.balance, mesh_);
        };
    }
    return make_microbatch(own, records_, options_.model.seq_len, mesh_.device(), own_part);
}

void MeshScorer::run_pass(int64_t first_microbatch) {
    microbatches_.clear();
    std::vector<model::Batch> batches;
    const int64_t data_ranks = mesh_.degree(layout::kDataAxes);
    for (int64_t i = 0; i < options_.num_microbatches; ++i) {
        microbatches_.push_back(
            microbatch(first_microbatch + i * data_ranks + mesh_.index(layout::kDataAxes)));
        batches.push_back(microbatches_.back().batch);
    }
    executor_.run(batches, /*loss_weight=*/1, /*update=*/0);
}

std::vector<RecordScore> MeshScorer::score(std::span<const Tokens> records,
                                           const std::vector<Window>& windows,
                                           const std::function<void(double share)>& progress) {
    records_ = records;
    sequences_ = in_sequences(windows, options_.model.seq_len);
    sums_.emplace(records.size());
    const int64_t count = divide_up(std::ssize(sequences_), options_.model.microbatch_size);
    const int64_t of_pass = options_.num_microbatches * mesh_.degree(layout::kDataAxes);
    for (int64_t first = 0; first < count; first += of_pass) {
        run_pass(first);
        const int64_t done = std::min(first + of_pass, count);
        if (progress) progress(static_cast<double>(done) / static_cast<double>(count));
    }
    const at::Tensor all = comm::reduce_on_host(mesh_.world(), sums_->totals(), comm::Reduction::Sum);
    return scores_of(all, windows);
}

}  // namespace argosy::eval
