// Places where the tests end a process without warning, to show that what is on disk survives it. The product
// does nothing there, always; a test executable that links argosy_test_failpoints
// (tests/support/failpoints.cpp) gets a definition that raises SIGKILL at the place that ARGOSY_FAILPOINT
// names: "before_rename", or "shard_finished:3" for the third time that this process comes there. At the one
// of ARGOSY_HANGPOINT the thread hangs, as one does whose disk answers no more.
//
// The places of a save, in their order: step_started, shard_laid_out, shard_half_written, shard_finished,
// manifest_written, before_rename, old_one_aside (where a file system cannot exchange two names),
// after_rename, before_retention.
#pragma once

namespace argosy {

void failpoint(const char* name);

}  // namespace argosy
