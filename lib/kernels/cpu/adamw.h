#pragma once

#include "kernels/adamw.h"

namespace argosy::kernels::ARGOSY_VARIANT {

void adamw(const AdamW& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT
