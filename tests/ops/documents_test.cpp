// Offsets of documents, against lists written by hand and documents of random lengths.
#include "ops/documents.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"
#include "support/tensors.h"

namespace argosy::ops {
namespace {

struct Ends {
    int64_t num_documents;
    std::vector<int64_t> ends;
    bool operator==(const Ends&) const = default;
};

Ends ends_of(const std::vector<int64_t>& positions, int64_t seq_len) {
    Ends found{0, std::vector<int64_t>(positions.size(), -1)};
    found.num_documents = write_document_ends(positions, seq_len, found.ends);
    return found;
}

std::vector<int32_t> offsets_of(const std::vector<int64_t>& ends, int64_t capacity) {
    const at::Tensor offsets = document_offsets(at::tensor(ends, at::kLong), capacity);
    EXPECT_EQ(offsets.scalar_type(), at::kInt);
    const auto* first = offsets.const_data_ptr<int32_t>();
    return {first, first + offsets.numel()};
}

TEST(Documents, EndWhereTheNextOneOrTheNextSequenceBegins) {
    EXPECT_EQ(ends_of({0, 1, 2, 0, 1, 0, 0, 1, 2, 3}, 5), (Ends{4, {3, 5, 6, 10, 10, 10, 10, 10, 10, 10}}));
    EXPECT_EQ(ends_of({0, 1, 2, 3}, 4), (Ends{1, {4, 4, 4, 4}}));
    EXPECT_EQ(ends_of({0, 1, 2, 3}, 2), (Ends{2, {2, 4, 4, 4}})) << "a sequence begins with a document";
    EXPECT_EQ(ends_of({0, 0, 0}, 3), (Ends{3, {1, 2, 3}})) << "as many documents as tokens";
    EXPECT_EQ(ends_of({5, 6, 0}, 3), (Ends{2, {2, 3, 3}})) << "a document may have begun earlier";
    EXPECT_EQ(ends_of({}, 3), (Ends{0, {}}));
}

TEST(Documents, OfRandomLengths) {
    std::mt19937 random(3);
    for (int i = 0; i < 100; ++i) {
        const int64_t seq_len = 1 + random() % 20, num_sequences = 1 + random() % 4;
        std::vector<int64_t> positions, ends;
        for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
            for (int64_t left = seq_len; left > 0;) {
                const auto length = std::min<int64_t>(left, 1 + random() % 7);
                for (int64_t position = 0; position < length; ++position) positions.push_back(position);
                ends.push_back(std::ssize(positions));
                left -= length;
            }
        }
        const auto num_documents = std::ssize(ends);
        ends.resize(positions.size(), std::ssize(positions));
        ASSERT_EQ(ends_of(positions, seq_len), (Ends{num_documents, ends}));
    }
}

TEST(Documents, TheRoomForThemIsAPowerOfTwo) {
    for (const auto& [documents, capacity] :
         {std::pair{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1000, 1024}}) {
        EXPECT_EQ(document_capacity(documents), capacity);
    }
}

TEST(Documents, OffsetsBehindTheLastDocumentAreThoseOfEmptyOnes) {
    const std::vector<int64_t> ends = {3, 5, 6, 6, 6, 6};
    EXPECT_EQ(offsets_of(ends, 3), (std::vector{0, 3, 5, 6}));
    EXPECT_EQ(offsets_of(ends, 4), (std::vector{0, 3, 5, 6, 6}));
    EXPECT_EQ(offsets_of(ends, 8), (std::vector{0, 3, 5, 6, 6, 6, 6, 6, 6}));
}

TEST(Documents, RefusesEndsOfAnotherNumberOfTokens) {
    std::vector<int64_t> ends(2);
    EXPECT_THROW(write_document_ends(std::vector<int64_t>{0, 1, 2}, 3, ends), RunError);
}

}  // namespace
}  // namespace argosy::ops
