// Which variables share memory.
#ifndef WEFT_OPS_ANALYSIS_STORAGE_H_
#define WEFT_OPS_ANALYSIS_STORAGE_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/analysis/access_history.h"
#include "proto/program.h"

namespace weft {

// Gives every variable a cell of its own, when it is first asked for, and what was done with it. A
// buffer, which is laid out, is the cells of its members; the cell of a variable goes with it from
// buffer to buffer. A buffer that has lost a member knows it.
class Storage {
 public:
  explicit Storage(const Program& program) : cell_of_var_(program.var_id_limit(), kNone) {}

  struct Cell {
    VarId var;
    int buffer = -1;  // that it is a slice of
    AccessHistory history;
  };
  struct Buffer {
    VarId var;
    std::vector<int> cells;
    OpId moved_by;  // has taken a slice away
    VarId moved;
    bool reported = false;
  };

  // nullptr where the variable is no buffer.
  Buffer* FindBuffer(VarId var) {
    const int index = cell_of_var_[var.value()];
    return index < kNone ? &buffers_[kNone - 1 - index] : nullptr;
  }
  // Of a variable that is no buffer.
  int CellOf(VarId var) {
    int& index = cell_of_var_[var.value()];
    if (index == kNone) {
      index = static_cast<int>(cells_.size());
      cells_.emplace_back();
      cells_.back().var = var;
    }
    return index;
  }
  Cell& cell(int index) { return cells_[index]; }
  std::vector<Cell>& cells() { return cells_; }

  // Makes the members slices of the buffer. Calls `twice` with members that are there already.
  template <typename Twice>
  void AddBuffer(OpId op, VarId var, const std::vector<VarId>& members, const Twice& twice) {
    if (const Buffer* before = FindBuffer(var); before != nullptr) {
      if (!before->moved_by.valid() && IsLaidOut(*before, members)) return;
    }
    const int index = static_cast<int>(buffers_.size());
    Buffer buffer;
    buffer.var = var;
    Leave(op, var);
    cell_of_var_[var.value()] = kNone - 1 - index;
    for (VarId member : members) {
      if (member == var) {
        twice(member);
        continue;
      }
      if (FindBuffer(member) != nullptr) cell_of_var_[member.value()] = kNone;
      Cell& slice = cell(CellOf(member));
      if (slice.buffer == index) {
        twice(member);
        continue;
      }
      Leave(op, member);
      slice.buffer = index;
      buffer.cells.push_back(CellOf(member));
    }
    buffers_.push_back(std::move(buffer));
  }

 private:
  static constexpr int kNone = -1;

  bool IsLaidOut(const Buffer& buffer, const std::vector<VarId>& members) {
    return std::equal(members.begin(), members.end(), buffer.cells.begin(), buffer.cells.end(),
                      [&](VarId member, int cell) { return cells_[cell].var == member; });
  }

  // The variable goes to another place than the buffer that it is a slice of.
  void Leave(OpId op, VarId var) {
    const int index = cell_of_var_[var.value()];
    if (index < 0 || cells_[index].buffer < 0) return;
    Buffer& buffer = buffers_[cells_[index].buffer];
    buffer.moved_by = op;
    buffer.moved = var;
    cells_[index].buffer = -1;
  }

  // By VarId: a cell; kNone; or, counted down from kNone - 1, a buffer.
  std::vector<int> cell_of_var_;
  std::vector<Cell> cells_;
  std::vector<Buffer> buffers_;  // also those that have been replaced
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STORAGE_H_
