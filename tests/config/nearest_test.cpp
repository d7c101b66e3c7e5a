#include "config/schema.h"

#include <gtest/gtest.h>

namespace argosy::config {
namespace {

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
}

TEST(Nearest, GuessesNothingIfNothingIsNear) {
    EXPECT_EQ(nearest("training.colour", {"training.seq_len", "training.steps"}), "");
    EXPECT_EQ(nearest("training.steps", {}), "");
}

}  // namespace
}  // namespace argosy::config
