#include "executor/rewrites/implied_waits.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "executor/plan/instructions.h"

namespace weft {
namespace {

using Kind = Plan::Instruction::Kind;

// By stream: how many of its ops are known to be done.
using Clock = std::vector<int>;

bool Implies(const Clock& known, const Clock& clock) {
  for (size_t s = 0; s < clock.size(); ++s) {
    if (clock[s] > known[s]) return false;
  }
  return true;
}

void Join(const Clock& clock, Clock* known) {
  for (size_t s = 0; s < clock.size(); ++s) (*known)[s] = std::max((*known)[s], clock[s]);
}

// One pass over the plan.
class WaitRemover {
 public:
  explicit WaitRemover(Plan* plan)
      : plan_(*plan),
        num_ops_(plan->stream_names.size(), 0),
        known_(plan->stream_names.size(), num_ops_),
        pending_(plan->stream_names.size()),
        events_(plan->num_events),
        is_removed_(plan->instructions.size(), false),
        is_edge_(plan->instructions.size() + 1, false) {
    for (const Plan::Branch& branch : plan_.branches) {
      for (int position : {branch.begin, branch.end, branch.next}) is_edge_[position] = true;
    }
  }

  void Run() {
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      if (is_edge_[i]) Forget();
      Visit(i);
    }
    // A step ends when all streams are idle.
    for (const std::vector<size_t>& waits : pending_) {
      for (size_t wait : waits) is_removed_[wait] = true;
    }
    RemoveEvents();
    Compact();
  }

 private:
  void Visit(size_t position) {
    const Plan::Instruction& instruction = plan_.instructions[position];
    const int stream = instruction.stream;
    switch (instruction.kind) {
      case Kind::kRunOp:
        Resolve(stream);
        known_[stream][stream] = ++num_ops_[stream];
        return;
      case Kind::kRecord:
        Resolve(stream);
        events_[instruction.index] = known_[stream];
        return;
      case Kind::kWait:
        pending_[stream].push_back(position);
        return;
      case Kind::kSynchronize:
        Resolve(stream);
        return;
      case Kind::kBranch:
        Forget();
        return;
    }
  }

  const Clock& EventOf(size_t wait) const { return events_[plan_.instructions[wait].index]; }

  // Decides on the waits of a stream since its last op: removes those that others imply, of which
  // later ones are more likely to.
  void Resolve(int stream) {
    std::vector<size_t>& waits = pending_[stream];
    Clock& known = known_[stream];
    std::vector<size_t> kept;
    std::vector<Clock> by_later = {known};  // by position in `kept`, plus 1
    for (auto wait = waits.rbegin(); wait != waits.rend(); ++wait) {
      is_removed_[*wait] = Implies(by_later.back(), EventOf(*wait));
      if (is_removed_[*wait]) continue;
      kept.push_back(*wait);
      by_later.push_back(by_later.back());
      Join(EventOf(*wait), &by_later.back());
    }
    for (size_t i = kept.size(); i-- > 0;) {
      Clock by_others = by_later[i];
      Join(known, &by_others);
      is_removed_[kept[i]] = Implies(by_others, EventOf(kept[i]));
      if (!is_removed_[kept[i]]) Join(EventOf(kept[i]), &known);
    }
    waits.clear();
  }

  // From here on, another path may lead.
  void Forget() {
    for (size_t stream = 0; stream < pending_.size(); ++stream) {
      Resolve(static_cast<int>(stream));
      std::fill(known_[stream].begin(), known_[stream].end(), 0);
      known_[stream][stream] = num_ops_[stream];
    }
  }

  // Removes the records for which no wait is left, and numbers the events anew.
  void RemoveEvents() {
    std::vector<int> number(plan_.num_events, -1);
    int num_events = 0;
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Plan::Instruction& instruction = plan_.instructions[i];
      if (instruction.kind == Kind::kWait && !is_removed_[i]) number[instruction.index] = 0;
    }
    for (int& event : number) {
      if (event == 0) event = num_events++;
    }
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      Plan::Instruction& instruction = plan_.instructions[i];
      if (instruction.kind != Kind::kWait && instruction.kind != Kind::kRecord) continue;
      instruction.index = number[instruction.index];
      if (instruction.index < 0) is_removed_[i] = true;
    }
    plan_.num_events = num_events;
  }

  void Compact() {
    std::vector<int> new_position;
    new_position.reserve(plan_.instructions.size() + 1);
    size_t kept = 0;
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      new_position.push_back(static_cast<int>(kept));
      if (!is_removed_[i]) plan_.instructions[kept++] = plan_.instructions[i];
    }
    new_position.push_back(static_cast<int>(kept));
    plan_.instructions.resize(kept);
    MoveBranches(new_position, &plan_.branches);
  }

  Plan& plan_;
  Clock num_ops_;                             // so far
  std::vector<Clock> known_;                  // by stream: before its next op
  std::vector<std::vector<size_t>> pending_;  // by stream: waits since its last op
  std::vector<Clock> events_;                 // what is done when an event fires
  std::vector<bool> is_removed_;              // by instruction
  std::vector<bool> is_edge_;                 // by instruction: a block begins or ends before it
};

}  // namespace

void RemoveImpliedWaits(Plan* plan) {
  // A record that turns out to be of no use has kept waits before it.
  size_t before = 0;
  do {
    before = plan->instructions.size();
    WaitRemover(plan).Run();
  } while (plan->instructions.size() < before);
}

}  // namespace weft
