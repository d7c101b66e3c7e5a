#include <cuda_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "support/fake_gpus.h"
#include "support/fake_memory.h"

struct CUstream_st {
    struct Work {
        std::function<void()> start;
        std::function<bool()> done;
        bool started = false;
    };
    std::deque<Work> works;
    bool waits = false;                        // each piece of work ends before the host continues
    bool busy = false;                         // a step of it is under way
    bool is_late = false, is_awaited = false;  // FakeGpus::late_copies

    void go_on() {
        if (works.empty() || busy || (is_late && !is_awaited)) return;
        busy = true;
        // The work is taken out of the queue first: a step may put more work on the stream.
        Work& work = works.front();
        if (!work.started) {
            work.started = true;
            work.start();
        } else if (work.done()) {
            works.pop_front();
        }
        busy = false;
    }
};

struct CUevent_st {
    struct Point {
        CUstream_st* stream = nullptr;
        bool reached = false, captured = false;
        double seconds = 0;
    };
    bool measures = true;
    std::shared_ptr<Point> point;  // of the last record
};

namespace argosy::testing {
namespace {

int number_of_environment(const char* name, int otherwise) {
    const char* number = std::getenv(name);
    return number ? std::atoi(number) : otherwise;
}

/// By graph.
std::map<int, std::vector<std::function<void()>>>& recorded_copies() {
    static auto& all = *new std::map<int, std::vector<std::function<void()>>>;
    return all;
}

// Never destroyed, like the other statics: a suite's groups may live until the process ends.
std::vector<CUstream_st*>& streams() {
    static auto& all = *new std::vector<CUstream_st*>;
    return all;
}

/// Protects all state of this file: several threads may query it.
std::recursive_mutex& everything() {
    static std::recursive_mutex mutex;
    return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

const std::thread::id main_thread = std::this_thread::get_id();

/// Advances every stream by one step. Only the main thread may do this, because only it may call MPI; other
/// threads only query.
void go_on() {
    const Lock lock(everything());
    if (std::this_thread::get_id() != main_thread) return;
    for (CUstream_st* const stream : std::vector(streams())) stream->go_on();
}

bool is_done(CUstream_st* stream) {
    const Lock lock(everything());
    return stream->works.empty();
}

void finish(CUstream_st* stream) {
    stream->is_awaited = true;
    while (!is_done(stream)) {
        go_on();
        sched_yield();
    }
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

/// CUDA_DEVICE_MAX_CONNECTIONS at the first call of a function that starts CUDA.
int num_queues() {
    static const int number = number_of_environment("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    return number;
}

}  // namespace

cudaError_t returned(cudaError_t status) {
    if (status != cudaSuccess) last_error = status;
    return status;
}

FakeGpus& fake_gpus() {
    static auto& gpus =
        *new FakeGpus{.num_devices = number_of_environment("ARGOSY_FAKE_GPUS", 8),
                      .capability = number_of_environment("ARGOSY_FAKE_CAPABILITY", 90),
                      .nccl_version = number_of_environment("ARGOSY_FAKE_NCCL_VERSION", 22809)};
    return gpus;
}

void enqueue(CUstream_st* stream, std::function<void()> start, std::function<bool()> done) {
    {
        const Lock lock(everything());
        stream->works.push_back({std::move(start), std::move(done)});
    }
    if (stream->waits) finish(stream);
}

void copy_again(int graph, CUstream_st* stream) {
    for (const auto& copy : recorded_copies()[graph]) enqueue(stream, copy, [] { return true; });
}

void make_waiting(CUstream_st* stream, bool waits) { stream->waits = waits; }

}  // namespace argosy::testing

using namespace argosy::testing;  // C functions have no namespace of their own

namespace {

void at_once(cudaStream_t stream, std::function<void()> work) {
    enqueue(stream, std::move(work), [] { return true; });
}

/// Something waits for the event, whose stream may have ended.
void await(const CUevent_st::Point& point) {
    const Lock lock(everything());
    const auto found = std::ranges::find(streams(), point.stream);
    if (found != streams().end()) (*found)->is_awaited = true;
}

void record(cudaEvent_t event, cudaStream_t stream, bool captured) {
    const auto point = std::make_shared<CUevent_st::Point>();
    point->stream = stream;
    point->captured = captured;
    {
        const Lock lock(everything());
        event->point = point;
    }
    at_once(stream, [point] {
        point->reached = true;
        point->seconds = argosy::seconds_now() + fake_gpus().seconds_ahead;
    });
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    if (fake_gpus().driver_version < CUDART_VERSION) return returned(cudaErrorInsufficientDriver);
    const int queues = num_queues();
    if (fake_gpus().num_devices < 0 || queues != number_of_environment("ARGOSY_FAKE_CONNECTIONS", queues))
        return returned(cudaErrorSystemNotReady);
    if (fake_gpus().num_devices == 0) return returned(cudaErrorNoDevice);
    *count = fake_gpus().num_devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    num_queues();
    if (device < 0 || device >= fake_gpus().num_devices) return returned(cudaErrorInvalidDevice);
    if (fake_gpus().are_taken) return returned(cudaErrorDevicesUnavailable);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    num_queues();
    if (device >= fake_gpus().num_devices) return returned(cudaErrorInvalidDevice);
    *properties = {};
    const char* const name = std::getenv("ARGOSY_FAKE_NAME");
    std::strcpy(properties->name, name ? name : "Fake GPU");
    properties->totalGlobalMem = size_t{1} << 40;
    properties->major = fake_gpus().capability / 10;
    properties->minor = fake_gpus().capability % 10;
    properties->multiProcessorCount = 132;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int length, int device) {
    std::snprintf(bus_id, length, "0000:%02x:00.0", 0x3b + fake_gpus().first_device + device);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    num_queues();
    *version = fake_gpus().driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t status) {
    return status == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}

const char* cudaGetErrorName(cudaError_t status) {
    return status == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    num_queues();
    *free = fake_gpus().free_bytes;
    *total = size_t{1} << 40;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
    if (!is_on_device(data, bytes)) return returned(cudaErrorInvalidValue);
    at_once(stream, [=] { std::memset(data, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const bool shared = fake_gpus().shares_memory;
    const bool right_to = shared || is_on_device(to, bytes) == (kind != cudaMemcpyDeviceToHost);
    const bool right_from = shared || is_on_device(from, bytes) == (kind != cudaMemcpyHostToDevice);
    if (!right_to || !right_from) return returned(cudaErrorInvalidValue);
    const auto copy = [=] { std::memcpy(to, from, bytes); };
    if (fake_gpus().captures != 0) recorded_copies()[fake_gpus().captures].emplace_back(copy);
    if (kind == cudaMemcpyDeviceToHost && fake_gpus().late_copies) {
        stream->is_late = true;
        stream->is_awaited = false;
    }
    if (is_mapped(to)) {
        copy_late(stream, copy);
    } else {
        at_once(stream, copy);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
    num_queues();
    const Lock lock(everything());
    *stream = streams().emplace_back(new CUstream_st);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const Lock lock(everything());
    std::erase(streams(), stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    go_on();
    return returned(is_done(stream) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    finish(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status,
                                     unsigned long long* graph, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
    *status = fake_gpus().captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *graph = static_cast<unsigned long long>(fake_gpus().captures);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    const std::shared_ptr<CUevent_st::Point> point = event->point;
    if (!point) return cudaSuccess;
    await(*point);
    enqueue(
        stream, [] {}, [point] { return point->reached; });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    num_queues();
    *event = new CUevent_st;
    (*event)->measures = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    record(event, stream, fake_gpus().captures != 0);
    return cudaSuccess;
}

// Captured work is also executed, so the capture is the graph's first launch.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (flags != cudaEventRecordExternal || fake_gpus().captures == 0) return returned(cudaErrorInvalidValue);
    record(event, stream, /*captured=*/false);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (std::this_thread::get_id() == main_thread && fake_gpus().captures) {
        return returned(cudaErrorStreamCaptureUnsupported);
    }
    if (fake_gpus().failed) return returned(cudaErrorLaunchFailure);
    while (fake_gpus().blocks_other_threads && std::this_thread::get_id() != main_thread) sched_yield();
    if (event->point) await(*event->point);
    go_on();
    const Lock lock(everything());
    if (event->point && event->point->captured) return returned(cudaErrorCapturedEvent);
    return returned(event->point && !event->point->reached ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
    if (!first->measures || !second->measures) return returned(cudaErrorInvalidResourceHandle);
    if (!first->point->reached || !second->point->reached) return returned(cudaErrorNotReady);
    *milliseconds = static_cast<float>((second->point->seconds - first->point->seconds) * 1e3);
    return cudaSuccess;
}
