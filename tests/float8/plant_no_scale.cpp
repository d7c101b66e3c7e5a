// Makes an executable cast without scales.
#include "float8/planted_casts.h"

namespace argosy::testing {
namespace {

[[maybe_unused]] const bool planted = (plant(WrongScale::One), true);

}  // namespace
}  // namespace argosy::testing
