#include "ops/analysis/values/flat_buffers.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

class Finder {
 public:
  explicit Finder(const Program& program) : program_(program) {
    for (const Op& op : AllOps(program)) {
      for (Symbol arg : op.input_args()) Note(op, &readers_[arg]);
      for (Symbol arg : op.output_args()) Note(op, &writers_[arg]);
    }
  }

  // An op of the root block, the only one that writes the variable; none: there is another one.
  absl::optional<Op> WriterOf(Symbol var) const {
    const auto found = writers_.find(var);
    if (found == writers_.end() || found->second.size() != 1) return absl::nullopt;
    const Op op = program_.op(found->second[0]);
    return op.block() == 0 ? absl::make_optional(op) : absl::nullopt;
  }
  // The ops of the root block that read it after `op`.
  std::vector<Op> ReadersOf(Symbol var, const Op& op) const {
    std::vector<Op> readers;
    const auto found = readers_.find(var);
    if (found == readers_.end()) return readers;
    for (OpId id : found->second) {
      const Op reader = program_.op(id);
      if (reader.block() == 0 && reader.position() > op.position()) readers.push_back(reader);
    }
    return readers;
  }

  // The elements of a variable of one dimension; -1: another one.
  int64_t FlatSize(Symbol var) const {
    const absl::optional<TensorType> type = TypeOf(var);
    return type.has_value() && type->dims.size() == 1 ? type->dims[0] : -1;
  }
  int64_t Size(Symbol var) const {
    const absl::optional<TensorType> type = TypeOf(var);
    return type.has_value() ? NumElements(type->dims) : -1;
  }
  VarId Var(Symbol name) const { return program_.block(0).FindVar(name); }

 private:
  using Map = absl::flat_hash_map<Symbol, std::vector<OpId>>;  // each op once

  static void Note(const Op& op, std::vector<OpId>* ops) {
    if (ops->empty() || ops->back() != op.id()) ops->push_back(op.id());
  }

  absl::optional<TensorType> TypeOf(Symbol name) const {
    const VarId var = Var(name);
    if (!var.valid()) return absl::nullopt;
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    const bool is_dense = type.has_value() && type->kind == TensorType::Kind::kDense;
    return is_dense ? type : absl::nullopt;
  }

  const Program& program_;
  Map writers_, readers_;
};

bool Is(const Op& op, Algebra algebra) { return AlgebraOf(op, FindOpSchema(op.type())) == algebra; }

bool IsAlongFirstAxis(const Op& op) {
  return op.IntAttr("axis").value_or(0) == 0 && op.input_args().size() == op.Input("X").size();
}

// Of X alone, to dims that its output declares.
bool Reshapes(const Op& op) {
  return Is(op, Algebra::kReshape) && op.input_args().size() == 1 && op.Output("Out").size() == 1;
}

absl::optional<FlatBuffer> MadeBy(const Op& concat, const Finder& finder) {
  if (!Is(concat, Algebra::kConcat) || !IsAlongFirstAxis(concat)) return absl::nullopt;
  FlatBuffer buffer;
  int64_t end = 0;
  for (Symbol part : concat.Input("X")) {
    const int64_t size = finder.FlatSize(part);
    absl::optional<Op> writer = finder.WriterOf(part);
    if (size < 0 || !writer.has_value() || writer->position() > concat.position()) {
      return absl::nullopt;
    }
    buffer.parts.push_back({finder.Var(part), {}, size});
    end += size;
    if (!Reshapes(*writer)) continue;
    const Symbol tensor = writer->input_args()[0];
    const absl::optional<Op> before = finder.WriterOf(tensor);
    const bool is_known = before.has_value() && before->position() < writer->position() &&
                          finder.Size(tensor) == size;
    if (is_known) buffer.parts.back().others = {finder.Var(tensor)};
  }
  return end == finder.FlatSize(concat.output_args()[0]) ? absl::make_optional(buffer)
                                                         : absl::nullopt;
}

absl::optional<FlatBuffer> TakenBy(const Op& split, const Finder& finder) {
  if (!Is(split, Algebra::kSplitEqual) || !IsAlongFirstAxis(split)) return absl::nullopt;
  FlatBuffer buffer;
  int64_t end = 0;
  for (Symbol part : split.Output("Out")) {
    const int64_t size = finder.FlatSize(part);
    const absl::optional<Op> writer = finder.WriterOf(part);
    if (size < 0 || !writer.has_value()) return absl::nullopt;
    buffer.parts.push_back({finder.Var(part), {}, size});
    end += size;
    for (const Op& reader : finder.ReadersOf(part, split)) {
      if (!Reshapes(reader)) continue;
      const Symbol tensor = reader.Output("Out")[0];
      if (!finder.WriterOf(tensor).has_value() || finder.Size(tensor) != size) continue;
      buffer.parts.back().others.push_back(finder.Var(tensor));
    }
  }
  return end == finder.FlatSize(split.input_args()[0]) ? absl::make_optional(buffer)
                                                       : absl::nullopt;
}

}  // namespace

FlatBuffers::FlatBuffers(const Program& program) {
  std::vector<std::pair<Op, const CollectiveOp*>> collectives;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (collective == nullptr ||
        !(SplitsInput(collective->kind) || collective->kind == CollectiveKind::kAllGather)) {
      continue;
    }
    const bool has_one = collective->Inputs(op).size() == 1 && collective->Outputs(op).size() == 1;
    if (has_one) collectives.emplace_back(op, collective);
  }
  if (collectives.empty()) return;
  const Finder finder(program);
  for (const auto& [op, collective] : collectives) {
    if (SplitsInput(collective->kind)) {
      const Symbol whole = collective->Inputs(op)[0];
      const absl::optional<Op> writer = finder.WriterOf(whole);
      if (!writer.has_value() || writer->position() > op.position()) continue;
      absl::optional<FlatBuffer> made = MadeBy(*writer, finder);
      if (made.has_value()) made_.emplace(finder.Var(whole), *std::move(made));
    } else {
      const Symbol whole = collective->Outputs(op)[0];
      if (!finder.WriterOf(whole).has_value()) continue;
      for (const Op& reader : finder.ReadersOf(whole, op)) {
        absl::optional<FlatBuffer> taken = TakenBy(reader, finder);
        if (taken.has_value()) taken_[finder.Var(whole)].push_back(*std::move(taken));
      }
    }
  }
}

}  // namespace weft
