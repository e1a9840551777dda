// Products and other functions of matrices.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace batch {
namespace {

// Of tensors of matrices, whose dimensions before the last two are broadcast: the one of the output
// along which are matrices of different samples; -1: none, or it is unknown.
int BatchOfMatrices(BatchRelation x, const Dims& xs, BatchRelation y, const Dims& ys) {
  const int rx = static_cast<int>(xs.size()), ry = static_cast<int>(ys.size());
  const int rank = std::max(rx, ry);
  const auto batch_axis = [&](BatchRelation in, int in_rank) {
    return in.IsSharded() && in.axis < in_rank - 2 ? in.axis + rank - in_rank : -1;
  };
  const int ax = batch_axis(x, rx), ay = batch_axis(y, ry);
  const auto is_repeated = [&](BatchRelation in, const Dims& dims, int axis) {
    const int at = axis - (rank - static_cast<int>(dims.size()));
    return in.IsReplicated() && (at < 0 || dims[at] == 1);
  };
  if (ax >= 0 && (ax == ay || is_repeated(y, ys, ax))) return ax;
  return ay >= 0 && is_repeated(x, xs, ay) ? ay : -1;
}

// Out = op(X) op(Y): matrices in the last two dimensions, the others are broadcast.
void MatMulOf(BatchContext& c, bool transpose_x, bool transpose_y) {
  const BatchRelation x = c.In("X"), y = c.In("Y");
  const absl::optional<Dims> xs = c.InDims("X"), ys = c.InDims("Y");
  if (!xs.has_value() || !ys.has_value() || xs->size() < 2 || ys->empty()) return;
  if (ys->size() == 1) {
    // Y is a vector: the last dimension of Out, of size 1, is dropped.
    const int row = static_cast<int>(xs->size()) - (transpose_x ? 1 : 2);
    const int last = static_cast<int>(xs->size()) - 2;
    if (!y.IsReplicated() || !x.IsSharded()) return;
    if (x.axis == row || x.axis < last)
      c.SetAll(BatchRelation::Sharded(std::min<int>(x.axis, last)));
    return;
  }
  const int rx = static_cast<int>(xs->size()), ry = static_cast<int>(ys->size());
  const int rank = std::max(rx, ry);
  const int contracted_x = transpose_x ? rx - 2 : rx - 1, row = transpose_x ? rx - 1 : rx - 2;
  const int contracted_y = transpose_y ? ry - 1 : ry - 2, column = transpose_y ? ry - 2 : ry - 1;
  if (y.IsReplicated() && x.axis == row) return c.SetAll(BatchRelation::Sharded(rank - 2));
  if (x.IsReplicated() && y.axis == column) return c.SetAll(BatchRelation::Sharded(rank - 1));
  if (x.IsSharded() && y.IsSharded() && x.axis == contracted_x && y.axis == contracted_y) {
    return c.SetAll(BatchRelation::PartialSum());
  }
  const int batch = BatchOfMatrices(x, *xs, y, *ys);
  if (batch >= 0) c.SetAll(BatchRelation::Sharded(batch));
}

}  // namespace

// A matrix by a vector.
void MatVec(BatchContext& c) {
  const BatchRelation x = c.In("X"), vec = c.In("Vec");
  if (x == BatchRelation::Sharded(0) && vec.IsReplicated()) c.SetAll(x);
  if (x == BatchRelation::Sharded(1) && vec.IsSharded()) c.SetAll(BatchRelation::PartialSum());
}

// A product for each row.
void Dot(BatchContext& c) {
  const absl::optional<Dims> dims = c.InDims("X");
  if (!dims.has_value() || c.In("X") != BatchRelation::Sharded(0) || c.In("Y") != c.In("X")) return;
  c.SetAll(dims->size() == 1 ? BatchRelation::PartialSum() : BatchRelation::Sharded(0));
}

BatchRun MatMul(const char* transpose_x, const char* transpose_y) {
  return [=](BatchContext& c) {
    MatMulOf(c, transpose_x != nullptr && c.attrs().Bool(transpose_x),
             transpose_y != nullptr && c.attrs().Bool(transpose_y));
  };
}

// X as a matrix whose rows are its first dimensions.
void Mul(BatchContext& c) {
  const BatchRelation x = c.In("X"), y = c.In("Y");
  if (y.IsReplicated() && x.IsSharded() && x.axis < c.attrs().Int("x_num_col_dims")) c.SetAll(x);
}

// Input + X Y, where the rows of Input are those of X, or one for all.
void AddMatMul(BatchContext& c) {
  const BatchRelation rows = BatchRelation::Sharded(0);
  const absl::optional<Dims> added = c.InDims("Input");
  if (c.In("X") != rows || !c.In("Y").IsReplicated() || !added.has_value()) return;
  const bool is_repeated = c.In("Input").IsReplicated() && (added->size() < 2 || (*added)[0] == 1);
  if (is_repeated || c.In("Input") == rows) c.SetAll(rows);
}

