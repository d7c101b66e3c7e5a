// The curves' values, their Event messages in protobuf's wire format, the records around the messages, and
// CRC-32C. FORMAT.md describes the bytes.
#include "observe/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/output.h"
#include "base/units.h"

namespace argosy::observe {
namespace {

void add_experts(std::vector<Scalar>& scalars, const model::ExpertFigures& experts) {
    const std::vector<double> loads = experts.load_max_over_mean();
    const std::vector<int64_t> unused = experts.unused();
    scalars.push_back({"experts/load_max_over_mean/worst_layer", experts.worst_load()});
    for (size_t i = 0; i < experts.layers.size(); ++i) {
        const auto add = [&](const char* name, double value) {
            scalars.push_back({fmt::format("experts/{}/layers.{}", name, experts.layers[i]), value});
        };
        add("load_max_over_mean", loads[i]);
        add("entropy", experts.entropy[i]);
        add("unused", static_cast<double>(unused[i]));
        if (!experts.bias_min.empty()) add("bias_range", experts.bias_max[i] - experts.bias_min[i]);
    }
    if (experts.sequence_loss) scalars.push_back({"loss_metrics/sequence_loss", *experts.sequence_loss});
    if (experts.step_loss) scalars.push_back({"loss_metrics/step_loss", *experts.step_loss});
    if (experts.z_loss) scalars.push_back({"loss_metrics/z_loss", *experts.z_loss});
}

void add_rates(std::vector<Scalar>& scalars, const StepWindow& window, const JobFigures& job) {
    const Speed rates = speed(window.tokens, window.times.total_ms / 1e3, job);
    const double noncausal_flops = rates.tokens_per_second_per_device * job.flops_per_token.noncausal;
    scalars.push_back({"throughput(tps)", rates.tokens_per_second_per_device});
    scalars.push_back({"tflops", noncausal_flops / 1e12});
    if (job.datasheet.known()) scalars.push_back({"mfu(%)", 100 * *rates.mfu_noncausal});
    if (rates.of_gemm) scalars.push_back({"of_gemm(%)", 100 * *rates.of_gemm});
}

void add_times(std::vector<Scalar>& scalars, const StepWindow& window) {
    const StepTimes& times = window.times;
    const double steps_ms = 1e3 * static_cast<double>(window.num_steps);
    const auto add = [&](const std::string& part, double ms) {
        scalars.push_back({fmt::format("time_metrics/{}(s)", part), ms / steps_ms});
    };
    add("end_to_end", times.total_ms);
    for (const StepPart& part : kStepParts) {
        add(part.ms == &StepTimes::data_ms ? "data_loading" : part.name, times.*part.ms);
    }
    for (const auto& [axes, ms] : times.exposed_ms) add(fmt::format("exposed({})", axes), ms);
    scalars.push_back({"time_metrics/data_loading(%)", 100 * times.data_ms / times.total_ms});
}

/// Readers find event files by "tfevents" in the name, and read a folder's files in the order of their names.
/// The name therefore contains the seconds first, whose width stays the same until the year 2286.
std::string new_path(const std::string& folder) {
    const auto seconds = static_cast<int64_t>(seconds_since_1970());
    for (int number = 0;; ++number) {
        const std::string name =
            fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host_name(), getpid(), number);
        const std::filesystem::path path = std::filesystem::path(folder) / name;
        std::error_code unreadable;
        if (!std::filesystem::exists(path, unreadable)) return path.string();
    }
}

/// Field numbers of the messages in TensorBoard's event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
constexpr uint64_t kStatusStart = 1;

/// How the bytes of a field's value are laid out: the low three bits of the field's key.
enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <class Unsigned>
std::string little_endian(Unsigned value) {
    std::string bytes;
    for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
    return bytes;
}

/// Seven bits per byte, lowest bits first; the high bit of a byte means that more bytes follow.
std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
}

std::string key(int field, WireType type) { return varint(static_cast<uint64_t>(field << 3 | type)); }

