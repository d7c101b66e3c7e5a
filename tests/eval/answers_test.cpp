#include "eval/generation_tasks.h"

#include <gtest/gtest.h>

#include "base/raw_file.h"
#include "base/strict_json.h"

namespace argosy::eval {
namespace {

/// Against the filters and the metric of lm-evaluation-harness, over random texts: record_harness.py.
TEST(Answers, AreTheHarnesss) {
    const std::string file = ARGOSY_HARNESS_FILE;
    const nlohmann::ordered_json rows = parse_json(read_text(file, 1 << 24), file)["answer_texts"];
    ASSERT_EQ(rows.size(), 150u);
    for (const auto& row : rows) {
        const auto text = row["text"].get<std::string>();
        EXPECT_EQ(marked_number(text), row["strict"]) << text;
        EXPECT_EQ(last_number(text), row["flexible"]) << text;
        EXPECT_EQ(is_same_number(text, row["reference"].get<std::string>()), row["match"])
            << text << " ~ " << row["reference"];
    }
}

}  // namespace
}  // namespace argosy::eval
