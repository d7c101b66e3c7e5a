#include "config/print.h"

#include <gtest/gtest.h>

#include "config/sample_values.h"

namespace argosy::config {
namespace {

using Lines = std::vector<std::string>;

TEST(Differences, EqualConfigurationsHaveNone) {
    EXPECT_EQ(differences(print_toml({}), print_toml({})), Lines());
    EXPECT_EQ(differences(print_toml(sample_config()), print_toml(sample_config())), Lines());
}

TEST(Differences, EveryKeyThatDiffersHasALine) {
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) {
            if (field.limits.choices.size() == 1) continue;
            JobConfig now;
            field.set(now, sample_value(field));
            const Value before = field.get({});
            EXPECT_EQ(differences(print_toml({}), print_toml(now)),
                      Lines{field.key + ": " + (is_set(before) ? toml_text(before) : "unset") + " then, " +
                            toml_text(sample_value(field)) + " now"});
        }
    }
}

TEST(Differences, KeysOfOtherVersionsAreNamed) {
    EXPECT_EQ(
        differences("[a]\nold = 1\nsame = 2\n\n[b]\n# gone is unset: none\n", "[a]\nsame = 2\nnew = 3\n"),
        (Lines{"a.new: unknown then, 3 now", "a.old: 1 then, unknown now",
               "b.gone: unset then, unknown now"}));
}

TEST(Differences, AKeyThatHasLeftIsOneOnlyIfItHadAnEffect) {
    EXPECT_EQ(differences("[compile]\nside_stream = false\n", ""), Lines());
    EXPECT_EQ(differences("[training]\n# loss_scale_init is unset: by step size\n", ""), Lines());
    EXPECT_EQ(differences("[compile]\nside_stream = true\n", ""),
              Lines{"compile.side_stream: true then, unknown now"});
}

TEST(Differences, ATextThatIsNotAConfigurationHasNoKeys) {
    EXPECT_EQ(differences("", "[a]\nb = 1\n"), Lines{"a.b: unknown then, 1 now"});
    EXPECT_EQ(differences("\xff\n[[[\n = \n#\n", ""), Lines());
}

}  // namespace
}  // namespace argosy::config
