// The storage of one rank whose program is replayed.
#ifndef WEFT_TESTS_REPLAY_STORAGE_H_
#define WEFT_TESTS_REPLAY_STORAGE_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/replay/program.h"
#include "tests/replay/run_graph.h"
#include "tests/replay/values.h"
#include "tests/support/program_descs.h"

namespace weft::testing {

// Storage that outlives a step, or not.
struct Memory {
  std::vector<ValueId> cells;
  // By block and name: one cell, or the slices of a buffer.
  std::map<std::pair<int, std::string>, std::vector<CellId>> of_var;
};

// One run of a program on one rank: a step, or the startup program.
struct RankSetting {
  int rank = 0;
  int step = 0;
  int seed = 0;  // of conditions that are guessed
  bool has_startup = false;
  const std::map<int, int>* rings = nullptr;                  // that are set up; null: any
  const std::set<std::string>* feeds = nullptr;               // of the reference
  const std::map<std::string, std::string>* types = nullptr;  // of the reference, by name
};

// Variables by name, as ops of the current block see them.
class RankStorage {
 public:
  RankStorage(const ReplayProgram& program, const RankSetting& setting, Memory* memory,
              ValueTable* table)
      : program_(program), setting_(setting), memory_(*memory), table_(*table) {}

  void set_block(int block) { block_ = block; }

  // nullptr: it is not declared.
  const pb::VarDesc* Var(const std::string& name) const {
    return program_.Find(block_, name).second;
  }
  // One cell, or those of the slices of a buffer.
  const std::vector<CellId>& CellsOf(const std::string& name);
  ValueId Value(CellId cell) const { return memory_.cells[cell]; }
  // What a variable that is declared otherwise than in the reference holds, is not the same.
  void SetValue(CellId cell, const std::string& name, ValueId value) {
    memory_.cells[cell] = Declared(name, value);
  }

  // Whole variables and buffers.
  ValueId Read(const std::string& name);
  void Write(const std::string& name, ValueId value);
  // What the outside gives the variable.
  ValueId Feed(const std::string& name) const;

  // A cell of its own for a variable, which is a slice of a buffer; and the buffer.
  CellId AddSlice(const std::string& name, ValueId value);
  void SetSlices(const std::string& buffer, std::vector<CellId> slices,
                 std::vector<std::string> types);
  // The types of the slices; nullptr for what is no buffer.
  const std::vector<std::string>* SliceTypesOf(const std::string& name) const;

 private:
  using VarKey = std::pair<int, std::string>;

  // The block that declares it.
  VarKey Key(const std::string& name) const { return {program_.Find(block_, name).first, name}; }
  ValueId Declared(const std::string& name, ValueId value);

  const ReplayProgram& program_;
  const RankSetting setting_;
  Memory& memory_;
  ValueTable& table_;
  int block_ = 0;
  std::map<VarKey, std::vector<std::string>> slice_types_;  // of buffers
  std::map<std::string, bool> is_as_expected_;
  std::map<std::string, std::string> as_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_STORAGE_H_