std::string number(int field, uint64_t value) { return key(field, kVarint) + varint(value); }
std::string number(int field, double value) {
    return key(field, kFixed64) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string number(int field, float value) {
    return key(field, kFixed32) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes(int field, const std::string& value) {
    return key(field, kLengthDelimited) + varint(value.size()) + value;
}

std::string event(EventTime time, const std::string& what) {
    return number(kWallTime, time.wall_seconds) + number(kStep, static_cast<uint64_t>(time.step)) + what;
}

/// TFRecord's masking: rotates the CRC and adds a constant, because a CRC of data that contains CRCs is weak.
uint32_t masked_checksum(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xa282ead8; }

}  // namespace

std::vector<Scalar> tensorboard_scalars(const StepWindow& window, const JobFigures& job) {
    const StepMetrics& newest = window.newest;
    std::vector<Scalar> scalars = {
        {"loss_metrics/global_avg_loss", newest.loss}, {"grad_norm", newest.grad_norm}, {"lr", newest.lr}};
    if (newest.scores) scalars.push_back({"attention_scores/largest", newest.scores->largest});
    if (newest.experts) add_experts(scalars, *newest.experts);
    add_rates(scalars, window, job);
    add_times(scalars, window);
    scalars.push_back({"memory/max_active(GiB)", gibibytes(window.peak_bytes)});
    scalars.push_back({"memory/rss(GiB)", gibibytes(newest.memory.rss_bytes)});
    if (newest.memory.allocator) {
        scalars.push_back({"memory/max_reserved(GiB)", gibibytes(window.reserved_bytes.value_or(0))});
        scalars.push_back(
            {"memory/num_alloc_retries", static_cast<double>(newest.memory.allocator->num_retries)});
    }
    return scalars;
}

std::vector<Scalar> validation_scalars(const ValidationMetrics& validation) {
    return {{"validation_metrics/global_avg_loss", validation.loss},
            {"validation_metrics/perplexity", std::exp(validation.loss)}};
}

std::vector<Scalar> evaluation_scalars(std::span<const TaskMetrics> tasks) {
    std::vector<Scalar> scalars;
    for (const TaskMetrics& task : tasks) {
        for (const TaskMetrics::Value& each : task.values) {
            scalars.push_back({fmt::format("evaluation/{}/{}", task.task, each.metric), each.value});
        }
    }
    return scalars;
}

EventFile::EventFile(const std::string& folder) : file_(new_path(folder)) { start(); }

void EventFile::start() {
    file_.append(framed(version_event({seconds_since_1970(), 0})));
    started_ = false;
}

void EventFile::write(int64_t step, const std::vector<Scalar>& scalars) {
    if (file_.renew()) start();
    const EventTime now{seconds_since_1970(), step};
    std::string records = framed(scalars_event(now, scalars));
    if (!started_) records = framed(start_event(now)) + records;
    file_.append(records);
    started_ = true;
}

std::string framed(std::string_view data) {
    const std::string length = little_endian(uint64_t{data.size()});
    return length + little_endian(masked_checksum(length)) + std::string(data) +
           little_endian(masked_checksum(data));
}

std::string version_event(EventTime time) { return event(time, bytes(kFileVersion, "brain.Event:2")); }

std::string start_event(EventTime time) {
    return event(time, bytes(kSessionLog, number(kStatus, kStatusStart)));
}

std::string scalars_event(EventTime time, const std::vector<Scalar>& scalars) {
    std::string values;
    for (const Scalar& scalar : scalars) {
        values +=
            bytes(kValue, bytes(kTag, scalar.tag) + number(kSimpleValue, static_cast<float>(scalar.value)));
    }
    return event(time, bytes(kSummary, values));
}

uint32_t crc32c(std::string_view bytes) {
    constexpr uint32_t kReflected = 0x82f63b78;
    uint32_t remainder = ~uint32_t{0};
    for (const char byte : bytes) {
        remainder ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1) * kReflected;
    }
    return ~remainder;
}

}  // namespace argosy::observe
