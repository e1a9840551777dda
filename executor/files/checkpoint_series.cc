#include "executor/files/checkpoint_series.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "ops/tensor.h"

namespace weft {
namespace {

uint64_t BytesOf(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.shared) bytes += tensor.bytes();
  for (const auto& of_rank : checkpoint.own) {
    for (const auto& [name, tensor] : of_rank) bytes += tensor.bytes();
  }
  return bytes;
}

// Gives the tensors memory of their own.
absl::Status CopyValues(std::map<std::string, Tensor>* values) {
  for (auto& [name, tensor] : *values) {
    Tensor copy;
    WEFT_RETURN_IF_ERROR(copy.CopyFrom(tensor));
    tensor = std::move(copy);
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointSeries::CheckpointSeries(std::string path, int keep, int64_t begin_step, bool goes_on)
    : path_(std::move(path)), keep_(keep) {
  if (keep_ <= 1 || !goes_on) return;
  const std::filesystem::path file(path_);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const std::string prefix = file.filename().string() + ".";
  std::error_code none;  // what cannot be read has no checkpoints to remove
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    absl::string_view digits = name;
    int64_t step = 0;
    if (!absl::ConsumePrefix(&digits, prefix) || !absl::SimpleAtoi(digits, &step)) continue;
    if (absl::StrCat(step) == digits && step <= begin_step) steps_.insert(step);
  }
}

std::string CheckpointSeries::PathOf(int64_t step) const { return absl::StrCat(path_, ".", step); }

CheckpointSeries::~CheckpointSeries() { Wait().IgnoreError(); }

absl::Status CheckpointSeries::Wait() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (writer_.joinable()) writer_.join();
  return std::exchange(status_, absl::OkStatus());
}

absl::Status CheckpointSeries::Write(const Checkpoint& checkpoint) {
  WEFT_RETURN_IF_ERROR(Wait());
  if (BytesOf(checkpoint) > AvailableMemory() / 2) return WriteNow(checkpoint);
  auto copy = std::make_unique<Checkpoint>(checkpoint);
  WEFT_RETURN_IF_ERROR(CopyValues(&copy->shared));
  for (auto& of_rank : copy->own) WEFT_RETURN_IF_ERROR(CopyValues(&of_rank));
  const std::lock_guard<std::mutex> lock(mutex_);
  writer_ = std::thread([this, copy = std::move(copy)] { status_ = WriteNow(*copy); });
  return absl::OkStatus();
}

absl::Status CheckpointSeries::WriteNow(const Checkpoint& checkpoint) {
  WEFT_RETURN_IF_ERROR(WriteCheckpoint(path_, checkpoint));
  if (keep_ <= 1) return absl::OkStatus();
  const std::string name = PathOf(checkpoint.step);
  if (unlink(name.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot be replaced"));
  }
  if (link(path_.c_str(), name.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot link it to ", path_));
  }
  steps_.insert(checkpoint.step);
  while (steps_.size() > static_cast<size_t>(keep_)) {
    const std::string oldest = PathOf(*steps_.begin());
    if (unlink(oldest.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat(oldest, ": cannot be removed"));
    }
    steps_.erase(steps_.begin());
  }
  return absl::OkStatus();
}

}  // namespace weft