// The batch has one letter in the equation. It is contracted if the output lacks it.
void Einsum(BatchContext& c) {
  const std::vector<std::string> sides =
      absl::StrSplit(absl::StrReplaceAll(c.attrs().String("equation"), {{" ", ""}}), "->");
  if (sides.size() != 2) return;
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  const absl::Span<const BatchRelation> ins = c.AllIn("Operands");
  // The dimensions of an ellipsis have no letters.
  if (operands.size() != ins.size() || absl::StrContains(sides[0], '.')) return;
  char batch = 0;
  for (size_t i = 0; i < ins.size(); ++i) {
    if (!ins[i].IsSharded()) continue;
    if (ins[i].axis >= static_cast<int>(operands[i].size())) return;
    const char letter = operands[i][ins[i].axis];
    if (absl::c_count(operands[i], letter) > 1 || (batch != 0 && batch != letter)) return;
    batch = letter;
  }
  for (size_t i = 0; i < ins.size(); ++i) {
    if (ins[i].IsReplicated() && absl::StrContains(operands[i], batch)) return;
  }
  const size_t out = sides[1].find(batch);
  c.Set("Out", out == std::string::npos ? BatchRelation::PartialSum()
                                        : BatchRelation::Sharded(static_cast<int>(out)));
}

// X times matrices, whose columns depend on all rows of theirs.
void MultiDot(BatchContext& c) {
  const absl::Span<const BatchRelation> all = c.AllIn("X");
  const absl::optional<Dims> first = c.InDims("X");
  if (!first.has_value() || first->size() != 2 || all[0] != BatchRelation::Sharded(0)) return;
  for (size_t i = 1; i < all.size(); ++i) {
    if (!all[i].IsReplicated()) return;
  }
  c.SetAll(BatchRelation::Sharded(0));
}

// Every element of X times all of Y: along each dimension, the elements of X are the outer ones.
void Kron(BatchContext& c) {
  const absl::optional<Dims> x = c.InDims("X"), y = c.InDims("Y");
  if (!c.In("X").IsSharded() || !c.In("Y").IsReplicated() || !x.has_value() || !y.has_value()) {
    return;
  }
  const int added = std::max(0, static_cast<int>(y->size()) - static_cast<int>(x->size()));
  c.SetAll(BatchRelation::Sharded(c.In("X").axis + added));
}

// Vectors of three elements. Without `dim`, they lie along the first axis of size 3, which may be
// that of the batch.
void Cross(BatchContext& c) {
  const absl::optional<Dims> dims = c.InDims("X");
  const BatchRelation in = c.In("X");
  if (!dims.has_value() || c.In("Y") != in) return;
  const int axis = c.Axis("dim", dims->size());
  if (axis >= 0 && axis != in.axis) c.SetAll(in);
}

// Of the matrices in axis1 and axis2, their diagonals, along a new last dimension, or what is made
// of them.
void Diagonal(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  const absl::optional<Dims> dims = c.InDims("Input");
  if (!in.IsSharded() || !dims.has_value()) return;
  const int a = c.Axis("axis1", dims->size()), b = c.Axis("axis2", dims->size());
  if (a < 0 || b < 0 || a == in.axis || b == in.axis) return;
  c.SetAll(BatchRelation::Sharded(in.axis - (a < in.axis ? 1 : 0) - (b < in.axis ? 1 : 0)));
}

// Matrices in two new dimensions, which have the last dimension of Input as a diagonal.
void DiagEmbed(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  const absl::optional<Dims> dims = c.InDims("Input");
  if (!in.IsSharded() || !dims.has_value() || in.axis + 1 == static_cast<int>(dims->size())) return;
  const int a = c.Axis("dim1", dims->size() + 1), b = c.Axis("dim2", dims->size() + 1);
  if (a < 0 || b < 0) return;
  int at = in.axis;
  if (std::min(a, b) <= at) ++at;
  if (std::max(a, b) <= at) ++at;
  c.SetAll(BatchRelation::Sharded(at));
}

BatchRun Solve(const char* matrix_slot, const char* right_slot, bool may_be_vectors) {
  return [=](BatchContext& c) {
    const BatchRelation matrix = c.In(matrix_slot), right = c.In(right_slot);
    const absl::optional<Dims> ms = c.InDims(matrix_slot), rs = c.InDims(right_slot);
    if (!ms.has_value() || !rs.has_value() || ms->size() < 2) return;
    const bool may_be_vector_each = may_be_vectors && rs->size() + 1 == ms->size();
    if (may_be_vector_each || rs->size() < 2) {
      // A vector for each matrix, in the last dimension.
      const bool is_vector_each =
          right.IsSharded() && matrix == right && right.axis + 1 < static_cast<int>(rs->size()) &&
          std::equal(rs->begin(), rs->end(), ms->begin()) &&
          std::count(rs->begin(), rs->end(), -1) == ((*rs)[right.axis] == -1 ? 1 : 0);
      if (is_vector_each) c.SetAll(right);
      return;
    }
    // The columns of right sides are solved for one by one.
    const int rank = static_cast<int>(std::max(ms->size(), rs->size()));
    if (matrix.IsReplicated() && right.axis + 1 == static_cast<int>(rs->size())) {
      return c.SetAll(BatchRelation::Sharded(rank - 1));
    }
    const int batch = BatchOfMatrices(matrix, *ms, right, *rs);
    if (batch >= 0) c.SetAll(BatchRelation::Sharded(batch));
  };
}

}  // namespace batch
}  // namespace weft
