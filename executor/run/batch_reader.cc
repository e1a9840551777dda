#include "executor/run/batch_reader.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/wait_briefly.h"

namespace weft {

BatchReader::BatchReader(int nranks, int64_t begin_step, int64_t end_step, ReadParts read,
                         When when)
    : nranks_(nranks),
      begin_step_(begin_step),
      end_step_(end_step),
      read_(std::move(read)),
      when_(when),
      first_step_(begin_step),
      spare_(nranks) {}

BatchReader::~BatchReader() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<BatchReader::Part> BatchReader::Take(int64_t step, int rank) {
  std::unique_lock<std::mutex> lock = LockBriefly(&mutex_);
  if (when_ == When::kAhead) WEFT_RETURN_IF_ERROR(StartThread());
  if (step < first_step_ || step >= end_step_) {
    return absl::InternalError(
        absl::StrCat("step ", step, ": its batch is taken, or not of the run"));
  }
  const auto is_read = [&] { return step - first_step_ < static_cast<int64_t>(batches_.size()); };
  // Ranks that come meanwhile wait for the lock.
  if (when_ == When::kInTime && !is_read()) batches_.push_back(ReadBatch(step, TakeSpare()));
  has_batch_.wait(lock, [&] { return is_read() || is_stopped_; });
  if (!is_read()) return absl::AbortedError("the run was aborted");
  Batch& batch = batches_[step - first_step_];
  if (batch.exception != nullptr) std::rethrow_exception(batch.exception);
  WEFT_RETURN_IF_ERROR(batch.status);
  Part part = std::move(batch.parts[rank]);
  if (++batch.num_taken < nranks_) return part;
  // The first one: ranks have taken what comes before.
  batches_.pop_front();
  ++first_step_;
  const bool is_needed = batches_.size() == num_left_;
  lock.unlock();
  if (is_needed) is_needed_.notify_one();
  return part;
}

absl::optional<Tensor> BatchReader::Peek(int64_t step, int rank, size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (num_left_ == 0) {
    num_left_ = 1;
    is_needed_.notify_one();
  }
  const bool is_read =
      step >= first_step_ && step - first_step_ < static_cast<int64_t>(batches_.size());
  if (!is_read) return absl::nullopt;
  const std::vector<Part>& parts = batches_[step - first_step_].parts;
  if (parts.empty() || index >= parts[rank].size()) return absl::nullopt;
  return parts[rank][index].Clone();
}

void BatchReader::GiveBack(int rank, Part part) {
  std::lock_guard<std::mutex> lock(mutex_);
  spare_[rank].push_back(std::move(part));
}

void BatchReader::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  has_batch_.notify_all();
  is_needed_.notify_all();
}

absl::Status BatchReader::StartThread() {
  if (thread_.joinable()) return absl::OkStatus();
  try {
    thread_ = std::thread([this] { ReadAll(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread that reads feeds: ", error.what()));
  }
  pthread_setname_np(thread_.native_handle(), "feeds");
  return absl::OkStatus();
}

void BatchReader::ReadAll() {
  for (int64_t step = begin_step_; step < end_step_; ++step) {
    std::unique_lock<std::mutex> lock(mutex_);
    // Waking a thread takes up to 20 us of a step of the rank that does it: not for every batch.
    if (batches_.size() == kMaxBatches) {
      is_needed_.wait(lock, [&] { return batches_.size() <= num_left_ || is_stopped_; });
    }
    if (is_stopped_) return;
    std::vector<Part> spare = TakeSpare();
    lock.unlock();
    Batch batch = ReadBatch(step, std::move(spare));
    const bool is_last = !batch.status.ok() || batch.exception != nullptr;
    lock.lock();
    batches_.push_back(std::move(batch));
    lock.unlock();
    has_batch_.notify_all();
    if (is_last) return;
  }
}

std::vector<BatchReader::Part> BatchReader::TakeSpare() {
  std::vector<Part> spare(nranks_);
  for (int rank = 0; rank < nranks_; ++rank) {
    if (spare_[rank].empty()) continue;
    spare[rank] = std::move(spare_[rank].back());
    spare_[rank].pop_back();
  }
  return spare;
}

// Ranks expect errors in the step to which they belong.
BatchReader::Batch BatchReader::ReadBatch(int64_t step, std::vector<Part> spare) const {
  Batch batch;
  try {
    absl::StatusOr<std::vector<Part>> parts = read_(step, std::move(spare));
    batch.status = parts.status();
    if (parts.ok()) batch.parts = *std::move(parts);
  } catch (...) {
    batch.exception = std::current_exception();
  }
  return batch;
}

}  // namespace weft
