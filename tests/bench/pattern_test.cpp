// That every result is known: whatever the order and the grouping in which contributions are combined,
// rounded to the type at every step, the bits are those that the pattern foretells.
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "bench/element.h"

namespace argosy::bench {
namespace {

constexpr size_t kCount = 600;  // more than a period

std::vector<std::byte> part_of(const Pattern& pattern, const Part& part, size_t chunk_elements = kCount) {
    std::vector<std::byte> bytes(chunk_elements * size_bytes(pattern.type()));
    pattern.fill(part, chunk_elements, 0, bytes);
    return bytes;
}

/// Combines in a random order, two partial results at a time, in the element's own arithmetic as LibTorch has
/// it.
template <class Element>
Element combined(std::vector<Element> values, Reduction reduction, std::mt19937& random) {
    while (values.size() > 1) {
        std::shuffle(values.begin(), values.end(), random);
        const Element a = values.back();
        values.pop_back();
        Element& b = values.back();
        b = reduction == Reduction::Sum ? static_cast<Element>(a + b) : std::max(a, b);
    }
    return values[0];
}

template <class Element>
void expect_predicted(ElementType type, Reduction reduction, int num_ranks) {
    ASSERT_EQ(size_bytes(type), sizeof(Element));
    const Pattern pattern(type, reduction, num_ranks);
    std::vector<std::vector<std::byte>> parts;
    for (int rank = 0; rank < num_ranks; ++rank) parts.push_back(part_of(pattern, Part::of_rank(rank, 0)));
    const auto predicted = part_of(pattern, Part::reduced(0));
    std::mt19937 random(num_ranks);
    for (size_t i = 0; i < kCount; i += 7) {
        std::vector<Element> values(num_ranks);
        for (int rank = 0; rank < num_ranks; ++rank) {
            std::memcpy(&values[rank], &parts[rank][i * sizeof(Element)], sizeof(Element));
        }
        const Element result = combined(values, reduction, random);
        ASSERT_EQ(std::memcmp(&result, &predicted[i * sizeof(Element)], sizeof(Element)), 0)
            << name(type) << " " << name(reduction) << ", " << num_ranks << " ranks, element " << i;
    }
}

void expect_predicted(ElementType type, Reduction reduction, int num_ranks) {
    switch (type) {
        case ElementType::Int8:
            return expect_predicted<int8_t>(type, reduction, num_ranks);
        case ElementType::UInt8:
            return expect_predicted<uint8_t>(type, reduction, num_ranks);
        case ElementType::Int32:
            return expect_predicted<int32_t>(type, reduction, num_ranks);
        case ElementType::UInt32:
            return expect_predicted<uint32_t>(type, reduction, num_ranks);
        case ElementType::Int64:
            return expect_predicted<int64_t>(type, reduction, num_ranks);
        case ElementType::UInt64:
            return expect_predicted<uint64_t>(type, reduction, num_ranks);
        case ElementType::Float16:
            return expect_predicted<c10::Half>(type, reduction, num_ranks);
        case ElementType::Float32:
            return expect_predicted<float>(type, reduction, num_ranks);
        case ElementType::Float64:
            return expect_predicted<double>(type, reduction, num_ranks);
        case ElementType::BFloat16:
            return expect_predicted<c10::BFloat16>(type, reduction, num_ranks);
        case ElementType::Float8E4M3:
            return expect_predicted<c10::Float8_e4m3fn>(type, reduction, num_ranks);
        case ElementType::Float8E5M2:
            return expect_predicted<c10::Float8_e5m2>(type, reduction, num_ranks);
        case ElementType::UInt16:
            ADD_FAILURE() << "no collective reduces it";
    }
}

TEST(Pattern, EveryReductionIsExactInAnyOrder) {
    for (const int num_ranks : {1, 2, 3, 5, 8, 16}) {
        for (const ElementType type : types_named("all")) {
            for (const Reduction reduction : reductions_named("all"))
                expect_predicted(type, reduction, num_ranks);
        }
    }
}

TEST(Pattern, ManyRanksToo) {
    for (const ElementType type : types_named("all")) {
        for (const Reduction reduction : reductions_named("all")) expect_predicted(type, reduction, 300);
    }
}

TEST(Pattern, EveryRankMattersToSomeElement) {
    for (const int num_ranks : {2, 40, 300}) {
        const Pattern pattern(ElementType::Float8E5M2, Reduction::Sum, num_ranks);
        for (int rank = 0; rank < num_ranks; ++rank) {
            const auto part = part_of(pattern, Part::of_rank(rank, 0));
            EXPECT_TRUE(std::ranges::any_of(part, [](std::byte byte) { return byte != std::byte{0}; }))
                << rank;
        }
    }
}

TEST(Pattern, WhatIsMovedDiffersByRankAndPlace) {
    for (const ElementType type : types_named("all")) {
        const Pattern pattern(type, std::nullopt, 8);
        std::set<std::vector<std::byte>> seen;
        for (int rank = 0; rank < 8; ++rank) {
            const auto part = part_of(pattern, Part::of_rank(rank, 0), 1);
            for (int chunk = 0; chunk < 5; ++chunk)
                seen.insert(part_of(pattern, Part::of_rank(rank, chunk), 64));
            if (rank == 0) continue;
            const auto before = part_of(pattern, Part::of_rank(rank - 1, 0), 1);
            for (size_t i = 0; i < part.size(); ++i) EXPECT_NE(part[i], before[i]);
        }
        EXPECT_EQ(seen.size(), 40U) << name(type);
    }
}

TEST(Pattern, APieceIsThatOfTheWhole) {
    const Pattern pattern(ElementType::Int32, std::nullopt, 3);
    const auto whole = part_of(pattern, Part::of_rank(1, 2), 2000);
    std::vector<std::byte> piece(700 * 4);
    pattern.fill(Part::of_rank(1, 2), 2000, 900, piece);
    EXPECT_EQ(std::memcmp(piece.data(), &whole[900 * 4], piece.size()), 0);
}

}  // namespace
}  // namespace argosy::bench
