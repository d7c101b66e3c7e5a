// How a layer chooses experts for its tokens, as data.
#pragma once

#include "kernels/routing.h"

namespace argosy::ops {

using kernels::Router;

}  // namespace argosy::ops
