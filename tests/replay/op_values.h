// What ops of programs that are replayed compute.
#ifndef WEFT_TESTS_REPLAY_OP_VALUES_H_
#define WEFT_TESTS_REPLAY_OP_VALUES_H_

#include <map>
#include <string>

#include "tests/replay/program.h"
#include "tests/replay/storage.h"
#include "tests/replay/values.h"

namespace weft::testing {

class OpValues {
 public:
  OpValues(const RankSetting& setting, RankStorage* storage, ValueTable* table)
      : setting_(setting), storage_(*storage), table_(*table) {}

  // Any op but collectives and those that run blocks, fuse buffers or set up rings.
  void Compute(const ReplayOp& op);

 private:
  bool ComputeSlices(const ReplayOp& op);
  bool ComputeNumber(const ReplayOp& op);
  bool ComputeSum(const ReplayOp& op);
  bool ComputeParts(const ReplayOp& op);
  bool ComputeSlice(const ReplayOp& op);
  void ComputeFunction(const ReplayOp& op);

  const RankSetting setting_;
  RankStorage& storage_;
  ValueTable& table_;
  std::map<std::string, int> draws_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_OP_VALUES_H_
