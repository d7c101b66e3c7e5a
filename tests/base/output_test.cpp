// An output has one writer at a time, which replaces only files of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/output.h"
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
