#include "ops/analysis/streams/stream_clocks.h"

#include <algorithm>

namespace weft {

StreamClocks::StreamClocks(int num_streams, bool track_sources)
    : num_streams_(num_streams),
      row_size_(2 * num_streams_),
      host_(num_streams),
      track_sources_(track_sources),
      components_((num_streams_ + 1) * row_size_),
      seen_host_(num_streams_ + 1, 0),
      incidental_(row_size_, 0),
      sources_({Source{kNoOp, 0, 0, true}}),
      saved_in_(num_streams_ + 1, 0) {}

bool StreamClocks::Wait(int waiting, int stream, uint32_t source) {
  CatchUp(waiting);
  CatchUp(stream);
  return Join(waiting, stream, source);
}

bool StreamClocks::HostWait(int stream, uint32_t source) {
  CatchUp(stream);
  if (!Join(host_, stream, source)) return false;
  host_version_ = ++last_host_version_;
  return true;
}

void StreamClocks::IncidentalHostWait(int stream) {
  CatchUp(stream);
  for (size_t i = 0; i < row_size_; ++i) {
    incidental_[i] = std::max(incidental_[i], Row(stream)[i].known);
  }
}

bool StreamClocks::Join(int to, int from, uint32_t source) {
  Save(to);
  Component* const ours = Row(to);
  const Component* const theirs = Row(from);
  bool learnt = false;
  for (size_t i = 0; i < row_size_; ++i) {
    if (theirs[i].known <= ours[i].known) continue;
    learnt = true;
    ours[i].known = theirs[i].known;
    if (!track_sources_) continue;
    ours[i].source = source == kNoOp ? theirs[i].source : NewSource(source, theirs[i].source, 0);
  }
  return learnt;
}

// --- Branches ------------------------------------------------------------------------------------

void StreamClocks::EnterBranch() {
  frames_.push_back({time_ + 1, saved_.size(), last_inside_.size()});
  saved_incidental_.insert(saved_incidental_.end(), incidental_.begin(), incidental_.end());
  for (size_t s = 0; s < num_streams_; ++s) {
    last_inside_.push_back(Row(static_cast<int>(s))[num_streams_ + s].known);
  }
}

void StreamClocks::Save(int row) {
  if (saved_in_[row] == frames_.size()) return;
  saved_.push_back({row, saved_in_[row], seen_host_[row], saved_components_.size()});
  saved_in_[row] = frames_.size();
  saved_components_.insert(saved_components_.end(), Row(row), Row(row) + row_size_);
}

void StreamClocks::LeaveBranch() {
  const BranchFrame frame = frames_.back();
  frames_.pop_back();
  for (size_t i = frame.first_saved; i < saved_.size(); ++i) {
    Restore(saved_[i], &last_inside_[frame.first_last]);
  }
  if (saved_.size() > frame.first_saved) {
    saved_components_.resize(saved_[frame.first_saved].components);
    saved_.resize(frame.first_saved);
  }
  const size_t first_incidental = saved_incidental_.size() - row_size_;
  const uint32_t* const incidental = &saved_incidental_[first_incidental];
  std::copy(incidental, incidental + num_streams_, incidental_.begin());
  for (size_t s = 0; s < num_streams_; ++s) {
    const uint32_t before = incidental[num_streams_ + s];
    if (before < last_inside_[frame.first_last + s]) incidental_[num_streams_ + s] = before;
  }
  saved_incidental_.resize(first_incidental);
  last_inside_.resize(frame.first_last);
}

void StreamClocks::Restore(const SavedRow& saved, const uint32_t* last_inside) {
  Component* const now = Row(saved.row);
  const Component* const then = &saved_components_[saved.components];
  std::copy(then, then + num_streams_, now);
  for (size_t s = 0; s < num_streams_; ++s) {
    Component& inside = now[num_streams_ + s];
    const Component& before = then[num_streams_ + s];
    if (before.known < last_inside[s]) {
      inside = before;
      continue;
    }
    // The stream knows the ops of this branch through waits in it, those of earlier branches
    // through waits before it.
    if (track_sources_ && inside.known != before.known) {
      inside.source = NewSource(kNoOp, inside.source, before.source);
    }
    inside.kept = before.kept;
  }
  saved_in_[saved.row] = saved.outer_frame;
  if (saved.row == host_) {
    host_version_ = ++last_host_version_;
  } else {
    seen_host_[saved.row] = saved.seen_host;
  }
}

// --- Sources -------------------------------------------------------------------------------------

uint32_t StreamClocks::NewSource(uint32_t op, uint32_t first, uint32_t second) {
  if (op == kNoOp && (first == 0 || second == 0)) return first + second;
  sources_.push_back({op, first, second, false});
  return static_cast<uint32_t>(sources_.size() - 1);
}

void StreamClocks::Rely(const StreamAccess& access, int stream) {
  if (!track_sources_ || access.stream == stream) return;
  Component& component = Row(stream)[Index(access)];
  if (access.time <= component.kept || access.time > component.known) return;
  if (access.time <= incidental_[Index(access)]) {
    precautions_.push_back(component.source);
    return;
  }
  Mark(component.source);
  component.kept = component.known;
}

void StreamClocks::MarkPrecautions() {
  for (uint32_t source : precautions_) Mark(source);
}

// All sources that lead to a marked source are marked.
void StreamClocks::Mark(uint32_t source) {
  to_mark_.push_back(source);
  while (!to_mark_.empty()) {
    Source& next = sources_[to_mark_.back()];
    to_mark_.pop_back();
    if (next.marked) continue;
    next.marked = true;
    for (uint32_t from : {next.first, next.second}) {
      if (from != 0) to_mark_.push_back(from);
    }
  }
}

std::vector<bool> StreamClocks::MarkedSources(uint32_t count) const {
  std::vector<bool> marked(count, false);
  for (const Source& source : sources_) {
    if (source.marked && source.op < count) marked[source.op] = true;
  }
  return marked;
}

}  // namespace weft
