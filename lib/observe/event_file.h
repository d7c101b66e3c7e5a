// A TensorBoard event file of scalars, which only grows. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/append_file.h"
#include "observe/event_record.h"

namespace argosy::observe {

class EventFile {
  public:
    /// Makes a file of its own in `folder`, and the folder. Throws RunError.
    explicit EventFile(const std::string& folder);

    /// The scalars of one step; they have left the process when this returns, so whatever ends the process
    /// leaves a file that can be read. The first call's step is where this run begins for readers. Throws
    /// RunError when they cannot be written; the file then ends with the record before.
    void write(int64_t step, const std::vector<Scalar>& scalars);

  private:
    AppendFile file_;
    bool started_ = false;
};

}  // namespace argosy::observe
