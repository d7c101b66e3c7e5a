// An output has one writer at a time, which replaces only files of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/output.h"
#include "base/program.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy {
namespace {

const IsOwn kOwn = begins_with("mark");

TEST(OutputLock, NamesItsHolderAndEndsWithIt) {
    const ScratchFolder folder;
    write_file(folder / "x.partial.lock", "process 1 on a host that is gone");  // a killed process left it
    {
        const OutputLock first(folder / "x");
        EXPECT_EQ(read_file(folder / "x.partial.lock"), this_process());
        EXPECT_ERROR(OutputLock(folder / "x"), UserError, "x is being written by another process",
                     "process " + std::to_string(getpid()) + " on ");
        const OutputLock beside(folder / "y");
    }
    EXPECT_EQ(folder.num_entries(), 0);
    const OutputLock again(folder / "x");
}

TEST(PartialFile, ReplacesItsOwnFilesAndEmptyOnes) {
    const ScratchFolder folder;
    for (const char* there : {"mark 1", "", "mark 2"}) {
        write_file(folder / "x", there);
        PartialFile file(folder / "x", kOwn);
        file.append("mark 3");
        file.commit();
        EXPECT_EQ(read_file(folder / "x"), "mark 3");
    }
    write_file(folder / "x", "a thesis on mark");
    EXPECT_ERROR(PartialFile(folder / "x", kOwn), UserError, "cannot write", "x: it exists",
                 "did not write it");
    EXPECT_EQ(read_file(folder / "x"), "a thesis on mark");
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(PartialFile, ReplacesNoLink) {
    const ScratchFolder folder;
    write_file(folder / "x", "mark 1");
    for (const char* target : {"x", "link", "nothing"}) {
        std::filesystem::create_symlink(target, folder / "link");
        EXPECT_ERROR(PartialFile(folder / "link", kOwn), UserError, "cannot write",
                     "link: it is a symbolic link", "name the path that it leads to");
        std::filesystem::remove(folder / "link");
    }
    EXPECT_ERROR(PartialFile("/dev/stdout", kOwn), UserError, "cannot write /dev/stdout",
                 "- for standard output");
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(ResultFile, IsAFileOrStandardOutput) {
    const ScratchFolder folder;
    {
        ResultFile file(folder / "x", kOwn);
        EXPECT_ERROR(ResultFile(folder / "x", kOwn), UserError, "being written by another process");
        file.write("mark 1");
    }
    EXPECT_EQ(read_file(folder / "x"), "mark 1");
    testing::internal::CaptureStdout();
    ResultFile("-", kOwn).write("mark 2");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "mark 2");
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(RequireSpace, SaysWhatIsNeededAndWhatIsFree) {
    const ScratchFolder folder;
    EXPECT_NO_THROW(require_space(folder / "", 0, "x"));
    EXPECT_ERROR(require_space(folder / "", int64_t{1} << 60, "x"), RunError,
                 "x needs 1152921504606846976 bytes", " free; make room");
}

TEST(AsError, NamesThePathOfAFileSystemError) {
    const ScratchFolder folder;
    std::filesystem::create_symlink("loop", folder / "loop");
    try {
        static_cast<void>(std::filesystem::is_directory(folder / "loop"));
        FAIL();
    } catch (const std::exception& error) {
        EXPECT_EQ(as_error(error).code(), ExitCode::BadInput);
        expect_message(as_error(error).what(),
                       {"cannot use " + (folder / "loop").string() + ": Too many levels",
                        "its symbolic links lead back to it"});
    }
    const std::filesystem::filesystem_error full("copy", "x",
                                                 std::make_error_code(std::errc::no_space_on_device));
    EXPECT_EQ(as_error(full).code(), ExitCode::Failed);
    expect_message(as_error(full).what(), {"cannot use x: No space left on device; make room"});
    EXPECT_EQ(as_error(DamageError("x")).code(), ExitCode::CheckFailed);
    EXPECT_EQ(as_error(std::runtime_error("x")).code(), ExitCode::Failed);
}

TEST(PartialFile, ChecksAgainBeforeItReplaces) {
    const ScratchFolder folder;
    {
        PartialFile file(folder / "x", kOwn);
        write_file(folder / "x", "a thesis on mark");
        EXPECT_ERROR(file.commit(), UserError, "did not write it");
    }
    EXPECT_EQ(read_file(folder / "x"), "a thesis on mark");
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(PartialFile, HasOneWriter) {
    const ScratchFolder folder;
    PartialFile first(folder / "x", kOwn);
    first.append("mark 1");
    EXPECT_ERROR(PartialFile(folder / "x", kOwn), UserError, "being written by another process");
    first.commit();
    EXPECT_EQ(read_file(folder / "x"), "mark 1");
}

}  // namespace
}  // namespace argosy
