#include "checkpoint/step_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;

TEST(StepFolder, IsFoundByItsName) {
    const ScratchFolder folder;
    EXPECT_EQ(step_name(100), "step-00000100");
    EXPECT_EQ(step_name(123456789012), "step-123456789012");
    for (const char* name :
         {"step-00000100", "step-123456789012", "step-00000020", "step-00000030.partial", "step-40",
          "step-000000050", "step-00000060x", "xstep-00000070", "step--0000080", "other"}) {
        fs::create_directory(folder / name);
    }
    write_file(folder / "step-00000090", "a file");
    EXPECT_EQ(whole_steps(folder / ""), (Steps{20, 100, 123456789012}));
    EXPECT_EQ(whole_steps(folder / "absent"), Steps());
    EXPECT_ERROR(whole_steps(folder / "step-00000090"), UserError, "cannot list the checkpoints");
}

TEST(StepFolder, NamesAreReadAsTheyAreWritten) {
    EXPECT_EQ(parse_step_name("step-00000100"), 100);
    for (const char* name : {"step-100", "step-00000100.partial", "step-00000100.aside", "step-", "x", ""})
        EXPECT_EQ(parse_step_name(name), std::nullopt) << name;
}

TEST(StepFolder, StartsWithoutWhatAttemptsBeforeLeft) {
    const ScratchFolder folder;
    const fs::path run = folder / "a/b/run";
    const fs::path partial = start_step(run, 5, 2);
    EXPECT_EQ(partial, run / "step-00000005.partial");
    write_file(partial / "rest", "x");
    fs::create_directories(run / "step-00000003.partial/deep");
    fs::create_directories(run / "step-00000004.replaced.partial");
    fs::create_directories(run / "step-00000004.aside-2.partial");
    fs::create_directories(run / "step-00000004-mine.partial");
    fs::create_directories(run / "step-00000002.replaced");
    fs::create_directories(run / "step-00000002");
    fs::create_directories(run / "step-00000001.replaced");
    EXPECT_EQ(start_step(run, 5, 2), partial);
    EXPECT_TRUE(fs::is_empty(partial));
    EXPECT_FALSE(fs::exists(run / "step-00000003.partial"));
    EXPECT_FALSE(fs::exists(run / "step-00000004.replaced.partial"));
    EXPECT_FALSE(fs::exists(run / "step-00000004.aside-2.partial"));
    EXPECT_TRUE(fs::exists(run / "step-00000004-mine.partial"));
    EXPECT_FALSE(fs::exists(run / "step-00000002.replaced"));
    EXPECT_TRUE(fs::exists(run / "step-00000001.replaced"));  // the only one of its step
    EXPECT_EQ(whole_steps(run), (Steps{1, 2}));
    EXPECT_EQ(step_path(run, 1), run / "step-00000001.replaced");
    EXPECT_EQ(step_path(run, 9), run / "step-00000009");
    EXPECT_ERROR(start_step("/dev/null/run", 1, 2), UserError, "/dev/null is not a folder");
}

TEST(StepFolder, ReplacesAStepOfTheSameNumber) {
    Random random(1);
    const ScratchFolder folder;
    const Sample first = random_sample(random, 4), second = random_sample(random, 7);
    write_step(random, folder / "", first, 3);
    const fs::path step = write_step(random, folder / "", second, 2);
    EXPECT_EQ(Checkpoint(step).tensors().size(), 7);
    EXPECT_EQ(Checkpoint(step).faults(), std::vector<std::string>());
    EXPECT_FALSE(fs::exists(step / shard_name(0, 3)));
    EXPECT_EQ(folder.num_entries(), 1);
}

class Commit : public ::testing::Test {
  protected:
    /// Two writers of one tensor in halves of its columns; the second one may believe in another save or
    /// plan.
    void write() { write(kNonce, halves()); }
    void write(const Hash& nonce, const SavePlan& plan) {
        partial_ = start_step(folder_ / "", 7, 2);
        write_shard(kNonce, halves(), 0);
        write_shard(nonce, plan, 1);
    }
    static SavePlan halves(int dim = 1, std::vector<int64_t> shape = {4, 4}) {
        return {.grid = {2},
                .tensors = {{{"w", ElementType::UInt8, std::move(shape)}, {{.dim = dim, .parts = 2}}}}};
    }
    void write_shard(const Hash& nonce, const SavePlan& plan, int writer) {
        TensorFile file = TensorFile::shard(partial_, nonce, plan, writer);
        file.append(0, std::vector<std::byte>(slabs_of(plan, writer).at(0).num_bytes()));
        file.finish();
    }
    void commit() { commit_step(folder_ / "", sample_description(), kNonce, halves(), {}); }
    void expect_refused(std::vector<std::string> parts) {
        try {
            commit();
            ADD_FAILURE() << "committed";
        } catch (const UserError& error) {
            expect_message(error.what(), parts);
        }
        EXPECT_EQ(whole_steps(folder_ / ""), Steps());
    }

