#include "train/data_feed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <cstddef>
#include <thread>
#include <utility>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::train {

DataFeed::DataFeed(const data::Loader& loader, comm::Mesh& mesh, const BatchSizes& sizes,
                   int64_t first_sample, int64_t num_steps)
    : loader_(loader), mesh_(mesh), sizes_(sizes), next_sample_(first_sample), num_steps_(num_steps) {
    const bool on_gpu = gpu::holds(at::empty({0}, mesh.device()));
    if (on_gpu) for_gpu_.emplace(2 * num_tokens() * static_cast<int64_t>(sizeof(int64_t)));
}

at::Tensor DataFeed::host_buffer() {
    if (!for_gpu_) return at::empty({2, num_tokens()}, at::kLong);
    while (!for_gpu_->copied.done()) std::this_thread::yield();  // may wait only in the first step
    return at::from_blob(for_gpu_->pinned.data(), {2, num_tokens()}, at::kLong);
}

at::Tensor DataFeed::on_device(const at::Tensor& read) {
    if (!for_gpu_) return read;
    const cuda::StreamView stream(gpu::current_stream());
    for_gpu_->read.record(stream);
    at::Tensor copy = at::empty(read.sizes(), read.options().device(mesh_.device()));
    cuda::copy_to_device(static_cast<std::byte*>(copy.mutable_data_ptr()),
                         {static_cast<const std::byte*>(read.const_data_ptr()), read.nbytes()}, stream);
    for_gpu_->copied.record(stream);
    return copy;
}

void DataFeed::read_ahead() {
    const int64_t num_samples = sizes_.samples_per_rank();
    const at::Tensor read = host_buffer(), tokens = read[0], targets = read[1];
    loader_.read(next_sample_ + mesh_.index(layout::kDataAxes) * num_samples, num_samples,
                 tokens.mutable_data_ptr<int64_t>(), targets.mutable_data_ptr<int64_t>());
    ahead_ = {.counted_tokens = targets.ge(0).sum().item<int64_t>(), .first_position = next_sample_};
    job_tokens_ = at::full({}, ahead_.counted_tokens, at::kLong);
    counting_ = mesh_.group(layout::kDataAxes)
                    .submit({.kind = comm::OpKind::AllReduce, .out = job_tokens_, .in = job_tokens_});
    const at::Tensor all = on_device(read);
    const int64_t size = sizes_.microbatch_size * loader_.seq_len();
    for (int64_t i = 0; i < sizes_.num_microbatches; ++i) {
        ahead_.microbatches.push_back({all[0].narrow(0, i * size, size), all[1].narrow(0, i * size, size),
                                       sizes_.microbatch_size, loader_.seq_len()});
    }
    next_sample_ += sizes_.global_batch;
    ++num_read_;
}

StepBatch DataFeed::next() {
    ARGOSY_CHECK(counting_.active() || num_read_ < num_steps_, "all {} steps are read", num_steps_);
    if (!counting_.active()) read_ahead();
    counting_.wait();
    ahead_.job_counted_tokens = job_tokens_.item<int64_t>();
    StepBatch batch = std::move(ahead_);
    if (!for_gpu_ && num_read_ < num_steps_) read_ahead();
    return batch;
}

void DataFeed::read_meanwhile() {
    const bool reads = !counting_.active() && num_read_ < num_steps_;
    if (for_gpu_) for_gpu_->timed = reads;
    if (!reads) return;
    if (for_gpu_) for_gpu_->computed.record(cuda::StreamView(gpu::current_stream()));
    read_ahead();
}

double DataFeed::seconds_gpu_waited() const {
    if (!for_gpu_ || !for_gpu_->timed) return 0;
    return cuda::Event::seconds_between(for_gpu_->computed, for_gpu_->read);
}

std::vector<int64_t> DataFeed::samples(const StepBatch& batch) const {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < sizes_.global_batch; ++i) {
        samples.push_back(loader_.sample_at(batch.first_position + i));
    }
    return samples;
}

}  // namespace argosy::train
