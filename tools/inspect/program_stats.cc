#include "tools/inspect/program_stats.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/block_periods.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/schema/algebra.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Saturates: files may declare any size.
void AddTo(int64_t* sum, int64_t value) {
  if (__builtin_add_overflow(*sum, value, sum)) *sum = std::numeric_limits<int64_t>::max();
}

void AddTotals(const TensorTotals& totals, TensorTotals* sum) {
  sum->count += totals.count;
  AddTo(&sum->elements, totals.elements);
  AddTo(&sum->bytes, totals.bytes);
  sum->unknown += totals.unknown;
  sum->bounded += totals.bounded;
  AddTo(&sum->bound_bytes, totals.bound_bytes);
}

class Counter {
 public:
  Counter(const Program& program, int64_t batch)
      : program_(program), batch_(batch), facts_(program), periods_(BlockPeriods(program)) {}

  ProgramStats Count() {
    stats_.version = program_.version();
    stats_.blocks = program_.num_blocks();
    stats_.ops = program_.num_ops();
    stats_.variables = program_.num_vars();
    stats_.fingerprint = Fingerprint(program_);
    for (const Op& op : AllOps(program_)) CountOp(op);
    CountPersistables();
    return std::move(stats_);
  }

 private:
  void CountOp(const Op& op) {
    ++stats_.ops_by_type[std::string(op.type())][op.role()];
    const absl::StatusOr<std::vector<ParamGrad>> pairs = ParamGrads(op);
    if (!pairs.ok()) stats_.malformed.emplace_back(pairs.status().message());
    for (const ParamGrad& pair : pairs.ok() ? *pairs : std::vector<ParamGrad>()) {
      const Symbol param = program_.FindSymbol(pair.param);
      if (param.valid()) trained_.insert(param);
      if (IsBackward(op) && counted_gradients_.insert(pair.grad).second) {
        AddVariable(op.block(), program_.FindSymbol(pair.grad), &stats_.gradients);
      }
    }
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    if (schema->Has(Trait::kOptimizer)) {
      for (Symbol param : op.Input("Param")) trained_.insert(param);
    }
    if (schema->Has(Trait::kAlias)) RememberFused(op, MadeBufferOf(op));
    if (AlgebraOf(op, schema) == Algebra::kSparsify) RememberSent(op);
    if (schema->Has(Trait::kCollective)) CountCommunicated(op, FindCollectiveOp(op)->Inputs(op));
    if (facts_.Get<Communications>().Of(op) == Communication::kMoments) CountMoments(op);
    const absl::optional<MessageOp> message = FindMessageOp(op.type());
    if (message == MessageOp::kSend || op.type() == kBarrierType) {
      CountCommunicated(op, op.Input("X"));
    } else if (message == MessageOp::kReceive) {
      CountCommunicated(op, op.Output("Out"));
    }
  }

  void RememberFused(const Op& op, const MadeBuffer& made) {
    if (!made.name.valid()) return;
    TensorTotals members;
    for (Symbol source : made.sources) AddVariable(op.block(), source, &members);
    TensorTotals padded;
    AddType(FusedType(op, made.name), &padded);
    // Paddle declares some buffers without their size.
    const bool is_padded = padded.unknown == 0 && padded.bytes >= members.bytes;
    TensorTotals& buffer = fused_[made.name] = members.unknown == 0 && is_padded ? padded : members;
    buffer.count = 1;
    buffer.unknown = std::min<int64_t>(buffer.unknown, 1);
  }

  // As many elements as the op says travel as rows, or at most all.
  void RememberSent(const Op& op) {
    const absl::optional<int64_t> sent = op.IntAttr("k");
    const bool says_how_many = sent.has_value() && *sent >= 0 && *sent <= kMaxElements;
    TensorTotals members;
    for (Symbol member : op.Input("X")) AddVariable(op.block(), member, &members);
    const bool is_bounded = members.unknown == 0 && members.elements <= kMaxElements;
    for (Symbol rows : op.Output("Out")) {
      TensorTotals totals;
      totals.count = 1;
      if (says_how_many) {
        totals.elements = *sent;
        totals.bytes = BytesOfRows(*sent);
      } else {
        totals.unknown = 1;
        totals.bounded = is_bounded ? 1 : 0;
        totals.bound_bytes = is_bounded ? BytesOfRows(members.elements) : 0;
      }
      fused_[rows] = totals;
    }
  }

  // Four numbers about them, and an index and a value of each
  // (executor/communicators/rows_all_reduce.h).
  static int64_t BytesOfRows(int64_t rows) {
    return 4 * static_cast<int64_t>(sizeof(int64_t)) + rows * 8;
  }

