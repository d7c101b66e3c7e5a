// The samples of a step on all data-parallel ranks together are the loader's next samples, in order, on every
// mesh.
#include "train/data_feed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "comm/values.h"
#include "data/token_files.h"
#include "gpu/device.h"
#include "scratch_folder.h"
#include "support/world.h"

namespace argosy::train {
namespace {

using ::argosy::testing::world;

constexpr int64_t kSeqLen = 3, kNumTokens = 100;  // 33 samples: a few steps are more than an epoch
constexpr int kNumSteps = 6;

std::vector<layout::MeshRequest> meshes() {
    switch (world().size()) {
        case 1:
            return {{}};
        case 2:
            return {{.shard = 2},
                    {.replicate = 2, .shard = 1},
                    {.shard = 1, .tensor = 2},
                    {.pipeline = 2, .shard = 1}};
        default:
            return {{.shard = 4},
                    {.replicate = 2, .shard = 2},
                    {.shard = 2, .tensor = 2},
                    {.pipeline = 2, .replicate = 2, .shard = 1},
                    {.pipeline = 2, .shard = 1, .tensor = 2}};
    }
}

class DataFeedTest : public ::testing::Test {
  protected:
    static std::filesystem::path written(const std::filesystem::path& path) {
        data::write_tokens(path, data::counted_tokens(kNumTokens), kNumTokens);
        return path;
    }

    /// Returns the tokens of the run's samples first .. first+count-1, one after the other.
    std::vector<int64_t> samples(int64_t first, int64_t count) const {
        return samples(loader_, first, count);
    }
    static std::vector<int64_t> samples(const data::Loader& loader, int64_t first, int64_t count) {
        std::vector<int64_t> tokens(count * kSeqLen), targets(count * kSeqLen);
        loader.read(first, count, tokens.data(), targets.data());
        return tokens;
    }

    ScratchFolder folder_;
    data::Loader loader_{written(folder_ / "tokens.h5"), {.seq_len = kSeqLen, .seed = 2, .shuffle = true}};
};

/// Returns this rank's tokens. Checks the batch's shape, and that each target is the successor of its token
/// (the stream counts).
std::vector<int64_t> tokens_of(const StepBatch& batch, const BatchSizes& sizes) {
    EXPECT_EQ(std::ssize(batch.microbatches), sizes.num_microbatches);
    std::vector<int64_t> all;
    for (const model::Batch& microbatch : batch.microbatches) {
        EXPECT_EQ(microbatch.num_sequences, sizes.microbatch_size);
        EXPECT_EQ(microbatch.seq_len, kSeqLen);
        EXPECT_EQ(microbatch.tokens.numel(), sizes.microbatch_size * kSeqLen);
        EXPECT_TRUE((microbatch.tokens + 1).equal(microbatch.targets));
        const auto* tokens = microbatch.tokens.const_data_ptr<int64_t>();
        all.insert(all.end(), tokens, tokens + microbatch.tokens.numel());
    }
    return all;
}

/// COLLECTIVE: the values of all ranks, in the order of the ranks.
std::vector<int64_t> gathered(const std::vector<int64_t>& own, comm::Communicator& group) {
    const at::Tensor in = at::tensor(own, at::kLong), out = at::empty({in.numel() * group.size()}, at::kLong);
    group.run({.kind = comm::OpKind::AllGather, .out = out, .in = in});
    return {out.const_data_ptr<int64_t>(), out.const_data_ptr<int64_t>() + out.numel()};
}

/// Returns the numbers of the samples to which the tokens belong: the file's tokens count from 0.
std::vector<int64_t> numbers_of(const std::vector<int64_t>& tokens) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < tokens.size(); i += kSeqLen) numbers.push_back(tokens[i] / kSeqLen);
    return numbers;
}

TEST_F(DataFeedTest, AStepIsTheLoadersNextSamplesOnEveryMesh) {
    for (const layout::MeshRequest& request : meshes()) {
        comm::Mesh mesh(layout::resolve(request, world().size()), world());
        SCOPED_TRACE(mesh.shape().name());
        const int64_t ranks = mesh.degree(layout::kDataAxes);
        for (const auto& [microbatch, count] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {1, 3}, {2, 2}}) {
            const BatchSizes sizes{ranks * microbatch * count, microbatch, count, kSeqLen};
            DataFeed feed(loader_, mesh, sizes, 0, kNumSteps);
            for (int64_t step = 0; step < kNumSteps; ++step) {
                const StepBatch batch = feed.next();
                feed.read_meanwhile();
                const auto found = gathered(tokens_of(batch, sizes), mesh.group(layout::kDataAxes));
                EXPECT_EQ(found, samples(step * sizes.global_batch, sizes.global_batch)) << "step " << step;
                EXPECT_EQ(batch.counted_tokens, microbatch * count * kSeqLen);
                EXPECT_EQ(batch.job_counted_tokens, sizes.global_batch * kSeqLen);
                EXPECT_EQ(feed.samples(batch), numbers_of(found)) << "step " << step;
            }
        }
    }
}

