#include "train/data_feed.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::train {

DataFeed::DataFeed(const data::Loader& loader, comm::Mesh& mesh, const BatchSizes& sizes,
                   int64_t first_sample, int64_t num_steps, int64_t end_sample)
    : loader_(loader),
      mesh_(mesh),
      sizes_(sizes),
      next_sample_(first_sample),
      num_steps_(num_steps),
      end_sample_(end_sample) {
    ARGOSY_CHECK(loader.seq_len() <= seq_len(), "samples of {} tokens", loader.seq_len());
    const bool on_gpu = gpu::holds(at::empty({0}, mesh.device()));
    if (on_gpu) for_gpu_.emplace(num_rows() * num_tokens() * static_cast<int64_t>(sizeof(int64_t)));
}

at::Tensor DataFeed::host_buffer() {
    if (!for_gpu_) return at::empty({num_rows(), num_tokens()}, at::kLong);
    while (!for_gpu_->copied.done()) std::this_thread::yield();  // may wait only in the first step
    return at::from_blob(for_gpu_->pinned.data(), {num_rows(), num_tokens()}, at::kLong);
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

/// Copies this rank's part of each sample from whole samples [num_rows, samples * seq_len] to a buffer for
/// the batch.
at::Tensor DataFeed::own_tokens(const at::Tensor& read) const {
    const at::Tensor whole = read.view({num_rows(), -1, seq_len()});
    std::vector<at::Tensor> parts;
    for (const layout::Range& part : layout::context_parts(sizes_.balance, seq_len(), context_degree(),
                                                           mesh_.coordinate(layout::Axis::Context))) {
        parts.push_back(whole.narrow(2, part.begin, part.size));
    }
    return at::cat(parts, 2).view({num_rows(), -1});
}

/// Fills `to`, [num_rows, samples_per_rank() * seq_len()].
void DataFeed::read_samples(int64_t first_sample, const at::Tensor& to) const {
    const int64_t num_samples = sizes_.samples_per_rank(), length = loader_.seq_len();
    const int64_t count = std::clamp<int64_t>(end_sample_ - first_sample, 0, num_samples);
    const int64_t num_read = loader_.gives_positions() ? 3 : 2;
    const auto read = [&](const at::Tensor& rows) {
        loader_.read(first_sample, count, rows[0].mutable_data_ptr<int64_t>(),
                     rows[1].mutable_data_ptr<int64_t>(),
                     num_read == 3 ? rows[2].mutable_data_ptr<int64_t>() : nullptr);
    };
    const at::Tensor all = to.view({num_rows(), num_samples, seq_len()});
    if (num_rows() == 3) all[2].copy_(at::arange(seq_len()));
    if (count == num_samples && length == seq_len()) return read(to);
    all[0].zero_();
    all[1].fill_(-1);
    const at::Tensor samples = at::empty({num_read, count, length}, at::kLong);
    read(samples);
    all.narrow(0, 0, num_read).narrow(1, 0, count).narrow(2, 0, length).copy_(samples);
}

void DataFeed::read_ahead() {
    const int64_t num_samples = sizes_.samples_per_rank();
    const bool whole = context_degree() == 1;
    at::Tensor read = whole ? host_buffer() : at::empty({num_rows(), num_samples * seq_len()}, at::kLong);
    read_samples(next_sample_ + mesh_.index(layout::kDataAxes) * num_samples, read);
    ahead_ = {.counted_tokens = read[1].ge(0).sum().item<int64_t>(), .first_position = next_sample_};
    job_tokens_ = at::full({}, ahead_.counted_tokens, at::kLong);
    counting_ = mesh_.group(layout::kDataAxes)
                    .submit({.kind = comm::OpKind::AllReduce, .out = job_tokens_, .in = job_tokens_});
    if (!whole) read = host_buffer().copy_(own_tokens(read));
    const at::Tensor all = on_device(read);
    const int64_t size = sizes_.microbatch_size * own_seq_len();
    for (int64_t i = 0; i < sizes_.num_microbatches; ++i) {
        const auto part = [&](int64_t row) { return all[row].narrow(0, i * size, size); };
        ahead_.microbatches.push_back({.tokens = part(0),
                                       .targets = part(1),
                                       .num_sequences = sizes_.microbatch_size,
                                       .seq_len = own_seq_len(),
                                       .positions = gives_positions() ? part(2) : at::Tensor()});
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
