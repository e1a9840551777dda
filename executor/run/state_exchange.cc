#include "executor/run/state_exchange.h"

#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "executor/run/run_messages.h"

namespace weft {

StateExchange::StateExchange(const World& world, JobLink* link, StateGate::Use use)
    : world_(world), link_(link), use_(std::move(use)), received_(world.num_processes()) {
  link_->Listen(JobLink::Topic::kState,
                [this](int process, std::string message) { Receive(process, std::move(message)); });
}

StateExchange::~StateExchange() { link_->Listen(JobLink::Topic::kState, nullptr); }

void StateExchange::Receive(int process, std::string message) {
  std::lock_guard<std::mutex> lock(mutex_);
  received_[process] = std::move(message);
  has_changed_.notify_all();
}

void StateExchange::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  has_changed_.notify_all();
}

absl::Status StateExchange::Exchange(std::vector<RankState> states) {
  if (world_.process() == 0) {
    const absl::Status status = UseAll(std::move(states));
    for (int p = 1; p < world_.num_processes(); ++p) {
      link_->Send(p, JobLink::Topic::kState, StatusMessage(status));
    }
    return status;
  }
  WEFT_ASSIGN_OR_RETURN(std::string message, StatesMessage(states));
  link_->Send(0, JobLink::Topic::kState, std::move(message));
  std::unique_lock<std::mutex> lock(mutex_);
  has_changed_.wait(lock, [&] { return received_[0].has_value() || is_stopped_; });
  if (!received_[0].has_value()) return absl::AbortedError("the run was aborted");
  const std::string answer = *std::move(received_[0]);
  received_[0].reset();
  return ParseStatus(answer);
}

absl::Status StateExchange::UseAll(std::vector<RankState> states) {
  for (int p = 1; p < world_.num_processes(); ++p) {
    std::unique_lock<std::mutex> lock(mutex_);
    has_changed_.wait(lock, [&] { return received_[p].has_value() || is_stopped_; });
    if (!received_[p].has_value()) return absl::AbortedError("the run was aborted");
    const std::string message = *std::move(received_[p]);
    received_[p].reset();
    lock.unlock();
    WEFT_ASSIGN_OR_RETURN(std::vector<RankState> theirs, ParseStates(message));
    states.insert(states.end(), std::make_move_iterator(theirs.begin()),
                  std::make_move_iterator(theirs.end()));
  }
  return use_(std::move(states));
}

}  // namespace weft
