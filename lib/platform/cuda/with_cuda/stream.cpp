#include "cuda/stream.h"

#include <cuda_runtime_api.h>

#include "cuda/device.h"

namespace argosy::cuda {
namespace {

bool is_done(cudaError_t status, const char* call) {
    if (status == cudaErrorNotReady) {
        cudaGetLastError();  // clears the status; otherwise the next kernel launch would seem to fail with it
        return false;
    }
    check(status, call);
    return true;
}

}  // namespace

Stream::Stream(Priority priority) {
    cudaStream_t handle = nullptr;
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking,
                                       priority == Priority::High ? highest : lowest),
          "cudaStreamCreateWithPriority");
    handle_.reset(handle);
}

bool Stream::done() const { return is_done(cudaStreamQuery(handle_.get()), "cudaStreamQuery"); }

void Stream::synchronize() const { StreamView(*this).synchronize(); }

void Stream::Destroy::operator()(CUstream_st* handle) const { cudaStreamDestroy(handle); }

void StreamView::wait(const Event& event) const {
    check(cudaStreamWaitEvent(handle_, event.handle_.get(), /*flags=*/0), "cudaStreamWaitEvent");
}

uint64_t StreamView::captured_by() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long graph = 0;
    check(cudaStreamGetCaptureInfo(handle_, &status, &graph), "cudaStreamGetCaptureInfo");
    return status == cudaStreamCaptureStatusNone ? 0 : graph;
}

void StreamView::synchronize() const { check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize"); }

Event::Event(Timing timing) {
    cudaEvent_t handle = nullptr;
    check(cudaEventCreateWithFlags(&handle, timing == Timing::On ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
    handle_.reset(handle);
}

void Event::record(const StreamView& stream) {
    check(cudaEventRecord(handle_.get(), stream.handle()), "cudaEventRecord");
}

void Event::record_at_each_launch(const StreamView& stream) {
    check(cudaEventRecordWithFlags(handle_.get(), stream.handle(), cudaEventRecordExternal),
          "cudaEventRecordWithFlags");
}

bool Event::done() const { return is_done(cudaEventQuery(handle_.get()), "cudaEventQuery"); }

double Event::seconds_between(const Event& first, const Event& second) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, first.handle_.get(), second.handle_.get()),
          "cudaEventElapsedTime");
    return milliseconds * 1e-3;
}

void Event::Destroy::operator()(CUevent_st* handle) const { cudaEventDestroy(handle); }

}  // namespace argosy::cuda
