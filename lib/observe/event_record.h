// The records of a TensorBoard event file as bytes; FORMAT.md has their layout. Pure functions:
// event_file.h owns the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::observe {

/// A point of the curve `tag`; kept as float32.
struct Scalar {
    std::string tag;
    double value = 0;
};

/// When something happened, in seconds since 1970, and at which step.
struct EventTime {
    double wall_seconds = 0;
    int64_t step = 0;
};

/// Wraps `data` as a record: length, data, checksums.
std::string framed(std::string_view data);

/// `Event` messages, to be framed: the first of a file, the first of a run (readers drop the points that
/// earlier files have from its step on), and the scalars of one step.
std::string version_event(EventTime time);
std::string start_event(EventTime time);
std::string scalars_event(EventTime time, const std::vector<Scalar>& scalars);

}  // namespace argosy::observe
