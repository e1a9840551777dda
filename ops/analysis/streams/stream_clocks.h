// Vector clocks of streams, with blocks that may be skipped.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_STREAM_CLOCKS_H_
#define WEFT_OPS_ANALYSIS_STREAMS_STREAM_CLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// An access to storage: the time and the stream of its op, and its kind.
struct StreamAccess {
  uint32_t time = 0;  // 1, 2, ...; 0: none
  uint16_t stream = 0;
  bool in_branch = false;
  bool writes = false;
};

// Follows a program in the order in which the host issues it. Stream t knows stream s up to time n
// if every op of s until n comes before the next op of t. A wait passes on all that the other side
// knows: happens-before is transitive.
//
// Branches. A block that may be skipped orders nothing on the path around it, while its ops exist
// on the other path only. So there are two components for each stream: of its ops outside of
// branches, and of those inside. After a branch, all streams know
//   - of ops outside, what they knew before it;
//   - of ops inside, what they learnt in it: if it was skipped, there are none. But a stream that
//   did
//     not know all ops of earlier branches before this one knows no more than it did: on one path
//     those ran, and this wait did not.
//
// Sources. With `track_sources`, every component remembers the sequence of waits that it came
// through; Rely marks them. If waits marked before account for a component, Rely marks nothing, so
// that few waits are marked: of several sufficient ones, the last before the first access that
// needs it.
class StreamClocks {
 public:
  // The source of a wait that is no op of the program.
  static constexpr uint32_t kNoOp = 0xffffffffu;

  StreamClocks(int num_streams, bool track_sources);

  // Issues an op to the stream; returns its time. O(1), after a wait of the host O(streams).
  uint32_t Issue(int stream) {
    CatchUp(stream);
    Row(stream)[stream + (in_branch() ? num_streams_ : 0)].known = ++time_;
    return time_;
  }

  // Ops issued to `waiting` from now on come after the ops of `stream` so far. Returns false if
  // they did already. `source` is the index of the wait in MarkedSources. O(streams).
  bool Wait(int waiting, int stream, uint32_t source);
  // The host waits for the stream: ops issued from now on, to any stream, come after.
  bool HostWait(int stream, uint32_t source);

  // Whether all ops of `stream` so far come before those issued to `waiting` from now on. O(1).
  bool KnowsAll(int waiting, int stream) {
    CatchUp(waiting);
    const auto knows = [&](size_t i) { return Row(waiting)[i].known >= Row(stream)[i].known; };
    return knows(stream) && knows(stream + num_streams_);
  }

  // The same for an op that makes the host wait on some machines only: later waits for the same ops
  // still count as ordering something.
  void IncidentalHostWait(int stream);

  void EnterBranch();
  void LeaveBranch();  // O(streams) for each stream that learnt something inside
  bool in_branch() const { return !frames_.empty(); }
  // The first time in the innermost branch, or 1.
  uint32_t branch_start() const { return frames_.empty() ? 1 : frames_.back().start; }

  // Whether the access comes before the last op of `stream`. O(1).
  bool IsBefore(const StreamAccess& access, int stream) const {
    return access.stream == stream || access.time <= Find(access, stream).known ||
           access.time <= incidental_[Index(access)];
  }
  // The caller relies on IsBefore: marks the waits that ensure it. O(1) amortized.
  void Rely(const StreamAccess& access, int stream);

  // By source below `count`: whether it is marked.
  std::vector<bool> MarkedSources(uint32_t count) const;
  // Also marks the waits that would be relied on without IncidentalHostWait.
  void MarkPrecautions();
  // Lets the stream know what the host has waited for.
  void CatchUp(int stream) {
    if (seen_host_[stream] == host_version_) return;
    Join(stream, host_, kNoOp);
    seen_host_[stream] = host_version_;
  }

 private:
  struct Component {
    uint32_t known = 0;   // a time
    uint32_t kept = 0;    // the part of `known` that marked waits account for
    uint32_t source = 0;  // into sources_; 0: the stream's own ops, or a wait that must stay
  };
  // A wait and the sources of its other side; or (kNoOp) the sources on two paths.
  struct Source {
    uint32_t op;
    uint32_t first, second;  // into sources_; 0: none
    bool marked;
  };
  struct BranchFrame {
    uint32_t start;      // first time inside
    size_t first_saved;  // into saved_
    size_t first_last;   // into last_inside_
  };
  // A row as it was at EnterBranch, saved before its first change.
  struct SavedRow {
    int row;
    size_t outer_frame;  // frames in which it had been saved before
    uint32_t seen_host;
    size_t components;  // into saved_components_
  };

  Component* Row(int stream) { return &components_[stream * row_size_]; }
  const Component* Row(int stream) const { return &components_[stream * row_size_]; }
  size_t Index(const StreamAccess& access) const {
    return access.stream + (access.in_branch ? num_streams_ : 0);
  }
  const Component& Find(const StreamAccess& access, int stream) const {
    return Row(stream)[Index(access)];
  }
  bool Join(int to, int from, uint32_t source);
  void Save(int row);
  void Restore(const SavedRow& saved, const uint32_t* last_inside);
  uint32_t NewSource(uint32_t op, uint32_t first, uint32_t second);
  void Mark(uint32_t source);

  const size_t num_streams_;
  const size_t row_size_;
  const int host_;  // the row of the host, which has no ops of its own
  const bool track_sources_;
  uint32_t time_ = 0;
  std::vector<Component> components_;
  std::vector<uint32_t> seen_host_;  // by stream: the version of the host's row that it has joined
  uint32_t host_version_ = 0;
  uint32_t last_host_version_ = 0;
  // By component: the times before everything that is issued from now on, by IncidentalHostWait.
  std::vector<uint32_t> incidental_;
  std::vector<Source> sources_;
  std::vector<uint32_t> to_mark_;
  std::vector<uint32_t> precautions_;  // sources

  std::vector<BranchFrame> frames_;
  std::vector<size_t> saved_in_;  // by row: how many frames there were when it was last saved
  std::vector<SavedRow> saved_;
  std::vector<Component> saved_components_;
  std::vector<uint32_t> saved_incidental_;  // of each frame, at EnterBranch
  std::vector<uint32_t>
      last_inside_;  // of each frame, by stream: the last op in a branch before it
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_STREAM_CLOCKS_H_
