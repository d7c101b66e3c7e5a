#include "ops/tensor_thread.h"

#include <ATen/Parallel.h>

namespace argosy::ops {
namespace {

thread_local Path current_path = Path::Fused;

}  // namespace

Path path() { return current_path; }

TensorThread::TensorThread(Path path) : outer_(current_path) { current_path = path; }

TensorThread::~TensorThread() { current_path = outer_; }

void set_num_threads(int num_threads) { at::set_num_threads(num_threads); }

int num_threads() { return at::get_num_threads(); }

}  // namespace argosy::ops
