#include "train/data_feed.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/time_limit.h"
#include "gpu/device.h"
#include "ops/documents.h"

namespace argosy::train {

at::Tensor own_part(const at::Tensor& whole, layout::ContextBalance balance, const comm::Mesh& mesh) {
    std::vector<at::Tensor> parts;
    for (const layout::Range& part :
         layout::context_parts(balance, whole.size(-1), mesh.degree(layout::Axis::Context),
                               mesh.coordinate(layout::Axis::Context))) {
        parts.push_back(whole.narrow(-1, part.begin, part.size));
    }
    return at::cat(parts, -1);
}

DataFeed::DataFeed(const data::Loader& loader, comm::Mesh& mesh, const BatchSizes& sizes,
                   int64_t first_sample, int64_t num_steps, int64_t end_sample)
    : loader_(loader),
      mesh_(mesh),
      sizes_(sizes),
      next_sample_(first_sample),
      num_steps_(num_steps),
      end_sample_(end_sample) {
    ARGOSY_CHECK(loader.seq_len() <= sizes.seq_len, "samples of {} tokens", loader.seq_len());
    const bool on_gpu = gpu::holds(at::empty({0}, mesh.device()));
    if (!on_gpu) return;
    const int64_t num_device_rows = rows_up_to(gives_positions() ? kDocumentEnds : kTargets);
    for_gpu_.emplace(num_device_rows * num_tokens() * static_cast<int64_t>(sizeof(int64_t)));
}

/// Copies to pinned memory, then, in the order of the stream, to the GPU.
at::Tensor DataFeed::on_device(const at::Tensor& in_memory) {
    if (!for_gpu_) return in_memory;
    while (!for_gpu_->copied.done()) std::this_thread::yield();  // may wait only in the first step
    const at::Tensor read =
        at::from_blob(for_gpu_->pinned.data(), in_memory.sizes(), at::kLong).copy_(in_memory);
    const cuda::StreamView stream(gpu::current_stream());
    for_gpu_->read.record(stream);
    at::Tensor copy = at::empty(read.sizes(), read.options().device(mesh_.device()));
    cuda::copy_to_device(static_cast<std::byte*>(copy.mutable_data_ptr()),
                         {static_cast<const std::byte*>(read.const_data_ptr()), read.nbytes()}, stream);
    for_gpu_->copied.record(stream);
    return copy;
}

/// Starts to read this rank's samples of the next step. The thread calls the loader and nothing else; it
/// writes to memory that this thread allocates.
void DataFeed::start_reading() {
    const int64_t first = next_sample_ + mesh_.index(layout::kDataAxes) * sizes_.samples_per_rank();
    const int64_t count = std::clamp<int64_t>(end_sample_ - first, 0, sizes_.samples_per_rank());
    samples_ = at::empty({num_read_rows(), count, loader_.seq_len()}, at::kLong);
    const auto row = [&](Row number) {
        return samples_.mutable_data_ptr<int64_t>() + number * count * loader_.seq_len();
    };
    auto *tokens = row(kTokens), *targets = row(kTargets);
    auto* positions = loader_.gives_positions() ? row(kPositions) : nullptr;
    reading_ = std::async(std::launch::async, [this, first, count, tokens, targets, positions] {
        const FileWait wait("reading " + loader_.paths());
        loader_.read(first, count, tokens, targets, positions);
    });
}

/// Waits for the samples and adds padding: [num_rows, samples_per_rank() * seq_len]. Throws what the
/// reading has thrown.
at::Tensor DataFeed::take_samples() {
    reading_.get();
    const at::Tensor samples = std::exchange(samples_, {});
    const std::vector<int64_t> sizes = {num_rows(), sizes_.samples_per_rank(), sizes_.seq_len};
    if (samples.sizes() == sizes) return samples.view({num_rows(), -1});
    at::Tensor all = at::zeros(sizes, at::kLong);
    all[kTargets].fill_(-1);
    if (gives_positions()) {
        // The kernels of attention need documents that follow each other, so padding after the documents of a
        // sample is a document of its own.
        const int64_t document = loader_.gives_positions() ? loader_.seq_len() : sizes_.seq_len;
        all[kPositions].copy_(at::arange(sizes_.seq_len).remainder(document));
    }
    all.narrow(0, 0, samples.size(0))
        .narrow(1, 0, samples.size(1))
        .narrow(2, 0, samples.size(2))
        .copy_(samples);
    return all.view({num_rows(), -1});
}

/// Adds a row with the ends of each microbatch's documents, which end at the end of each of this rank's
/// parts.
at::Tensor DataFeed::with_document_ends(const at::Tensor& own) {
    at::Tensor all = at::empty({rows_up_to(kDocumentEnds), num_tokens()}, at::kLong);
    all.narrow(0, 0, num_rows()).copy_(own);
    const auto size = static_cast<size_t>(sizes_.microbatch_size * own_seq_len());
    const auto positions = std::span(all[kPositions].const_data_ptr<int64_t>(), all.size(1));
    const auto ends = std::span(all[kDocumentEnds].mutable_data_ptr<int64_t>(), all.size(1));
    for (size_t begin = 0; begin < positions.size(); begin += size) {
        ops::write_document_ends(positions.subspan(begin, size), own_ranges()[0].size,
                                 ends.subspan(begin, size));
    }
    return all;
}

/// Makes room for the documents of the whole microbatches. Each of a rank's parts of a sequence may cut one
/// document more. Ranks of a context axis, which read the same samples, make the same room.
void DataFeed::make_room_for_documents(const at::Tensor& whole) {
    const int64_t num_cuts = context_degree() == 1 ? 0 : sizes_.microbatch_size * std::ssize(own_ranges());
    const auto size = static_cast<size_t>(sizes_.microbatch_size * sizes_.seq_len);
    const auto positions = std::span(whole[kPositions].const_data_ptr<int64_t>(), whole.size(1));
    std::vector<int64_t> ends(size);
    for (size_t begin = 0; begin < positions.size(); begin += size) {
        const int64_t num_documents =
            ops::write_document_ends(positions.subspan(begin, size), sizes_.seq_len, ends);
        document_capacity_ = std::max(document_capacity_, ops::document_capacity(num_documents + num_cuts));
    }
}

void DataFeed::read_ahead() {
    if (!reading_.valid()) start_reading();
    at::Tensor read = take_samples();
    ahead_ = {.counted_tokens = read[kTargets].ge(0).sum().item<int64_t>(), .first_position = next_sample_};
    if (gives_offsets()) make_room_for_documents(read);
    if (context_degree() > 1) {
        read = own_part(read.view({num_rows(), -1, sizes_.seq_len}), sizes_.balance, mesh_)
                   .view({num_rows(), -1});
    }
    if (gives_offsets()) read = with_document_ends(read);
    job_tokens_ = at::full({}, ahead_.counted_tokens, at::kLong);
    job_capacity_ = at::full({}, document_capacity_, at::kLong);
    using enum comm::OpKind;
    const comm::Op agreed[] = {
        {.kind = AllReduce, .out = job_tokens_, .in = job_tokens_},
        {.kind = AllReduce, .out = job_capacity_, .in = job_capacity_, .reduction = comm::Reduction::Max}};
    counting_ = mesh_.group(layout::kDataAxes, /*parts=*/1, /*number=*/2)
                    .submit(std::span(agreed).first(gives_offsets() ? 2 : 1));
    const at::Tensor all = on_device(read);
    const int64_t size = sizes_.microbatch_size * own_seq_len();
    for (int64_t i = 0; i < sizes_.num_microbatches; ++i) {
        const auto part = [&](Row row) { return all[row].narrow(0, i * size, size); };
        ahead_.microbatches.push_back({.tokens = part(kTokens),
                                       .targets = part(kTargets),
                                       .num_sequences = sizes_.microbatch_size,
                                       .seq_len = own_seq_len(),
                                       .positions = gives_positions() ? part(kPositions) : at::Tensor()});
        if (gives_offsets()) ahead_document_ends_.push_back(part(kDocumentEnds));
    }
    next_sample_ += sizes_.global_batch;
    if (++num_read_ < num_steps_) start_reading();
}

StepBatch DataFeed::next() {
    ARGOSY_CHECK(counting_.active() || num_read_ < num_steps_, "all {} steps are read", num_steps_);
    if (!counting_.active()) read_ahead();
    counting_.wait();
    ahead_.job_counted_tokens = job_tokens_.item<int64_t>();
    if (gives_offsets()) {
        document_capacity_ = job_capacity_.item<int64_t>();
        for (size_t i = 0; i < ahead_document_ends_.size(); ++i) {
            ahead_.microbatches[i].document_offsets =
                ops::document_offsets(ahead_document_ends_[i], document_capacity_);
        }
        ahead_document_ends_.clear();
    }
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
