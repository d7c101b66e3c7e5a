#include "base/text.h"

#include <gtest/gtest.h>

namespace argosy {
namespace {

TEST(EditDistance, CountsSwappedNeighboursOnce) {
    EXPECT_EQ(edit_distance("stesp", "steps"), 1);
    EXPECT_EQ(edit_distance("ab", "ba"), 1);
    EXPECT_EQ(edit_distance("inptu", "input"), 1);
    EXPECT_EQ(edit_distance("abc", "cba"), 2);
}

TEST(EditDistance, CountsInsertedRemovedAndReplacedLetters) {
    EXPECT_EQ(edit_distance("", ""), 0);
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance("abc", ""), 3);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
    EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
    EXPECT_EQ(edit_distance("steps", "steps"), 0);
}

TEST(Nearest, PrefersNamesToSections) {
    const std::vector<std::string> keys = {"training.seq_len", "training.steps", "model.name",
                                           "optimizer.name"};
    EXPECT_EQ(nearest("training.seq_length", keys), "training.seq_len");
    EXPECT_EQ(nearest("trainning.steps", keys), "training.steps");
    EXPECT_EQ(nearest("model.steps", keys), "training.steps");
    EXPECT_EQ(nearest("steps", keys), "training.steps");
    EXPECT_EQ(nearest("optimiser.nam", keys), "optimizer.name");
    EXPECT_EQ(nearest("modl.nam", keys), "model.name");
    EXPECT_EQ(nearest("training.stesp", keys), "training.steps");
}

TEST(Nearest, GuessesNothingIfNothingIsNear) {
    EXPECT_EQ(nearest("training.colour", {"training.seq_len", "training.steps"}), "");
    EXPECT_EQ(nearest("training.steps", {}), "");
}

}  // namespace
}  // namespace argosy