/// A run that resumes with another batch size on another mesh reads no sample twice and leaves none out.
TEST_F(DataFeedTest, AResumedRunReadsTheNextSample) {
    for (const layout::MeshRequest& request : meshes()) {
        comm::Mesh mesh(layout::resolve(request, world().size()), world());
        SCOPED_TRACE(mesh.shape().name());
        const int64_t ranks = mesh.degree(layout::kDataAxes);
        int64_t next = 0;
        for (const int64_t count : {3, 1, 2}) {
            const BatchSizes sizes{ranks * count, 1, count, kSeqLen};
            DataFeed feed(loader_, mesh, sizes, next, 2);
            for (int step = 0; step < 2; ++step, next += sizes.global_batch) {
                const StepBatch batch = feed.next();
                EXPECT_EQ(batch.first_position, next);
                if (step == 0) feed.read_meanwhile();  // but a run that ends early may not
                const auto found = gathered(tokens_of(batch, sizes), mesh.group(layout::kDataAxes));
                EXPECT_EQ(found, samples(next, sizes.global_batch));
            }
        }
    }
}

std::filesystem::path written_in_documents(const std::filesystem::path& path) {
    constexpr int64_t kDocument = 7;
    data::TokenWriter writer(path, kNumTokens);
    const std::vector<uint32_t> tokens = data::counted_tokens(kNumTokens);
    for (int64_t begin = 0; begin < kNumTokens; begin += kDocument) {
        const auto first = tokens.begin() + begin;
        writer.append_document({first, first + std::min(kDocument, kNumTokens - begin)});
    }
    writer.commit({.vocab_size = kNumTokens, .tokenizer = "none"});
    return path;
}

/// A whole sample of the run, cut to the tokens of `parts`: its tokens, targets and positions.
std::vector<std::vector<int64_t>> sample_in_parts(const data::Loader& loader, int64_t position,
                                                  const std::vector<layout::Range>& parts) {
    std::vector<std::vector<int64_t>> whole(3, std::vector<int64_t>(loader.seq_len())), cut(3);
    loader.read(position, 1, whole[0].data(), whole[1].data(), whole[2].data());
    for (int row = 0; row < 3; ++row) {
        for (const layout::Range& part : parts) {
            const auto first = whole[row].begin() + part.begin;
            cut[row].insert(cut[row].end(), first, first + part.size);
        }
    }
    return cut;
}

// Ranks of a context axis share their samples, and a token counts once for all of them.
TEST_F(DataFeedTest, ARankOfAContextAxisGetsItsPartOfEachSample) {
    if (world().size() == 1) GTEST_SKIP() << "wants ranks to share a sample";
    constexpr int64_t kLength = 8, kMicrobatchSize = 2, kCount = 2, kSamples = kMicrobatchSize * kCount;
    const data::Loader loader(written_in_documents(folder_ / "documents.h5"),
                              {.seq_len = kLength, .seed = 2, .attend_across_documents = false});
    for (const auto balance : {layout::ContextBalance::HeadTail, layout::ContextBalance::None}) {
        comm::Mesh mesh({{1, 1, world().size() / 2, 2, 1}}, world());
        const int64_t num_groups = world().size() / 2, global_batch = num_groups * kSamples;
        DataFeed feed(loader, mesh, {global_batch, kMicrobatchSize, kCount, kLength, balance}, 0, 1);
        const StepBatch batch = feed.next();
        EXPECT_EQ(batch.job_counted_tokens, global_batch * kLength);
        const auto parts = layout::context_parts(balance, kLength, 2, mesh.coordinate(layout::Axis::Context));
        for (int64_t sample = 0; sample < kSamples; ++sample) {
            const model::Batch& microbatch = batch.microbatches[sample / kMicrobatchSize];
            ASSERT_EQ(microbatch.seq_len, kLength / 2);
            const auto expected =
                sample_in_parts(loader, mesh.index(layout::kDataAxes) * kSamples + sample, parts);
            int row = 0;
            for (const at::Tensor& all : {microbatch.tokens, microbatch.targets, microbatch.positions}) {
                const at::Tensor own = all.view({kMicrobatchSize, -1})[sample % kMicrobatchSize];
                EXPECT_TRUE(own.equal(at::tensor(expected[row++], at::kLong))) << "sample " << sample;
            }
        }
    }
}

