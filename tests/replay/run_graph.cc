#include "tests/replay/run_graph.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {

void RunGraph::Issue(int stream, std::vector<Access> accesses, const std::string& place) {
  const int node = AddNode(stream);
  accesses_[node] = std::move(accesses);
  places_[node] = place;
}

void RunGraph::Wait(int from, int to) {
  const int of = LastOf(from);
  const int node = AddNode(to);
  if (of >= 0) before_[node].push_back(of);
}

void RunGraph::Block(int from) {
  const int of = LastOf(from);
  const int node = static_cast<int>(before_.size());
  Grow();
  if (host_ >= 0) before_[node].push_back(host_);
  if (of >= 0) before_[node].push_back(of);
  host_ = node;
}

std::string RunGraph::FindRace() const {
  struct Seen {
    int node;
    bool is_write;
  };
  std::map<CellId, std::vector<Seen>> of_cell;
  for (size_t node = 0; node < accesses_.size(); ++node) {
    for (const Access& access : accesses_[node]) {
      of_cell[access.cell].push_back({static_cast<int>(node), access.is_write});
    }
  }
  for (const auto& [cell, seen] : of_cell) {
    for (size_t j = 0; j < seen.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (!seen[i].is_write && !seen[j].is_write) continue;
        if (stream_[seen[i].node] == stream_[seen[j].node]) continue;
        if (seen[j].node < num_pending_ || Leads(seen[i].node, seen[j].node)) continue;
        return absl::StrCat("nothing orders ", places_[seen[i].node], " and ",
                            places_[seen[j].node]);
      }
    }
  }
  return "";
}

RunGraph RunGraph::Pending() const {
  RunGraph pending;
  std::vector<int> nodes;
  for (const auto& [stream, last] : last_) {
    if (host_ >= 0 && Leads(last, host_)) continue;
    for (int node = 0; node <= last; ++node) {
      if (stream_[node] == stream && !Leads(node, host_)) nodes.push_back(node);
    }
  }
  std::sort(nodes.begin(), nodes.end());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int node = nodes[i];
    pending.Issue(stream_[node], accesses_[node], absl::StrCat("earlier ", places_[node]));
    for (size_t j = 0; j < i; ++j) {
      if (Leads(nodes[j], node)) pending.before_.back().push_back(static_cast<int>(j));
    }
  }
  pending.num_pending_ = static_cast<int>(nodes.size());
  return pending;
}

void RunGraph::Grow() {
  before_.emplace_back();
  stream_.push_back(-1);
  accesses_.emplace_back();
  places_.emplace_back();
}

int RunGraph::LastOf(int stream) const {
  const auto found = last_.find(stream);
  return found == last_.end() ? -1 : found->second;
}

int RunGraph::AddNode(int stream) {
  const int node = static_cast<int>(before_.size());
  Grow();
  if (host_ >= 0) before_[node].push_back(host_);
  if (LastOf(stream) >= 0) before_[node].push_back(LastOf(stream));
  stream_[node] = stream;
  last_[stream] = node;
  return node;
}

// Depth first, backwards: numbers fall along the edges.
bool RunGraph::Leads(int from, int to) const {
  std::vector<bool> seen(static_cast<size_t>(to) + 1, false);
  std::vector<int> todo = {to};
  while (!todo.empty()) {
    const int node = todo.back();
    todo.pop_back();
    if (node == from) return true;
    for (int before : before_[node]) {
      if (before < from || seen[before]) continue;
      seen[before] = true;
      todo.push_back(before);
    }
  }
  return false;
}

}  // namespace weft::testing
