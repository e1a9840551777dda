#include "executor/servers/key_sections.h"

#include <set>
#include <utility>

#include "ops/schema/server_ops.h"

namespace weft {
namespace {

bool IsReceive(const Plan::PlanOp& op) { return op.Does(ServerOp::kReceive); }
int64_t KeyOf(const Plan::PlanOp& op) { return op.kernel_spec.attrs.Int(kServerKeyAttr); }

// Sections that must stay together, from the first to the last.
struct Span {
  int first = -1, last = -1;
  void Add(int section) {
    if (first < 0) first = section;
    last = section;
  }
};

// How the sections, in order, access a variable.
struct Access {
  Span span;
  bool is_carried = false;  // read before it is written: a value of the step before
  int written_in = -1;      // the last section that has written it
};

// Sections begin where something is received: the finest ones.
class SectionFinder {
 public:
  explicit SectionFinder(const Plan& plan) : plan_(plan), accesses_(plan.variables.size()) {}

  std::vector<KeySection> Find() {
    const int num_ops = static_cast<int>(plan_.ops.size());
    for (int op = 0; op < num_ops; ++op) {
      if (op == 0 || IsReceive(plan_.ops[op])) begins_.push_back(op);
      AddOp(plan_.ops[op], static_cast<int>(begins_.size()) - 1);
    }
    JoinAll();
    std::vector<KeySection> sections;
    for (size_t i = 0; i < begins_.size(); ++i) {
      const int end = i + 1 < begins_.size() ? begins_[i + 1] : num_ops;
      if (i == 0 || !is_joined_[i]) sections.push_back({{begins_[i], end}, {}});
      sections.back().ops.end = end;
    }
    for (KeySection& section : sections) {
      std::set<int64_t> keys;
      for (int op = section.ops.begin; op < section.ops.end; ++op) {
        if (IsReceive(plan_.ops[op]) && keys.insert(KeyOf(plan_.ops[op])).second) {
          section.keys.push_back(KeyOf(plan_.ops[op]));
        }
      }
    }
    return sections;
  }

 private:
  void AddOp(const Plan::PlanOp& op, int section) {
    if (op.Is<Plan::ServerWork>()) keys_[KeyOf(op)].Add(section);
    for (int v : op.inputs) {
      if (v < 0) continue;
      Access& access = accesses_[v];
      access.span.Add(section);
      if (access.written_in < 0) {
        access.is_carried = true;
      } else {
        passed_.push_back({access.written_in, section});
      }
    }
    for (int v : op.outputs) {
      if (v < 0) continue;
      accesses_[v].span.Add(section);
      accesses_[v].written_in = section;
    }
  }

  void JoinAll() {
    // By section: of how many spans it is the second or a later one.
    std::vector<int> change(begins_.size() + 1, 0);
    const auto join = [&change](const Span& span) {
      if (span.first == span.last) return;
      ++change[span.first + 1];
      --change[span.last + 1];
    };
    for (const auto& [key, span] : keys_) join(span);
    for (const Span& span : passed_) join(span);
    for (size_t v = 0; v < accesses_.size(); ++v) {
      const Access& access = accesses_[v];
      if (access.written_in < 0) continue;
      if (access.is_carried || plan_.variables[v].persistable) join(access.span);
    }
    is_joined_.resize(begins_.size());
    int spans = 0;
    for (size_t i = 0; i < begins_.size(); ++i) is_joined_[i] = (spans += change[i]) > 0;
  }

  const Plan& plan_;
  std::vector<int> begins_;      // by section: its first op
  std::vector<bool> is_joined_;  // by section: with the one before
  std::map<int64_t, Span> keys_;
  std::vector<Access> accesses_;  // by variable
  std::vector<Span> passed_;      // from where a value is written to where it is read
};

}  // namespace

std::vector<KeySection> FindKeySections(const Plan& plan) { return SectionFinder(plan).Find(); }

SectionQueue::SectionQueue(std::vector<KeySection> sections) {
  for (KeySection& section : sections) {
    for (int64_t key : section.keys) keys_[key].section = static_cast<int>(states_.size());
    State& state = states_.emplace_back();
    state.num_late = static_cast<int64_t>(section.keys.size());
    state.section = std::move(section);
  }
}

void SectionQueue::BeginStep(int runs) {
  queue_.clear();
  runs_left_ = static_cast<int64_t>(runs) * static_cast<int64_t>(states_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i].runs_left = runs;
    states_[i].is_queued = false;
    Enqueue(static_cast<int>(i));
  }
}

void SectionQueue::SetComplete(int64_t key, bool is_complete) {
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.is_complete == is_complete) return;
  found->second.is_complete = is_complete;
  states_[found->second.section].num_late += is_complete ? -1 : 1;
  Enqueue(found->second.section);
}

void SectionQueue::Enqueue(int section) {
  State& state = states_[section];
  if (state.num_late > 0 || state.runs_left == 0 || state.is_queued) return;
  state.is_queued = true;
  queue_.push_back(section);
}

int SectionQueue::Next() {
  const int section = queue_.front();
  queue_.pop_front();
  --states_[section].runs_left;
  --runs_left_;
  return section;
}

void SectionQueue::EndRun(int section) {
  states_[section].is_queued = false;
  Enqueue(section);
}

absl::optional<int64_t> SectionQueue::FirstLateKey() const {
  for (const State& state : states_) {
    if (state.runs_left == 0) continue;
    for (int64_t key : state.section.keys) {
      if (!keys_.at(key).is_complete) return key;
    }
  }
  return absl::nullopt;
}

}  // namespace weft
