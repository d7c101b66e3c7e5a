#include "train/data_feed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <utility>

#include "base/error.h"

namespace argosy::train {

DataFeed::DataFeed(const data::Loader& loader, mesh::Mesh& mesh, const BatchSizes& sizes,
                   int64_t first_sample, int64_t num_steps)
    : loader_(loader), mesh_(mesh), sizes_(sizes), next_sample_(first_sample), num_steps_(num_steps) {}

void DataFeed::read_ahead() {
    ahead_ = {.first_position = next_sample_};
    next_sample_ += sizes_.global_batch;
    ++num_read_;
    const int64_t seq_len = loader_.seq_len();
    int64_t position = ahead_.first_position + mesh_.index(mesh::kDataAxes) * sizes_.samples_per_rank();
    const int64_t tokens = sizes_.microbatch_size * seq_len;
    for (int64_t i = 0; i < sizes_.num_microbatches; ++i, position += sizes_.microbatch_size) {
        model::Batch batch{at::empty({tokens}, at::kLong), at::empty({tokens}, at::kLong),
                           sizes_.microbatch_size, seq_len};
        loader_.read(position, sizes_.microbatch_size, batch.tokens.mutable_data_ptr<int64_t>(),
                     batch.targets.mutable_data_ptr<int64_t>());
        ahead_.counted_tokens += batch.targets.ge(0).sum().item<int64_t>();
        batch.tokens = batch.tokens.to(mesh_.device());
        batch.targets = batch.targets.to(mesh_.device());
        ahead_.microbatches.push_back(std::move(batch));
    }
    job_tokens_ = at::full({}, ahead_.counted_tokens, at::kLong);
    counting_ = mesh_.group(mesh::kDataAxes)
                    .submit({.kind = comm::OpKind::AllReduce, .out = job_tokens_, .in = job_tokens_});
}

StepBatch DataFeed::next() {
    ARGOSY_CHECK(counting_.active() || (num_read_ == 0 && num_steps_ > 0), "all {} steps are read",
                 num_steps_);
    if (!counting_.active()) read_ahead();
    counting_.wait();
    ahead_.job_counted_tokens = job_tokens_.item<int64_t>();
    StepBatch batch = std::move(ahead_);
    if (num_read_ < num_steps_) read_ahead();
    return batch;
}

std::vector<int64_t> DataFeed::samples(const StepBatch& batch) const {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < sizes_.global_batch; ++i) {
        samples.push_back(loader_.sample_at(batch.first_position + i));
    }
    return samples;
}

}  // namespace argosy::train
