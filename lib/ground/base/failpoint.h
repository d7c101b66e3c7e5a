// Failpoints: named points where tests kill the process, to show that the files on disk stay valid. In the
// product failpoint() does nothing. A test executable that links argosy_test_failpoints
// (tests/support/failpoints.cpp) gets a definition that raises SIGKILL at the point that the environment
// variable ARGOSY_FAILPOINT names: "before_rename", or "shard_finished:3" for the third call at that point.
// At the point that ARGOSY_HANGPOINT names, the thread hangs, as it would if the disk no longer answered: for
// ever, or for ARGOSY_HANG_SECONDS.
//
// The points of a save, in order: step_started, shard_laid_out, shard_half_written, shard_finished,
// manifest_written, before_rename, old_one_aside (only where a file system cannot exchange two names),
// after_rename, before_retention. The point of a rank's file after a hang: flight_half_written. The
// point of each line of a file as metrics.jsonl: line_appended.
#pragma once

namespace argosy {

void failpoint(const char* name);

}  // namespace argosy
