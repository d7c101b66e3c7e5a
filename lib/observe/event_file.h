// A TensorBoard event file of scalars. The file only grows. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/append_file.h"
#include "observe/event_record.h"

namespace argosy::observe {

class EventFile {
  public:
    /// Creates a new file in `folder`, and the folder if it is missing. Throws RunError.
    explicit EventFile(const std::string& folder);

    /// Writes the scalars of one step. They have left the process when this returns, so the file stays
    /// readable however the process ends. For readers the run begins at the first call's step. Throws
    /// RunError when the scalars cannot be written; the file then ends with the previous record.
    void write(int64_t step, const std::vector<Scalar>& scalars);

  private:
    AppendFile file_;
    bool started_ = false;
};

}  // namespace argosy::observe