constexpr bool counts(int64_t token) { return token >= 24 && token % 3 != 1; }  // not the first 8 samples

/// Every third token does not count, nor do all of the first samples.
std::filesystem::path written_with_mask(const std::filesystem::path& path) {
    data::TokenWriter writer(path, kNumTokens);
    const std::vector<uint32_t> tokens = data::counted_tokens(kNumTokens);
    std::vector<uint8_t> mask;
    for (const uint32_t token : tokens) mask.push_back(counts(token));
    writer.append_document(tokens, mask);
    writer.commit({.vocab_size = kNumTokens, .tokenizer = "none"});
    return path;
}

// Whole ranks, and on 2 ranks or fewer whole steps, have no token that counts.
TEST_F(DataFeedTest, TokensThatDoNotCountAreNoTargetsAndNotCounted) {
    const data::Loader loader(written_with_mask(folder_ / "mask.h5"), {.seq_len = kSeqLen, .shuffle = false});
    for (const layout::MeshRequest& request : meshes()) {
        comm::Mesh mesh(layout::resolve(request, world().size()), world());
        SCOPED_TRACE(mesh.shape().name());
        const BatchSizes sizes{4 * mesh.degree(layout::kDataAxes), 2, 2, kSeqLen};
        DataFeed feed(loader, mesh, sizes, 0, kNumSteps);
        for (int64_t step = 0; step < kNumSteps; ++step) {
            const StepBatch batch = feed.next();
            feed.read_meanwhile();
            int64_t own = 0;
            for (const model::Batch& microbatch : batch.microbatches) {
                const auto* tokens = microbatch.tokens.const_data_ptr<int64_t>();
                const auto* targets = microbatch.targets.const_data_ptr<int64_t>();
                for (int64_t i = 0; i < microbatch.tokens.numel(); ++i) {
                    const int64_t next = tokens[i] + 1;
                    EXPECT_EQ(targets[i], counts(next) ? next : -1);
                    own += counts(next) ? 1 : 0;
                }
            }
            int64_t job = 0;
            for (const int64_t token : samples(loader, step * sizes.global_batch, sizes.global_batch))
                job += counts(token + 1) ? 1 : 0;
            EXPECT_EQ(batch.counted_tokens, own) << "step " << step;
            EXPECT_EQ(batch.job_counted_tokens, job) << "step " << step;
        }
    }
}

/// The offsets of the documents in a microbatch, which are cut after `part` tokens, and then the number of
/// its tokens again and again.
std::vector<int32_t> expected_offsets(const model::Batch& microbatch, int64_t part, int64_t count) {
    std::vector<int32_t> offsets;
    const auto* positions = microbatch.positions.const_data_ptr<int64_t>();
    const int64_t num_tokens = microbatch.positions.numel();
    for (int64_t token = 0; token < num_tokens; ++token) {
        if (token % part == 0 || positions[token] == 0) offsets.push_back(static_cast<int32_t>(token));
    }
    offsets.resize(count, static_cast<int32_t>(num_tokens));
    return offsets;
}

// On a GPU a microbatch also has the offsets of its documents. Their room never shrinks. Documents end with
// the parts of a sequence that a rank of a context axis has.
TEST_F(DataFeedTest, AGpusMicrobatchHasTheOffsetsOfItsDocuments) {
    constexpr int64_t kLength = 16, kMicrobatchSize = 2, kCount = 2;
    for (const bool across : {false, true}) {
        const data::Loader loader(written_in_documents(folder_ / "documents.h5"),
                                  {.seq_len = kLength, .seed = 2, .attend_across_documents = across});
        for (const layout::MeshRequest& request :
             {layout::MeshRequest{.shard = world().size()}, {.context = world().size()}}) {
            comm::Mesh mesh(layout::resolve(request, world().size()), world());
            const int context = mesh.degree(layout::Axis::Context);
            const int64_t part = context == 1 ? kLength : kLength / context / 2;
            const int64_t global_batch = mesh.degree(layout::kDataAxes) * kMicrobatchSize * kCount;
            DataFeed feed(loader, mesh, {global_batch, kMicrobatchSize, kCount, kLength}, 0, 2);
            int64_t largest = 0;
            for (int step = 0; step < 2; ++step) {
                const StepBatch batch = feed.next();
                for (const model::Batch& microbatch : batch.microbatches) {
                    const at::Tensor& offsets = microbatch.document_offsets;
                    const bool has_offsets = gpu::holds(microbatch.tokens) && (!across || context > 1);
                    ASSERT_EQ(offsets.defined(), has_offsets);
                    if (!has_offsets) continue;
                    gpu::synchronize();
                    EXPECT_GE(offsets.numel(), largest);
                    EXPECT_EQ(comm::maximum(world(), offsets.numel()), offsets.numel())
                        << "ranks record graphs together";
                    largest = offsets.numel();
                    EXPECT_TRUE(offsets.equal(
                        at::tensor(expected_offsets(microbatch, part, offsets.numel()), at::kInt)))
                        << offsets;
                }
                feed.read_meanwhile();
            }
        }
    }
}