  // As inferred from the op, else as declared.
  absl::optional<TensorType> FusedType(const Op& op, Symbol fused) const {
    const Block block = program_.block(op.block());
    const auto declared = [&](Symbol name) -> absl::optional<TensorType> {
      const VarId id = block.Resolve(name);
      return id.valid() ? DeclaredType(program_.var(id)) : absl::nullopt;
    };
    // Statistics accept an op that does not match its schema.
    const auto types = InferOutputs(op, declared);
    const absl::Span<const Symbol> outputs = op.output_args();
    for (size_t i = 0; types.ok() && i < outputs.size(); ++i) {
      if (outputs[i] == fused && (*types)[i].has_value()) return (*types)[i];
    }
    return declared(fused);
  }

  // Two sums of each channel and the number of its elements, in fp64 (ops/schema/norm_schemas.cc).
  void CountMoments(const Op& op) {
    TensorTotals& totals = CommunicatedBy(op);
    ++totals.count;
    TensorTotals channels;
    for (Symbol scale : op.Input("Scale")) AddVariable(op.block(), scale, &channels);
    if (channels.count != 1 || channels.unknown > 0) {
      ++totals.unknown;
      return;
    }
    const int64_t sums = 2 * channels.elements + 1;
    AddTo(&totals.elements, sums);
    AddTo(&totals.bytes, sums * static_cast<int64_t>(sizeof(double)));
  }

  TensorTotals& CommunicatedBy(const Op& op) {
    const auto ring_id = static_cast<int>(op.IntAttr("ring_id").value_or(0));
    return stats_.collectives[{ring_id, std::string(op.type()), periods_[op.block()]}];
  }

  // What this rank hands to others, or receives.
  void CountCommunicated(const Op& op, absl::Span<const Symbol> variables) {
    TensorTotals& totals = CommunicatedBy(op);
    // A reduce-scatter takes the rows of all ranks.
    const CollectiveOp* const collective = FindCollectiveOp(op);
    const bool scatters =
        collective != nullptr && collective->kind == CollectiveKind::kReduceScatter;
    const int64_t parts = scatters ? op.IntAttr("nranks").value_or(1) : 1;
    for (Symbol var : variables) AddVariable(op.block(), var, &totals, parts);
  }

  // An unknown first dimension counts as that of the batches of so many ranks; 0: as unknown.
  void AddVariable(int block, Symbol var, TensorTotals* totals, int64_t ranks = 0) {
    const auto fused = fused_.find(var);
    if (fused != fused_.end()) return AddTotals(fused->second, totals);
    const VarId id = var.valid() ? program_.block(block).Resolve(var) : VarId();
    absl::optional<TensorType> type = id.valid() ? DeclaredType(program_.var(id)) : absl::nullopt;
    if (type.has_value() && ranks > 0 && !type->dims.empty() && type->dims[0] == -1) {
      if (__builtin_mul_overflow(batch_, ranks, &type->dims[0])) type->dims[0] = -1;
    }
    AddType(type, totals);
  }

  static void AddType(const absl::optional<TensorType>& type, TensorTotals* totals) {
    ++totals->count;
    // Rows of a tensor: their number is known only at run time.
    const bool dense = type.has_value() && type->kind == TensorType::Kind::kDense;
    const int64_t elements = dense ? NumElements(type->dims) : -1;
    if (elements < 0) {
      ++totals->unknown;
      return;
    }
    AddTo(&totals->elements, elements);
    AddTo(&totals->bytes, elements * static_cast<int64_t>(SizeOf(type->dtype)));
  }

  // Parameters are what is marked or trained, such as a part of parameters; and if nothing is, as
  // in a program for inference, what the program reads and never writes.
  void CountPersistables() {
    bool marked = false;
    for (VarId id : program_.block(0).vars()) marked |= program_.var(id).is_parameter();
    if (!marked && trained_.empty()) {
      for (const Op& op : AllOps(program_)) {
        trained_.insert(op.input_args().begin(), op.input_args().end());
      }
      for (const Op& op : AllOps(program_)) {
        for (Symbol written : op.output_args()) trained_.erase(written);
      }
    }
    for (VarId id : program_.block(0).vars()) {
      const Var var = program_.var(id);
      if (!var.persistable()) continue;
      const bool parameter = var.is_parameter() || trained_.contains(var.name_symbol());
      const absl::optional<TensorType> type = DeclaredType(var);
      if (!type.has_value()) continue;  // feed and fetch lists, readers
      AddType(type, parameter ? &stats_.parameters : &stats_.state);
    }
  }

  const Program& program_;
  const int64_t batch_;
  const ProgramFacts facts_;
  const std::vector<int64_t> periods_;  // by block
  ProgramStats stats_;
  absl::flat_hash_set<Symbol> trained_;
  absl::flat_hash_set<std::string> counted_gradients_;
  absl::flat_hash_map<Symbol, TensorTotals> fused_;  // and rows of a known number
};

