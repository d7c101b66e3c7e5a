#include "scoring/mesh_scorer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/values.h"
#include "gpu/device.h"
#include "layout/mesh_shape.h"
#include "ops/cross_entropy.h"
#include "ops/documents.h"
#include "train/data_feed.h"

namespace argosy::scoring {
namespace {

using eval::RecordScore;
using eval::Tokens;
using eval::Window;
using layout::Axis;

/// Results of this many tokens stay on a GPU before the host fetches them, because a copy waits for the GPU.
constexpr int64_t kMaxFound = int64_t{1} << 22;

train::TrainerOptions for_one_pass(train::TrainerOptions options, const comm::Mesh& mesh) {
    options.num_microbatches = mesh.degree(Axis::Pipeline);
    return options;
}

/// Whether each sequence is one window from its beginning on, so that causal attention needs no positions.
bool are_whole_windows(std::span<const eval::Sequence* const> sequences) {
    return std::ranges::all_of(sequences,
                               [](const auto* each) { return each == nullptr || each->size() == 1; });
}

/// The windows of a batch as documents, for attention on a GPU.
at::Tensor document_offsets(const at::Tensor& positions, int64_t seq_len, c10::Device device) {
    const at::Tensor ends = at::empty_like(positions);
    const auto size = static_cast<size_t>(positions.numel());
    const int64_t num_documents = ops::write_document_ends({positions.const_data_ptr<int64_t>(), size},
                                                           seq_len, {ends.mutable_data_ptr<int64_t>(), size});
    return ops::document_offsets(ends.to(device), ops::document_capacity(num_documents));
}

/// The rows whose targets count; the head needs one at least.
at::Tensor rows_that_count(const at::Tensor& targets) {
    const at::Tensor counted = targets.ge(0).nonzero().squeeze(1);
    return counted.numel() > 0 ? counted : at::zeros({1}, at::kLong);
}

/// A batch of one token that predicts nothing.
eval::WindowBatch without_score(const Window& window) {
    return {{{.record = window.record, .begin = window.begin, .num_inputs = 1, .num_scored = 0}}, {0}};
}

/// COLLECTIVE. `own` is what this rank has of `what`, and comes from `files`.
void require_same(comm::Communicator& control, const std::string& what, const std::string& own,
                  const char* files) {
    const auto found = comm::all_gather_texts(control, own);
    for (size_t rank = 1; rank < found.size(); ++rank) {
        if (found[rank] == found[0]) continue;
        throw UserError(
            "the ranks do not have the same {}: rank 0 has {}, rank {} has {}; copy {} to all nodes", what,
            found[0], rank, found[rank], files);
    }
}

}  // namespace

void require_same_tasks(comm::Communicator& control, std::span<const eval::Work> tasks) {
    for (const eval::Work& work : tasks) {
        require_same(control, "task " + work.task.file.path.string(),
                     fmt::format("{} records, digest {}", work.task.documents.size(), digest(work)),
                     "the task, the few-shot file and the tokenizer");
    }
}

void require_same_text(comm::Communicator& control, const tokenizer::Tokenizer& tokenizer,
                       const tokenizer::Ids& prompt, const eval::GenerateOptions& options) {
    require_same(control, "prompt",
                 fmt::format("{} tokens, digest {}", prompt.size(), digest(tokenizer, prompt, options)),
                 "the tokenizer and the model's JSON files");
}

MeshScorer::MeshScorer(parallel::ParallelModel& model, const train::TrainerOptions& options, comm::Mesh& mesh,
                       int64_t max_windows)
    : mesh_(mesh),
      options_(for_one_pass(options, mesh)),
      max_windows_(max_windows),
      shares_beginnings_(!gpu::holds(at::empty({0}, mesh.device())) && mesh.degree(Axis::Context) == 1),
      executor_(model, mesh, forward_program(options_, mesh),
                {.take_softmax_sums = [this](int microbatch, const ops::SoftmaxSums& sums) {
                    take(microbatch, sums);
                }}) {}

int64_t MeshScorer::microbatches_per_pass() const {
    return options_.num_microbatches * mesh_.degree(layout::kDataAxes);
}

int64_t MeshScorer::num_microbatches() const {
    if (shares_beginnings_) return std::ssize(packed_);
    return (std::ssize(sequences_) + options_.model.microbatch_size - 1) / options_.model.microbatch_size;
}

void MeshScorer::pack(const std::vector<Window>& windows) {
    if (!shares_beginnings_) {
        sequences_ = eval::in_sequences(windows, options_.model.seq_len);
        return;
    }
    packed_ = eval::in_packed_batches(
        windows, records_, {options_.model.seq_len * options_.model.microbatch_size, max_windows_});
    eval::split_packed_batches(packed_, microbatches_per_pass());
    while (std::ssize(packed_) % microbatches_per_pass() != 0)
        packed_.push_back(without_score(windows.front()));
}

MeshScorer::Microbatch MeshScorer::make_microbatch(int64_t number) const {
    return shares_beginnings_ ? packed_microbatch(number) : microbatch_of_sequences(number);
}

MeshScorer::Microbatch MeshScorer::packed_microbatch(int64_t number) const {
    const eval::WindowBatch& packed = packed_[number];
    // The ranks of a tensor axis exchange rows of as many tokens in each microbatch.
    const bool is_padded = mesh_.degree(Axis::Tensor) > 1;
    Microbatch made;
    made.batch = make_batch(packed, records_, mesh_.device(),
                            is_padded ? options_.model.seq_len * options_.model.microbatch_size : 0);
    made.attention = std::make_unique<eval::PackedAttention>(packed);
    made.batch.attention = made.attention.get();
    made.batch.head_rows = rows_that_count(made.batch.targets);
    std::vector<int64_t> records;
    for (const Window& window : packed.windows)
        records.insert(records.end(), window.num_scored, window.record);
    made.records = at::tensor(records, at::kLong);
    return made;
}

MeshScorer::Microbatch MeshScorer::microbatch_of_sequences(int64_t number) const {
    std::vector<const eval::Sequence*> own;  // null where there are no more
    for (int64_t i = 0; i < options_.model.microbatch_size; ++i) {
        const int64_t sequence = number * options_.model.microbatch_size + i;
        own.push_back(sequence < std::ssize(sequences_) ? &sequences_[sequence] : nullptr);
    }
    // 1. the tokens of whole sequences, of which a rank of the context axis keeps its part
    at::Tensor rows = sequence_rows(own, records_, options_.model.seq_len);
    const bool cut = mesh_.degree(Axis::Context) > 1;
    if (cut) rows = train::own_part(rows, options_.model.context.balance, mesh_);
    const int64_t own_seq_len = rows.size(2);
    rows = rows.view({eval::kNumSequenceRows, -1});
    // 2. the tokens that count
    const at::Tensor targets = rows[eval::kTargets], counted = targets.ge(0);
    // 3. the copy on the device
    const at::Tensor on_device = rows.to(mesh_.device());
    model::Batch batch{.tokens = on_device[eval::kTokens],
                       .targets = on_device[eval::kTargets],
                       .num_sequences = options_.model.microbatch_size,
                       .seq_len = own_seq_len,
                       .head_rows = rows_that_count(targets).to(mesh_.device())};
    if (cut || !are_whole_windows(own)) batch.positions = on_device[eval::kPositions];
    if (batch.positions.defined() && !cut && gpu::holds(on_device)) {
        batch.document_offsets = document_offsets(rows[eval::kPositions], own_seq_len, mesh_.device());
    }
    return {batch, rows[eval::kRecords].masked_select(counted)};
}

/// The ranks of a tensor group have the same sums, so one of them is enough.
void MeshScorer::take(int microbatch, const ops::SoftmaxSums& sums) {
    const Microbatch& own = microbatches_[microbatch];
    if (mesh_.coordinate(Axis::Tensor) != 0 || own.records.numel() == 0) return;
    const at::Tensor targets = model::head_targets(own.batch);
    const at::Tensor losses = ops::cross_entropy(sums, targets);
    found_.push_back(
        {at::stack({losses, ops::target_is_largest(sums, targets).to(losses.scalar_type())}), own.records});
    num_found_ += own.records.numel();
}

/// Adds the results of found_ to the sums of their records, in the order of the tokens.
void MeshScorer::add_found() {
    if (found_.empty()) return;
    std::vector<at::Tensor> values, records;
    for (Found& each : found_) {
        values.push_back(std::move(each.values));
        records.push_back(std::move(each.records));
    }
    found_.clear();
    num_found_ = 0;
    const at::Tensor all = at::cat(values, 1).cpu().to(at::kDouble), numbers = at::cat(records);
    const auto *loss = all.const_data_ptr<double>(), *likeliest = loss + all.size(1);
    const auto* record = numbers.const_data_ptr<int64_t>();
    auto* sums = sums_.mutable_data_ptr<double>();
    for (int64_t i = 0; i < all.size(1); ++i) {
        sums[2 * record[i]] -= loss[i];
        sums[2 * record[i] + 1] += likeliest[i];
    }
}

std::vector<RecordScore> MeshScorer::sum_over_ranks() {
    const at::Tensor all = sums_.to(mesh_.device());
    mesh_.world().run({.kind = comm::OpKind::AllReduce, .out = all, .in = all});
    mesh_.world().wait_for_gpu();
    const at::Tensor on_host = all.cpu();
    const auto* sums = on_host.const_data_ptr<double>();
    std::vector<RecordScore> scores(records_.size());
    for (RecordScore& score : scores) {
        score.log_likelihood = *sums++;
        score.num_greedy = static_cast<int64_t>(*sums++);
    }
    return scores;
}

void MeshScorer::run_pass(int64_t first_microbatch) {
    microbatches_.clear();
    std::vector<model::Batch> batches;
    const int64_t data_ranks = mesh_.degree(layout::kDataAxes);
    for (int64_t i = 0; i < options_.num_microbatches; ++i) {
        microbatches_.push_back(
            make_microbatch(first_microbatch + i * data_ranks + mesh_.index(layout::kDataAxes)));
        batches.push_back(microbatches_.back().batch);
    }
    executor_.run(batches, /*loss_scale=*/1, /*update=*/0);
    if (num_found_ > kMaxFound) add_found();
}

std::vector<RecordScore> MeshScorer::score(std::span<const Tokens> records,
                                           const std::vector<Window>& windows,
                                           const std::function<void(double share)>& progress) {
    records_ = records;
    found_.clear();  // progress() may have thrown in the score() before
    num_found_ = 0;
    pack(windows);
    sums_ = at::zeros({std::ssize(records), 2}, at::kDouble);
    const int64_t count = num_microbatches();
    for (int64_t first = 0; first < count; first += microbatches_per_pass()) {
        run_pass(first);
        const int64_t done = std::min(first + microbatches_per_pass(), count);
        if (progress) progress(static_cast<double>(done) / static_cast<double>(count));
    }
    add_found();
    std::vector<RecordScore> scores = sum_over_ranks();
    for (const Window& window : windows) scores[window.record].num_predicted += window.num_scored;
    return scores;
}

}  // namespace argosy::scoring
