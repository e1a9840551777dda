// One run of a program on one rank, from call to call of other ranks.
#ifndef WEFT_TESTS_REPLAY_RANK_RUN_H_
#define WEFT_TESTS_REPLAY_RANK_RUN_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tests/replay/op_values.h"
#include "tests/replay/program.h"
#include "tests/replay/run_graph.h"
#include "tests/replay/storage.h"
#include "tests/replay/values.h"

namespace weft::testing {

class RankRun {
 public:
  // `before`: what earlier runs left to do.
  RankRun(const ReplayProgram& program, const RankSetting& setting, RunGraph before, Memory* memory,
          ValueTable* table)
      : program_(program),
        setting_(setting),
        table_(*table),
        storage_(program, setting, memory, table),
        values_(setting, &storage_, table),
        graph_(std::move(before)) {
    frames_.push_back({0, 0});
  }
  // Parts of it point to each other.
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  // Up to the next call of other ranks, which is not made yet; nullptr: the end, or failed.
  const ReplayOp* RunToCall();

  // What ranks must agree on.
  std::string Signature(const ReplayOp& op) const;

  // Variables of a slot, and their storage, as far as the collective takes part in it.
  std::vector<std::vector<CellId>> Cells(const ReplayOp& op, const std::string& slot, bool input);
  ValueId Value(CellId cell) const { return storage_.Value(cell); }
  // To a cell of argument `out` of slot Out.
  void SetValue(const ReplayOp& op, size_t out, CellId cell, ValueId value);
  void IssueCollective(const ReplayOp& op) { Issue(op, StreamOf(op)); }

  // The id by which the op joins a ring.
  ValueId IdOf(const ReplayOp& op) { return storage_.Read(op.inputs[0].name); }
  // The op made or joined a ring; an id may come out.
  void SetUp(const ReplayOp& op, ValueId id);
  // The op met the same op of all other ranks.
  void Meet(const ReplayOp& op) { Run(op); }

  const std::string& unsupported() const { return unsupported_; }
  const std::string& failure() const { return failure_; }
  int num_guesses() const { return num_guesses_; }
  std::string FindRace() const { return graph_.FindRace(); }
  // What is left to do when the host and the compute stream are done.
  RunGraph Pending();

 private:
  struct RunningBlock {
    int block;
    size_t next;
  };

  int StreamOf(const ReplayOp& op) const;
  void Issue(const ReplayOp& op, int stream);
  void Run(const ReplayOp& op);
  void Synchronize(const ReplayOp& op);
  void Branch(const ReplayOp& op);
  bool IsTrue(ValueId condition);
  void Coalesce(const ReplayOp& op);

  const ReplayProgram& program_;
  const RankSetting setting_;
  ValueTable& table_;
  RankStorage storage_;
  OpValues values_;
  RunGraph graph_;
  std::vector<RunningBlock> frames_;
  std::string unsupported_, failure_;
  int num_guesses_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_RANK_RUN_H_
