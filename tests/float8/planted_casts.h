// Casts to float8 with a wrong scale. An executable that links planted_casts.cpp and has the linker's options
// of CMakeLists.txt calls them in place of ops::cast() and ops::Stack::cast().
#pragma once

namespace argosy::testing {

enum class WrongScale {
    None,   // the real casts
    Right,  // the real scale, with the planted rounding
    One,    // no scale
    Stale,  // that of the matrix when its elements were a quarter of their size
    Other,  // that of the matrix which was cast first
};

/// From now on, in all casts of this process.
void plant(WrongScale wrong);

}  // namespace argosy::testing
