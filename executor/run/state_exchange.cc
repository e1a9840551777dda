#include "executor/run/state_exchange.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/run/run_messages.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {
namespace {

using Hash = std::pair<uint64_t, uint64_t>;

// Of the name, the type and all bits of a value in host memory.
Hash HashOf(const std::string& name, const Tensor& value) {
  const std::string what =
      absl::StrCat(name, " ", ToString(TensorType{value.dtype(), value.dims()}));
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(value.raw(), value.bytes(), XXH3_64bits(what.data(), what.size()));
  return {hash.high64, hash.low64};
}

}  // namespace

StateExchange::StateExchange(const World& world, JobLink* link, StateGate::Use use)
    : world_(world), link_(link), use_(std::move(use)), received_(world.num_processes()) {
  link_->Listen(JobLink::Topic::kState,
                [this](int process, std::string message) { Receive(process, std::move(message)); });
}

StateExchange::~StateExchange() { link_->Listen(JobLink::Topic::kState, nullptr); }

void StateExchange::Receive(int process, std::string message) {
  std::lock_guard<std::mutex> lock(mutex_);
  received_[process].push_back(std::move(message));
  has_changed_.notify_all();
}

absl::StatusOr<std::string> StateExchange::Take(int process) {
  std::unique_lock<std::mutex> lock(mutex_);
  has_changed_.wait(lock, [&] { return !received_[process].empty() || is_stopped_; });
  if (received_[process].empty()) return absl::AbortedError("the run was aborted");
  std::string message = std::move(received_[process].front());
  received_[process].pop_front();
  return message;
}

void StateExchange::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  has_changed_.notify_all();
}

absl::Status StateExchange::Exchange(std::vector<RankState> states) {
  if (world_.process() == 0) {
    std::vector<uint64_t> hashes;
    for (const auto& [name, value] : states[0].values) {
      const auto [high, low] = HashOf(name, value);
      hashes.insert(hashes.end(), {high, low});
    }
    const std::string message = NumbersMessage(hashes);
    for (int p = 1; p < world_.num_processes(); ++p) {
      link_->Send(p, JobLink::Topic::kState, message);
    }
    const absl::Status status = UseAll(std::move(states));
    for (int p = 1; p < world_.num_processes(); ++p) {
      link_->Send(p, JobLink::Topic::kState, StatusMessage(status));
    }
    return status;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string of_rank0, Take(0));
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ParseNumbers(of_rank0));
  std::set<Hash> hashes;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) hashes.insert({numbers[i], numbers[i + 1]});
  for (RankState& state : states) {
    for (auto value = state.values.begin(); value != state.values.end();) {
      if (hashes.count(HashOf(value->first, value->second)) == 0) {
        ++value;
      } else {
        state.as_rank0.insert(value->first);
        value = state.values.erase(value);
      }
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::string message, StatesMessage(states));
  link_->Send(0, JobLink::Topic::kState, std::move(message));
  WEFT_ASSIGN_OR_RETURN(const std::string answer, Take(0));
  return ParseStatus(answer);
}

absl::Status StateExchange::UseAll(std::vector<RankState> states) {
  for (int p = 1; p < world_.num_processes(); ++p) {
    WEFT_ASSIGN_OR_RETURN(const std::string message, Take(p));
    WEFT_ASSIGN_OR_RETURN(std::vector<RankState> theirs, ParseStates(message));
    for (RankState& state : theirs) {
      for (const std::string& name : state.as_rank0) {
        const auto value = states[0].values.find(name);
        if (value == states[0].values.end()) {
          return absl::InternalError(
              absl::StrCat("process ", p, " has ", name, " as rank 0, which has no such value"));
        }
        state.values[name] = value->second;
      }
      state.as_rank0.clear();
    }
    states.insert(states.end(), std::make_move_iterator(theirs.begin()),
                  std::make_move_iterator(theirs.end()));
  }
  return use_(std::move(states));
}

}  // namespace weft
