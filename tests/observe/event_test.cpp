// The bytes of event files; tests/pretrain/tensorboard_test.py tests that TensorBoard reads them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "base/error.h"
#include "observe/tensorboard.h"
#include "scratch_folder.h"

namespace argosy::observe {
namespace {

using std::string_literals::operator""s;

TEST(Crc32c, OfRfc3720) {
    std::string rising, falling;
    for (char byte = 0; byte < 32; ++byte) {
        rising += byte;
        falling.insert(falling.begin(), byte);
    }
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aa);
    EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43);
    EXPECT_EQ(crc32c(rising), 0x46dd794e);
    EXPECT_EQ(crc32c(falling), 0x113fdb5c);
    EXPECT_EQ(crc32c("123456789"), 0xe3069283);
    EXPECT_EQ(crc32c(""), 0);
}

TEST(EventRecord, VersionByHand) {
    EXPECT_EQ(version_event({0.5, 0}),
              "\x09\0\0\0\0\0\0\xe0\x3f\x10\0\x1a\x0d"
              "brain.Event:2"s);
}

TEST(EventRecord, StartByHand) {
    EXPECT_EQ(start_event({0.5, 300}), "\x09\0\0\0\0\0\0\xe0\x3f\x10\xac\x02\x3a\x02\x08\x01"s);
}

TEST(EventRecord, ScalarsByHand) {
    EXPECT_EQ(scalars_event({0.5, 300}, {{"lr", 1.0}, {"a", -2.5}}),
              "\x09\0\0\0\0\0\0\xe0\x3f\x10\xac\x02\x2a\x15"
              "\x0a\x09\x0a\x02lr\x15\0\0\x80\x3f"
              "\x0a\x08\x0a\x01"s +
                  "a\x15\0\0\x20\xc0"s);
}

TEST(EventRecord, LengthsOf128AndMoreTakeTwoBytes) {
    const std::string tag(200, 'x');
    EXPECT_NE(scalars_event({}, {{tag, 0}}).find("\x0a\xc8\x01" + tag), std::string::npos);
}

TEST(EventRecord, FrameByHand) {
    const std::string frame = framed("123456789");
    EXPECT_EQ(frame.substr(0, 8), "\x09\0\0\0\0\0\0\0"s);
    EXPECT_EQ(frame.substr(12, 9), "123456789");
    // 0xe3069283 rotated right by 15 is 0x2507c60d; + 0xa282ead8 is 0xc78ab0e5.
    EXPECT_EQ(frame.substr(21), "\xe5\xb0\x8a\xc7");
    EXPECT_EQ(frame.size(), 25);
}

std::string message_of(EventFile& file, int64_t step) {
    try {
        file.write(step, {{"loss", 1}});
    } catch (const RunError& error) {
        return error.what();
    }
    return "did not throw";
}

std::string only_file(const ScratchFolder& folder) {
    return std::filesystem::directory_iterator(folder / "tb")->path().string();
}

TEST(EventFile, EachRunHasItsOwnFile) {
    const ScratchFolder folder;
    const EventFile first((folder / "tb").string()), second((folder / "tb").string());
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "tb")) {
        EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0);
        EXPECT_GT(entry.file_size(), 0);
        names.insert(entry.path());
    }
    EXPECT_EQ(names.size(), 2);
}

TEST(EventFile, StartsItsRunOnce) {
    const ScratchFolder folder;
    EventFile file((folder / "tb").string());
    const auto size_of = [&] { return std::filesystem::file_size(only_file(folder)); };
    const auto empty = size_of();
    file.write(5, {{"loss", 1}});
    const auto one = size_of();
    file.write(6, {{"loss", 1}});
    EXPECT_EQ(one - empty, size_of() - one + framed(start_event({1e9, 5})).size());
    EXPECT_NE(read_file(only_file(folder)).find(start_event({1e9, 5}).substr(9)), std::string::npos);
}

TEST(EventFile, AFullDiskGivesAClearErrorAndLeavesWholeRecords) {
    const ScratchFolder folder;
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old_limit{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
    {
        EventFile file((folder / "tb").string());
        file.write(1, {{"loss", 1}});
        const std::string whole = read_file(only_file(folder));
        const rlimit few_bytes_more{whole.size() + 10, old_limit.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &few_bytes_more), 0);
        const std::string message = message_of(file, 2);
        setrlimit(RLIMIT_FSIZE, &old_limit);
        EXPECT_NE(message.find(only_file(folder)), std::string::npos) << message;
        EXPECT_NE(message.find("File too large"), std::string::npos) << message;
        EXPECT_EQ(read_file(only_file(folder)), whole);
    }
    std::signal(SIGXFSZ, old_handler);
}

TEST(EventFile, AFolderThatCannotBeMadeGivesAClearError) {
    const ScratchFolder folder;
    write_file(folder / "tb", "a file in its place");
    try {
        const EventFile file((folder / "tb").string());
        FAIL() << "did not throw";
    } catch (const PathError& error) {
        EXPECT_NE(std::string(error.what()).find((folder / "tb").string()), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("job.dump_folder"), std::string::npos);
    }
}

}  // namespace
}  // namespace argosy::observe
