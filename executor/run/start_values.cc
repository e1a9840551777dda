#include "executor/run/start_values.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "executor/run/run_messages.h"

namespace weft {

uint64_t StartHash(const Tensor& tensor) {
  const Dims& dims = tensor.dims();
  const uint64_t seed = XXH3_64bits(dims.data(), dims.size() * sizeof(int64_t));
  return XXH3_64bits_withSeed(tensor.raw(), tensor.bytes(), seed);
}

StartValues::StartValues(const World& world, JobLink* link, std::vector<Variable> variables,
                         std::function<void(const std::string&)> warn)
    : world_(world), link_(link), variables_(std::move(variables)), warn_(std::move(warn)) {
  if (link_ == nullptr || world_.process() > 0) return;
  link_->Listen(JobLink::Topic::kStart, [this](int /*process*/, const std::string& message) {
    absl::StatusOr<std::vector<uint64_t>> numbers = ParseNumbers(message);
    if (!numbers.ok() || numbers->empty()) return;  // only a warning depends on it
    const uint64_t rank = numbers->back();
    numbers->pop_back();
    if (rank < static_cast<uint64_t>(world_.size)) Compare(static_cast<int>(rank), *numbers);
  });
}

StartValues::~StartValues() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kStart, nullptr);
}

void StartValues::Add(int rank, std::vector<uint64_t> hashes) {
  if (world_.process() == 0) return Compare(rank, std::move(hashes));
  hashes.push_back(rank);
  link_->Send(0, JobLink::Topic::kStart, NumbersMessage(hashes));
}

void StartValues::Compare(int rank, std::vector<uint64_t> hashes) {
  absl::optional<std::string> difference;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    hashes.resize(variables_.size());
    hashes_[rank] = std::move(hashes);
    if (hashes_.size() == static_cast<size_t>(world_.size)) difference = Difference();
  }
  if (difference.has_value() && warn_) warn_(*difference);
}

absl::optional<std::string> StartValues::Difference() const {
  for (int rank = 1; rank < world_.size; ++rank) {
    for (size_t v = 0; v < variables_.size(); ++v) {
      const std::vector<int>* const ranks = variables_[v].ranks;
      if (ranks != nullptr && !absl::c_binary_search(*ranks, rank)) continue;
      const int first = ranks == nullptr ? 0 : ranks->front();
      if (hashes_.at(rank)[v] == hashes_.at(first)[v]) continue;
      return absl::StrCat("rank ", rank, " begins with another value of ", variables_[v].name,
                          " than rank ", first);
    }
  }
  return absl::nullopt;
}

}  // namespace weft
