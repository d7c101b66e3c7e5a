#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace argosy {
namespace {

TEST(Listed, NamesTheFirstItemsAndCountsTheOthers) {
    const std::vector<int> ranks = {3, 5, 9};
    EXPECT_EQ(listed(std::vector<int>{}), "");
    EXPECT_EQ(listed(ranks), "3, 5, 9");
    EXPECT_EQ(listed(ranks, 3), "3, 5, 9");
    EXPECT_EQ(listed(ranks, 2), "3, 5 and 1 more");
}

}  // namespace
}  // namespace argosy