std::string SizeText(const TensorTotals& totals) {
  std::string text = absl::StrCat(totals.elements, " elements, ", totals.bytes, " bytes");
  if (totals.unknown > 0) absl::StrAppend(&text, ", ", totals.unknown, " of unknown size");
  if (totals.bounded > 0) {
    absl::StrAppend(&text,
                    totals.bounded < totals.unknown
                        ? absl::StrCat(", ", totals.bounded, " of these at most ")
                        : ": at most ",
                    totals.bound_bytes, " bytes");
  }
  return text;
}

// Types down, roles across.
std::string OpTable(const ProgramStats& stats) {
  std::set<int> roles;
  size_t width = 5;
  for (const auto& [type, by_role] : stats.ops_by_type) {
    width = std::max(width, type.size());
    for (const auto& [role, count] : by_role) roles.insert(role);
  }
  const auto column = [](int role) { return static_cast<int>(RoleName(role).size()) + 2; };
  std::string text = absl::StrFormat("%-*s  %7s", static_cast<int>(width), "ops", "all");
  for (int role : roles) absl::StrAppendFormat(&text, "%*s", column(role), RoleName(role));
  text += "\n";
  for (const auto& [type, by_role] : stats.ops_by_type) {
    int64_t all = 0;
    for (const auto& [role, count] : by_role) all += count;
    absl::StrAppendFormat(&text, "%-*s  %7d", static_cast<int>(width), type, all);
    for (int role : roles) {
      const auto count = by_role.find(role);
      absl::StrAppendFormat(&text, "%*s", column(role),
                            count == by_role.end() ? "." : absl::StrCat(count->second));
    }
    text += "\n";
  }
  return text;
}

std::string PeriodText(int64_t period) {
  if (period == 1) return "";
  return period == 0 ? ", conditional" : absl::StrCat(", once in ", period, " steps");
}

std::string CollectiveTable(const ProgramStats& stats) {
  if (stats.collectives.empty()) return "communication: none\n";
  std::string text = "communication of a rank in a step\n";
  const auto append = [&](int ring, absl::string_view what, const TensorTotals& totals,
                          int64_t period) {
    absl::StrAppendFormat(&text, "  ring %d  %-20s %5d tensors: %s%s\n", ring, what, totals.count,
                          SizeText(totals), PeriodText(period));
  };
  struct Ring {
    TensorTotals all, every_step;
  };
  std::map<int, Ring> rings;
  for (const auto& [key, totals] : stats.collectives) {
    append(key.ring, key.op_type, totals, key.period);
    AddTotals(totals, &rings[key.ring].all);
    if (key.period == 1) AddTotals(totals, &rings[key.ring].every_step);
  }
  for (const auto& [ring, totals] : rings) {
    append(ring, "all", totals.all, 1);
    // Otherwise the sum is not that of a step.
    if (totals.every_step.count < totals.all.count) {
      append(ring, "every step", totals.every_step, 1);
    }
  }
  return text;
}

std::string PeakMemoryText(const ProgramStats& stats) {
  const PeakMemory& peak = stats.peak_memory;
  std::string text = absl::StrFormat(
      "peak memory of a rank, estimated for a batch of %d: %d bytes, %d of them persistable",
      stats.batch, peak.bytes, peak.persistable_bytes);
  if (!stats.peak_op.empty()) absl::StrAppend(&text, ", at ", stats.peak_op);
  if (peak.num_unknown > 0) {
    absl::StrAppend(&text, "; not counted: ", peak.num_unknown, " variables of unknown size");
  }
  return text + "\n";
}

}  // namespace

ProgramStats ComputeProgramStats(const Program& program, int64_t batch) {
  ProgramStats stats = Counter(program, batch).Count();
  stats.batch = batch;
  stats.peak_memory = EstimatePeakMemory(program, batch);
  const OpId op = stats.peak_memory.op;
  if (op.valid()) stats.peak_op = program.op(op).DebugName();
  return stats;
}

std::string Fingerprint(const Program& program) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (absl::string_view piece : program.SerializeToPieces().pieces) {
    XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return absl::StrCat(absl::Hex(XXH3_64bits_digest(&state), absl::kZeroPad16));
}

std::string ProgramStatsText(const ProgramStats& stats) {
  std::string text =
      absl::StrFormat("fingerprint %s, version %d\nblocks %d, ops %d, variables %d\n\n",
                      stats.fingerprint, stats.version, stats.blocks, stats.ops, stats.variables);
  const std::pair<const char*, const TensorTotals*> rows[] = {
      {"parameters", &stats.parameters}, {"state", &stats.state}, {"gradients", &stats.gradients}};
  for (const auto& [name, totals] : rows) {
    absl::StrAppendFormat(&text, "%-10s %5d: %s\n", name, totals->count, SizeText(*totals));
  }
  return absl::StrCat(text, "\n", OpTable(stats), "\n", CollectiveTable(stats), "\n",
                      PeakMemoryText(stats));
}

}  // namespace weft
