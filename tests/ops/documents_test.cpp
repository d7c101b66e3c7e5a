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

/// Random documents in sequences, of which a rank has two parts of equal length, one behind the other.
struct Parts {
    explicit Parts(std::mt19937& random)
        : size(1 + random() % 6),
          num_sequences(1 + random() % 3),
          first(random() % 5),
          second(first + size + random() % 5),
          seq_len(second + size + random() % 3) {
        for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
            std::vector<int64_t>& own = positions.emplace_back();
            for (int64_t token = 0, position = 0; token < seq_len; ++token, ++position) {
                if (random() % 4 == 0) position = 0;
                own.push_back(token == 0 ? position = 0 : position);
            }
        }
    }
    /// The positions of the tokens [begin, begin + size) of each sequence.
    at::Tensor positions_of(int64_t begin) const {
        std::vector<int64_t> part;
        for (const auto& own : positions)
            part.insert(part.end(), own.begin() + begin, own.begin() + begin + size);
        return at::tensor(part, at::kLong);
    }
    /// The offsets of the documents in both parts, with room for some more.
    at::Tensor offsets() const {
        std::vector<int64_t> own;
        for (const auto& all : positions) {
            for (const int64_t begin : {first, second})
                own.insert(own.end(), all.begin() + begin, all.begin() + begin + size);
        }
        std::vector<int64_t> ends(own.size());
        const int64_t num_documents = write_document_ends(own, size, ends);
        return document_offsets(at::tensor(ends, at::kLong), num_documents + 2);
    }
    /// Whether the token at `query` of a sequence sees that at `key`.
    bool sees(int64_t sequence, int64_t query, int64_t key) const {
        return key <= query && key >= query - positions[sequence][query];
    }

    int64_t size, num_sequences, first, second, seq_len;
    std::vector<std::vector<int64_t>> positions = {};
};

/// Whether each query, from token `query` of its sequence on, sees in its segment what it sees in its
/// documents of the keys from token `key` on.
bool show_the_documents(const Parts& parts, const Segments& segments, int64_t query, int64_t key,
                        int64_t num_keys, bool causal) {
    const at::Tensor &q = segments.query_offsets, &k = segments.key_offsets;
    if (q.scalar_type() != at::kInt || k.scalar_type() != at::kInt || q.numel() != k.numel()) return false;
    const auto *q_end = q.const_data_ptr<int32_t>(), *k_end = k.const_data_ptr<int32_t>();
    if (q_end[0] != 0 || k_end[0] != 0 || q_end[q.numel() - 1] != parts.num_sequences * parts.size ||
        k_end[q.numel() - 1] != parts.num_sequences * num_keys)
        return false;
    for (int64_t i = 1; i < q.numel(); ++i) {
        if (q_end[i] < q_end[i - 1] || k_end[i] < k_end[i - 1]) return false;
        for (int64_t row = q_end[i - 1]; row < q_end[i]; ++row) {
            const int64_t sequence = row / parts.size, place = query + row % parts.size;
            const int64_t last = causal ? k_end[i] - (q_end[i] - row) : k_end[i] - 1;
            for (int64_t column = 0; column < parts.num_sequences * num_keys; ++column) {
                const bool sees =
                    column / num_keys == sequence && parts.sees(sequence, place, key + column % num_keys);
                if (sees != (column >= k_end[i - 1] && column <= last)) return false;
            }
        }
    }
    return true;
}

TEST(Segments, OfPartsShowEachQueryItsDocument) {
    std::mt19937 random(4);
    for (int i = 0; i < 300; ++i) {
        const Parts parts(random);
        for (const int64_t begin : {parts.first, parts.second}) {
            const at::Tensor positions = parts.positions_of(begin), all = parts.offsets();
            const at::Tensor offsets = document_offsets_of_part(
                all, 2 * parts.size, {begin == parts.first ? 0 : parts.size, parts.size});
            const Segments until = segments_to_queries(offsets, positions, parts.size, begin + parts.size);
            ASSERT_TRUE(show_the_documents(parts, until, begin, 0, begin + parts.size, /*causal=*/true))
                << "part " << i;
            ASSERT_EQ(until.query_offsets.numel(), all.numel() + parts.num_sequences)
                << "the room for documents, and a segment for each sequence";
            const Segments itself = segments_to_queries(offsets, positions, parts.size, parts.size);
            ASSERT_TRUE(show_the_documents(parts, itself, begin, begin, parts.size, /*causal=*/true));
            for (int64_t key = 0; key < begin; ++key) {
                for (int64_t num_keys = 1; key + num_keys <= begin; ++num_keys) {
                    const Segments before =
                        segments_before_queries(positions, parts.size, num_keys, begin - key);
                    ASSERT_TRUE(show_the_documents(parts, before, begin, key, num_keys, /*causal=*/false));
                    ASSERT_EQ(before.query_offsets.numel(), 4 * parts.num_sequences);
                }
            }
        }
    }
}

}  // namespace
}  // namespace argosy::ops