/// Samples from the end on, and tokens after those of a sample, are padding on every mesh.
TEST_F(DataFeedTest, PaddingDoesNotCount) {
    constexpr int64_t kEnd = 7, kLength = 5;
    for (const layout::MeshRequest& request : meshes()) {
        comm::Mesh mesh(layout::resolve(request, world().size()), world());
        SCOPED_TRACE(mesh.shape().name());
        const BatchSizes sizes{.global_batch = 4 * mesh.degree(layout::kDataAxes),
                               .microbatch_size = 2,
                               .num_microbatches = 2,
                               .seq_len = kLength};
        const int64_t num_steps = (kEnd + sizes.global_batch - 1) / sizes.global_batch;
        DataFeed feed(loader_, mesh, sizes, 0, num_steps, kEnd);
        std::vector<int64_t> counted;
        int64_t job_counted = 0;
        for (int64_t step = 0; step < num_steps; ++step) {
            const StepBatch batch = feed.next();
            job_counted += batch.job_counted_tokens;
            std::vector<int64_t> tokens, targets;
            for (const model::Batch& microbatch : batch.microbatches) {
                EXPECT_EQ(microbatch.seq_len, kLength);
                const auto* token = microbatch.tokens.const_data_ptr<int64_t>();
                const auto* target = microbatch.targets.const_data_ptr<int64_t>();
                tokens.insert(tokens.end(), token, token + microbatch.tokens.numel());
                targets.insert(targets.end(), target, target + microbatch.targets.numel());
            }
            tokens = gathered(tokens, mesh.group(layout::kDataAxes));
            targets = gathered(targets, mesh.group(layout::kDataAxes));
            for (size_t i = 0; i < tokens.size(); ++i) {
                if (targets[i] < 0) {
                    EXPECT_EQ(tokens[i], 0);
                    continue;
                }
                EXPECT_LT(i % kLength, kSeqLen);
                EXPECT_EQ(targets[i], tokens[i] + 1);
                counted.push_back(tokens[i]);
            }
        }
        EXPECT_EQ(counted, samples(0, kEnd));
        EXPECT_EQ(job_counted, kEnd * kSeqLen);
    }
}

// Attention needs documents that follow each other.
TEST_F(DataFeedTest, PaddingIsNoPartOfADocument) {
    constexpr int64_t kShort = 8, kLength = 13;
    const data::Loader loader(written_in_documents(folder_ / "documents.h5"),
                              {.seq_len = kShort, .attend_across_documents = false});
    comm::Mesh mesh({{1, 1, world().size(), 1, 1}}, world());
    const BatchSizes sizes{.global_batch = 2 * mesh.degree(layout::kDataAxes),
                           .microbatch_size = 2,
                           .num_microbatches = 1,
                           .seq_len = kLength};
    DataFeed feed(loader, mesh, sizes, 0, 1, sizes.global_batch - 1);
    const at::Tensor positions = feed.next().microbatches[0].positions.view({2, kLength});
    const int64_t first = 2 * mesh.index(layout::kDataAxes);
    for (int64_t sample = 0; sample < 2; ++sample) {
        std::vector<int64_t> expected(kShort);
        std::iota(expected.begin(), expected.end(), 0);
        if (first + sample < sizes.global_batch - 1)
            expected = sample_in_parts(loader, first + sample, {{0, kShort}})[2];
        for (int64_t padding = 0; padding < kLength - kShort; ++padding) expected.push_back(padding);
        EXPECT_TRUE(positions[sample].equal(at::tensor(expected, at::kLong))) << positions[sample];
    }
}

TEST_F(DataFeedTest, WithoutStepsReadsNothing) {
    comm::Mesh mesh(layout::resolve(meshes().front(), world().size()), world());
    DataFeed feed(loader_, mesh, {world().size(), 1, 1, kSeqLen}, 5, 0);
    EXPECT_THROW(feed.next(), RunError);
}

}  // namespace
}  // namespace argosy::train
