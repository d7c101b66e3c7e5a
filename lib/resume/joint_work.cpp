#include "resume/joint_work.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "base/log.h"

namespace argosy::resume {
namespace {

constexpr auto kBetweenQuestions = std::chrono::milliseconds(2);

/// State of one rank's work. The order of the values matters, because the ranks take the maximum.
enum OwnState : int64_t { kEnded, kUnderWay };

void take_maximum(comm::Communicator& group, const at::Tensor& values) {
    group.run(
        {.kind = comm::OpKind::AllReduce, .out = values, .in = values, .reduction = comm::Reduction::Max});
}

/// The error of work that has ended; none if the work succeeded.
std::optional<JointWork::Failure> failure_of(std::future<void>& work, int rank) {
    try {
        work.get();
        return std::nullopt;
    } catch (const Error& error) {
        return JointWork::Failure{rank, error.code(), error.what()};
    } catch (const std::exception& error) {
        return JointWork::Failure{rank, ExitCode::Failed, error.what()};
    }
}

}  // namespace

JointWork::~JointWork() {
    if (!under_way()) return;
    if (own_.wait_for(std::chrono::duration<double>(patience_seconds_)) == std::future_status::ready) {
        thread_.join();
        return;
    }
    spdlog::warn("what is being read or written does not end within {} s, and is left behind",
                 patience_seconds_);
    thread_.detach();
}

void JointWork::begin(std::function<void()> work) {
    ARGOSY_CHECK(!under_way(), "work within work");
    if (!work) work = [] {};
    // std::async does not fit, because the destructor of its future waits for the thread without a limit.
    std::packaged_task<void()> task(std::move(work));
    own_ = task.get_future();
    thread_ = std::thread(std::move(task));
}

bool JointWork::ended() {
    ARGOSY_CHECK(under_way());
    const bool own_ended = own_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    const at::Tensor state = at::full({}, static_cast<int64_t>(own_ended ? kEnded : kUnderWay), at::kLong);
    take_maximum(control_, state);
    if (state.item<int64_t>() != kEnded) return false;
    thread_.join();
    learn_failure(failure_of(own_, control_.rank()));
    return true;
}

/// COLLECTIVE: sets failure_ on all ranks to the failure of the lowest rank that failed. `own` is this
/// rank's.
void JointWork::learn_failure(const std::optional<Failure>& own) {
    failure_.reset();
    // The maximum of the negated ranks is the lowest rank that failed. A rank without a failure contributes
    // -size().
    const int64_t place = own ? control_.rank() : control_.size();
    const at::Tensor first = at::full({}, -place, at::kLong);
    take_maximum(control_, first);
    const auto rank = static_cast<int>(-first.item<int64_t>());
    if (rank == control_.size()) return;
    const auto codes = all_gather_texts(control_, own ? std::to_string(static_cast<int>(own->code)) : "");
    const auto reasons = all_gather_texts(control_, own ? own->reason : "");
    failure_ = Failure{rank, static_cast<ExitCode>(std::stoi(codes[rank])), reasons[rank]};
}

void JointWork::wait() {
    while (!ended()) std::this_thread::sleep_for(kBetweenQuestions);
}

void JointWork::run(std::function<void()> work) {
    begin(std::move(work));
    try {
        wait();
    } catch (...) {
        if (under_way()) own_.wait();
        throw;
    }
    if (!failure_) return;
    const std::string place = control_.size() == 1 ? "" : fmt::format("rank {}: ", failure_->rank);
    if (failure_->code == ExitCode::BadInput) throw UserError("{}{}", place, failure_->reason);
    throw JobError("{}{}", place, failure_->reason);
}

std::vector<std::string> all_gather_texts(comm::Communicator& group, const std::string& own) {
    const at::Tensor longest = at::full({}, static_cast<int64_t>(own.size()), at::kLong);
    take_maximum(group, longest);
    const int64_t length = longest.item<int64_t>() + 1;  // each text ends with a NUL
    const at::Tensor mine = at::zeros({length}, at::kByte),
                     all = at::empty({length * group.size()}, at::kByte);
    std::memcpy(mine.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    group.run({.kind = comm::OpKind::AllGather, .out = all, .in = mine});
    std::vector<std::string> texts;
    const auto* text = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
    for (int rank = 0; rank < group.size(); ++rank, text += length) texts.emplace_back(text);
    return texts;
}

std::string broadcast_text(comm::Communicator& group, const std::string& own, int root) {
    const at::Tensor length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
    group.run({.kind = comm::OpKind::Broadcast, .out = length, .peer = root});
    std::string text(length.item<int64_t>(), '\0');
    if (text.empty()) return text;
    const at::Tensor bytes = at::zeros({length.item<int64_t>()}, at::kByte);
    if (group.rank() == root) std::memcpy(bytes.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    group.run({.kind = comm::OpKind::Broadcast, .out = bytes, .peer = root});
    std::memcpy(text.data(), bytes.const_data_ptr<uint8_t>(), text.size());
    return text;
}

std::vector<int64_t> broadcast_from_rank_0(comm::Communicator& group, const std::vector<int64_t>& own) {
    const at::Tensor count = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
    group.run({.kind = comm::OpKind::Broadcast, .out = count, .peer = 0});
    const int64_t size = count.item<int64_t>();
    if (size == 0) return {};
    at::Tensor values = group.rank() == 0 ? at::tensor(own, at::kLong) : at::empty({size}, at::kLong);
    group.run({.kind = comm::OpKind::Broadcast, .out = values, .peer = 0});
    return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + size};
}

}  // namespace argosy::resume