    static constexpr Hash kNonce{1, 2};
    ScratchFolder folder_;
    fs::path partial_;
};

TEST_F(Commit, TakesShardsThatFit) {
    write();
    commit();
    EXPECT_EQ(whole_steps(folder_ / ""), Steps{7});
}

TEST_F(Commit, RefusesShardsThatDoNotFit) {
    const Hash expected = set_of(kNonce, halves());
    write({1, 3}, halves());
    expect_refused({shard_name(1, 2), "foreign shard", set_of({1, 3}, halves()).hex(), expected.hex()});
    for (const SavePlan& other : {halves(0), halves(1, {4, 5})}) {
        write(kNonce, other);
        expect_refused({shard_name(1, 2), "foreign shard", set_of(kNonce, other).hex(), expected.hex()});
    }
    write();
    fs::remove(partial_ / shard_name(1, 2));
    expect_refused({shard_name(1, 2), "No such file"});
    write();
    fs::resize_file(partial_ / shard_name(1, 2), 600);
    expect_refused({shard_name(1, 2), "truncated"});
}

TEST(StepFolder, OfAnotherStepsNameIsRefused) {
    Random random(1);
    const ScratchFolder folder;
    const fs::path step = write_step(random, folder / "", random_sample(random, 4), 2);
    for (const char* own : {"step-00000007.replaced", "step-00000007.aside-2", "weights"}) {
        fs::rename(step, folder / own);
        EXPECT_EQ(Checkpoint(folder / own).description().step, 7);
        fs::rename(folder / own, step);
    }
    for (const char* other : {"step-00000008", "step-00000008.aside"}) {
        fs::rename(step, folder / other);
        EXPECT_ERROR(Checkpoint{folder / other}, UserError, other, "holds step 7",
                     "rename it to step-00000007");
        EXPECT_ERROR(Checkpoint{folder / other / ""}, UserError, other, "holds step 7");
        fs::rename(folder / other, step);
    }
}

TEST(Retention, RemovesTheOldestAndNeverTheLast) {
    const Steps steps = {10, 20, 30, 40, 50};
    EXPECT_EQ(steps_to_remove(steps, {}), Steps());
    EXPECT_EQ(steps_to_remove(steps, {.keep_every = 20}), Steps());
    EXPECT_EQ(steps_to_remove(steps, {.keep_latest = 2}), (Steps{10, 20, 30}));
    EXPECT_EQ(steps_to_remove(steps, {.keep_latest = 1, .keep_every = 20}), (Steps{10, 30}));
    EXPECT_EQ(steps_to_remove(steps, {.keep_latest = 9}), Steps());
    EXPECT_EQ(steps_to_remove({}, {.keep_latest = 1}), Steps());

    const ScratchFolder folder;
    for (const int64_t step : steps) fs::create_directories(folder / step_name(step) / "deep");
    remove_old_steps(folder / "", {.keep_latest = 2, .keep_every = 20});
    EXPECT_EQ(whole_steps(folder / ""), (Steps{20, 40, 50}));
    EXPECT_EQ(folder.num_entries(), 3);
    remove_old_steps(folder / "absent", {.keep_latest = 2});
    write_file(folder / "file", "");
    remove_old_steps(folder / "file", {.keep_latest = 2});  // a warning, not an error
}

TEST(PartialFolder, AppearsWholeOrNotAtAll) {
    const ScratchFolder folder;
    const fs::path place = folder / "a/export/";
    fs::create_directories(folder / "a/export.partial/left");
    {
        const PartialFolder dropped(place);
        EXPECT_EQ(dropped.path(), folder / "a/export.partial");
        EXPECT_FALSE(fs::exists(dropped.path()));
        fs::create_directory(dropped.path());
        write_file(dropped.path() / "x", "1");
    }
    EXPECT_TRUE(fs::is_empty(folder / "a"));
    {
        PartialFolder kept(place);
        fs::create_directories(kept.path() / "deep");
        write_file(kept.path() / "deep/x", "2");
        publish(kept.path(), folder / "a/export", Replace::No);
    }
    EXPECT_EQ(read_file(place / "deep/x"), "2");
    EXPECT_FALSE(fs::exists(folder / "a/export.partial"));
}

