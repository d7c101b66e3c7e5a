#include "cuda/stream.h"

#include "cuda/without_cuda/absent.h"

namespace argosy::cuda {

Stream::Stream(Priority /*priority*/) { absent(); }
bool Stream::done() const { absent(); }
void Stream::synchronize() const { absent(); }
void Stream::Destroy::operator()(CUstream_st* /*handle*/) const {}

uint64_t StreamView::captured_by() const { absent(); }
void StreamView::synchronize() const { absent(); }
void StreamView::wait(const Event& /*event*/) const { absent(); }

Event::Event(Timing /*timing*/) { absent(); }
void Event::record(const StreamView& /*stream*/) { absent(); }
void Event::record_at_each_launch(const StreamView& /*stream*/) { absent(); }
bool Event::done() const { absent(); }
double Event::seconds_between(const Event& /*first*/, const Event& /*second*/) { absent(); }
void Event::Destroy::operator()(CUevent_st* /*handle*/) const {}

}  // namespace argosy::cuda
