#include "executor/step/step_lives.h"

#include <algorithm>
#include <deque>

namespace weft {
namespace {

// What a stream knows: by stream, the instructions before this position are done.
using Clock = std::vector<int>;

void Merge(const Clock& from, Clock* to) {
  for (size_t s = 0; s < to->size(); ++s) (*to)[s] = std::max((*to)[s], from[s]);
}

}  // namespace

void Life::Add(const Life& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  first = std::min(first, other.first);
  last = std::max(last, other.last);
}

std::vector<Life> LivesOfOps(const Plan& plan, const std::vector<bool>& in_block, int timeline) {
  using Kind = Plan::Instruction::Kind;
  const int end = static_cast<int>(plan.instructions.size());
  const size_t num_streams = plan.stream_names.size();
  std::vector<Life> lives(end);
  std::vector<Clock> clocks(num_streams, Clock(num_streams, 0));
  std::vector<Clock> events(plan.num_events);
  // By stream: ops that the timeline has not waited for.
  std::vector<std::deque<int>> running(num_streams);
  const auto finish = [&](int position) {
    for (size_t s = 0; s < num_streams; ++s) {
      while (!running[s].empty() && running[s].front() < clocks[timeline][s]) {
        lives[running[s].front()].last = position;
        running[s].pop_front();
      }
    }
  };
  for (int i = 0; i < end; ++i) {
    const Plan::Instruction& instruction = plan.instructions[i];
    const int stream = instruction.stream;
    // What a stream knows about itself.
    clocks[stream][stream] = i;
    switch (instruction.kind) {
      case Kind::kRunOp:
        if (stream == timeline) {
          lives[i] = {i, i};
        } else {
          lives[i] = {clocks[stream][timeline], end};
          running[stream].push_back(i);
        }
        break;
      case Kind::kRecord:
        if (!in_block[i]) events[instruction.index] = clocks[stream];
        break;
      case Kind::kWait:
        if (!in_block[i]) Merge(events[instruction.index], &clocks[stream]);
        break;
      case Kind::kSynchronize:
        if (in_block[i]) break;
        for (Clock& clock : clocks) Merge(clocks[stream], &clock);
        break;
      case Kind::kBranch:
        break;
    }
    finish(i);
  }
  return lives;
}

}  // namespace weft