TEST(PartialFolder, ReplacesOnlyWhenItMay) {
    const ScratchFolder folder;
    fs::create_directory(folder / "folder");
    write_file(folder / "folder/old", "");
    write_file(folder / "file", "old");
    for (const char* place : {"folder", "file"}) {
        PartialFolder refused(folder / place);
        write_file(refused.path(), "new");
        EXPECT_ERROR(publish(refused.path(), folder / place, Replace::No), UserError, place,
                     "exists already");
    }
    EXPECT_TRUE(fs::exists(folder / "folder/old"));
    EXPECT_EQ(read_file(folder / "file"), "old");
    {
        PartialFolder file(folder / "folder");  // a file in place of a folder
        write_file(file.path(), "new");
        publish(file.path(), folder / "folder", Replace::Yes);
        PartialFolder made(folder / "file");  // and the other way round
        fs::create_directory(made.path());
        publish(made.path(), folder / "file", Replace::Yes);
    }
    EXPECT_EQ(read_file(folder / "folder"), "new");
    EXPECT_TRUE(fs::is_directory(folder / "file"));
    EXPECT_EQ(folder.num_entries(), 2);
}

TEST(PartialFolder, IsReplacedWhereNamesCannotBeExchangedToo) {
    const ScratchFolder folder;
    for (const char* content : {"1", "2", "3"}) {
        const fs::path made = partial_path(folder / "x");
        fs::create_directory(made);
        write_file(made / "content", content);
        fs::create_directories(folder / "x");
        fs::create_directories(replaced_path(folder / "x") / "left");
        replace_in_order(made, folder / "x");
        EXPECT_EQ(read_file(folder / "x/content"), content);
        EXPECT_EQ(folder.num_entries(), 1);
    }
    write_file(folder / "y.partial", "2");
    write_file(folder / "y", "1");
    replace_in_order(folder / "y.partial", folder / "y");
    EXPECT_EQ(read_file(folder / "y"), "2");
    EXPECT_EQ(folder.num_entries(), 2);
}

/// Killed between the two renames: the old one is back before anything else is done to it.
TEST(PartialFolder, PutsBackWhatLiesAside) {
    const ScratchFolder folder;
    fs::create_directory(replaced_path(folder / "x"));
    write_file(replaced_path(folder / "x") / "content", "old");
    fs::create_directory(partial_path(folder / "x"));
    { const PartialFolder dropped(folder / "x/"); }
    EXPECT_EQ(read_file(folder / "x/content"), "old");
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(PartialFolder, RefusesASecondWriter) {
    const ScratchFolder folder;
    write_file(folder / "x.partial.lock", "");  // a killed process left it
    {
        PartialFolder first(folder / "x");
        fs::create_directory(first.path());
        write_file(first.path() / "content", "new");
        EXPECT_ERROR(PartialFolder(folder / "x/"), UserError,
                     "x is being written by another process (process ", std::to_string(getpid()) + " on ");
        { const PartialFolder beside(folder / "y"); }
        EXPECT_TRUE(fs::exists(first.path() / "content"));
        publish(first.path(), folder / "x", Replace::No);
    }
    EXPECT_TRUE(fs::exists(folder / "x" / "content"));
    EXPECT_EQ(folder.num_entries(), 1);
    const PartialFolder again(folder / "x");
}

TEST(PartialFolder, CannotBeMadeWhereNothingCanBeWritten) {
    EXPECT_ERROR(PartialFolder{"/dev/null/x/y"}, UserError, "/dev/null is not a folder");
}

TEST(RemoveQuietly, NeverThrows) {
    const ScratchFolder folder;
    remove_quietly(folder / "absent");
    fs::create_directories(folder / "x/y");
    write_file(folder / "x/y/z", "");
    remove_quietly(folder / "x");
    remove_quietly("/proc/self/fd");  // cannot be removed by anybody: a warning
    EXPECT_EQ(folder.num_entries(), 0);
}

}  // namespace
}  // namespace argosy::checkpoint
