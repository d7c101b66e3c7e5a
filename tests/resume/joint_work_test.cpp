// Work beside training: all ranks learn alike when it ended and how.
#include "resume/joint_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/raw_file.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "support/world.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;
using ::argosy::testing::world;

bool is_last() { return world().rank() == world().size() - 1; }

TEST(JointWork, EndsForAllWhenTheSlowestHas) {
    JointWork work(world());
    EXPECT_FALSE(work.under_way());
    std::atomic<bool> may_end = false;
    work.begin([&] {
        while (is_last() && !may_end) std::this_thread::yield();
    });
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(work.ended());
    EXPECT_TRUE(work.under_way());
    may_end = true;
    work.wait();
    EXPECT_FALSE(work.under_way());
    EXPECT_FALSE(work.failure());
}

TEST(JointWork, ARankMayHaveNoPart) {
    JointWork work(world());
    int done = 0;
    for (int i = 1; i <= 3; ++i) {
        work.begin(is_last() ? [&] { ++done; } : std::function<void()>());
        work.wait();
        EXPECT_EQ(done, is_last() ? i : 0);
    }
}

TEST(JointWork, AllLearnOfTheFaultsOfEachRank) {
    JointWork work(world());
    const int last = world().size() - 1;
    const auto find = [&](const auto& fail) {
        return work.find_faults([&]() -> std::vector<std::string> {
            if (is_last()) fail();
            return {fmt::format("rank {} of {}", world().rank(), last), "of all"};
        });
    };
    std::vector<std::string> of_others =
        last == 0 ? std::vector<std::string>{} : std::vector<std::string>{"of all"};
    for (int rank = 0; rank < last; ++rank) of_others.push_back(fmt::format("rank {} of {}", rank, last));
    const auto with = [&](const std::string& text) {
        std::vector<std::string> all = of_others;
        all.push_back(text);
        std::ranges::sort(all);
        return all;
    };

    const Faults path = find([] {
        throw fs::filesystem_error("", "gone", make_error_code(std::errc::no_such_file_or_directory));
    });
    EXPECT_EQ(path.texts, with("cannot use gone: No such file or directory"));
    EXPECT_EQ(path.damaged, last > 0);
    EXPECT_FALSE(path.unreadable);

    const Faults bytes = find([] { throw DamageError("a byte"); });
    EXPECT_EQ(bytes.texts, with("a byte"));
    EXPECT_TRUE(bytes.damaged);
    EXPECT_FALSE(bytes.unreadable);
    EXPECT_ERROR(bytes.refuse(), DamageError, "a byte");

    const Faults machine = find([] { throw RunError("a disk"); });
    EXPECT_EQ(machine.texts, with("a disk"));
    EXPECT_TRUE(machine.unreadable);

    EXPECT_TRUE(work.find_faults([] { return std::vector<std::string>{}; }).texts.empty());
}

TEST(JointWork, AllLearnOfTheFirstFailure) {
    JointWork work(world());
    work.begin([] {
        if (is_last()) throw RunError("no space on rank {}", world().rank());
    });
    work.wait();
    ASSERT_TRUE(work.failure());
    EXPECT_EQ(work.failure()->rank, world().size() - 1);
    EXPECT_EQ(work.failure()->reason, fmt::format("no space on rank {}", world().size() - 1));
    EXPECT_EQ(work.failure()->code, ExitCode::Failed);

    work.begin([] { throw UserError("rank {} finds it damaged", world().rank()); });
    work.wait();
    EXPECT_EQ(work.failure()->rank, 0);
    EXPECT_EQ(work.failure()->reason, "rank 0 finds it damaged");
    EXPECT_EQ(work.failure()->code, ExitCode::BadInput);

    work.begin(nullptr);
    work.wait();
    EXPECT_FALSE(work.failure()) << "of the work that ended last";
}

TEST(JointWork, RunThrowsOnEveryRank) {
    JointWork work(world());
    const std::string place = world().size() == 1 ? "" : fmt::format("rank {}: ", world().size() - 1);
    EXPECT_ERROR(work.run([] {
        if (is_last()) throw std::runtime_error("it broke");
    }),
                 JobError, place + "it broke");
    EXPECT_ERROR(work.run([] {
        if (is_last()) throw UserError("it is damaged");
    }),
                 UserError, place + "it is damaged");
    work.run([] {});
}

TEST(JointWork, IsWaitedForByItsEnd) {
    bool done = false;
    {
        JointWork work(world());
        work.begin([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            done = true;
        });
    }
    EXPECT_TRUE(done);
}

/// The process would exit with the watchdog's code if the time limit counted from the start.
TEST(JointWork, HasNoTimeLimitWhileBytesMove) {
    constexpr double kStallSeconds = 1;
    const ScratchFolder folder;
    JointWork work(world(), kStallSeconds);
    work.run([&] {
        const RawFile file = RawFile::create(folder / "slow");
        for (int64_t byte = 0; byte < 15; ++byte) {
            file.write_at(byte, std::as_bytes(std::span("x", 1)));
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    });
    EXPECT_FALSE(work.failure());
}

/// As when the disk hangs while an error unwinds. What the work reads is its own, and lives on with it.
TEST(JointWork, IsLeftBehindWhereItHangs) {
    struct Shared {
        std::promise<void> disk_answers, ended;
    };
    const auto shared = std::make_shared<Shared>();
    std::future<void> ended = shared->ended.get_future();
    const auto began = std::chrono::steady_clock::now();
    {
        JointWork work(world(), JointWork::kNoLimit, /*patience_seconds=*/0.05);
        work.begin([shared] {
            // Long, and still an end of a test that fails.
            shared->disk_answers.get_future().wait_for(std::chrono::seconds(20));
            shared->ended.set_value();
        });
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
    EXPECT_EQ(ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    shared->disk_answers.set_value();
    ended.wait();
}

}  // namespace
}  // namespace argosy::resume
