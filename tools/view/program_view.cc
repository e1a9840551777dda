#include "tools/view/program_view.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/diff/program_diff.h"
#include "proto/op_role.h"
#include "proto/text/print_options.h"
#include "proto/text/program_text.h"
#include "tools/flags/flag_names.h"
#include "tools/view/op_bytes.h"

namespace weft {
namespace {

OpKind KindOf(const Op& op, const OpSchema* schema, Communication communication) {
  if (communication == Communication::kSend || communication == Communication::kReceive) {
    return OpKind::kMessage;
  }
  if (OnlyCommunicates(communication)) return OpKind::kCollective;
  if (schema == nullptr) return OpKind::kUnknown;
  if (schema->Has(Trait::kStreamSync)) return OpKind::kStreamSync;
  if (schema->Has(Trait::kRingSetup)) return OpKind::kRingSetup;
  if (schema->Has(Trait::kAlias)) return OpKind::kFuse;
  return op.SubBlocks().empty() ? OpKind::kCompute : OpKind::kHoldsBlocks;
}

// "averages over all ranks, on ring 0".
std::string CollectiveText(const Op& op, const CollectiveOp& collective) {
  std::string text(CollectiveKindName(collective.kind));
  const bool reduces = collective.kind == CollectiveKind::kAllReduce ||
                       collective.kind == CollectiveKind::kReduce ||
                       collective.kind == CollectiveKind::kReduceScatter;
  if (reduces) absl::StrAppend(&text, " (", ReductionName(collective.reduction), ")");
  const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
  absl::StrAppend(&text, " over ", ranks.ok() ? GroupText(*ranks) : "some ranks", " on ring ",
                  RingOf(op));
  return text;
}

std::string SyncText(const Op& op, StreamSync sync) {
  switch (sync) {
    case StreamSync::kRingWaitsForCompute:
      return absl::StrCat("ring ", RingOf(op), " waits for the compute stream");
    case StreamSync::kComputeWaitsForRing:
      return absl::StrCat("the compute stream waits for ring ", RingOf(op));
    case StreamSync::kAllWaitForCompute:
      return "all streams wait for the compute stream";
    case StreamSync::kAllWaitForRing:
      return absl::StrCat("all streams wait for ring ", RingOf(op));
    case StreamSync::kStreamWaitsForStream:
      return absl::StrCat("stream ", op.StringAttr("stream").value_or("?"), " waits for stream ",
                          op.StringAttr("awaited").value_or("?"));
  }
  return "";
}

// What an op of a kind other than kCompute does; empty for others.
std::string NoteOf(const Op& op, OpKind kind) {
  switch (kind) {
    case OpKind::kCollective:
      if (const CollectiveOp* collective = FindCollectiveOp(op)) {
        return CollectiveText(op, *collective);
      }
      return absl::StrCat("all ranks of ring ", RingOf(op), " wait for each other");
    case OpKind::kMessage:
      return absl::StrCat(
          FindMessageOp(op.type()) == MessageOp::kSend ? "sends to" : "receives from", " position ",
          op.IntAttr("peer").value_or(0), " of ring ", RingOf(op));
    case OpKind::kStreamSync:
      if (const auto sync = FindStreamSyncOp(op.type())) return SyncText(op, *sync);
      return "orders streams";
    case OpKind::kRingSetup:
      return absl::StrCat("sets up ring ", RingOf(op));
    case OpKind::kFuse:
      return absl::StrCat("gives ", MadeBufferOf(op).parts.size(), " variables one buffer");
    case OpKind::kHoldsBlocks: {
      const std::vector<int> blocks = op.SubBlocks();
      return absl::StrCat("runs block", blocks.size() == 1 ? " " : "s ",
                          absl::StrJoin(blocks, ", "));
    }
    case OpKind::kUnknown:
      return "unregistered: Weft does not know what it does";
    case OpKind::kCompute:
      return "";
  }
  return "";
}

// Fills in what each op is.
class OpReader {
 public:
  OpReader(int64_t batch, ProgramView* view)
      : view_(*view),
        program_(view->program),
        traits_(program_),
        communications_(program_),
        bytes_(program_, batch) {}

  void ReadAll() {
    const size_t num_ops = view_.numbers.ops().size();
    view_.kinds.resize(program_.num_signatures(), OpKind::kCompute);
    view_.attrs.reserve(num_ops);
    for (OpId id : view_.numbers.ops()) Read(program_.op(id));
  }

 private:
  void Read(const Op& op) {
    const Communication communication = communications_.Of(op);
    const OpKind kind = KindOf(op, traits_.SchemaOf(op), communication);
    view_.kinds[op.signature_id()] = kind;
    view_.attrs.push_back(AttrsText(op));
    view_.notes.push_back(kind == OpKind::kCompute ? 0 : view_.texts.Add(NoteOf(op, kind)));
    bytes_.Remember(op);
    view_.bytes.push_back(OnlyCommunicates(communication) ? bytes_.OfCommunication(op) : 0);
  }

  // Equal bytes have equal texts: most ops are not decoded.
  uint32_t AttrsText(const Op& op) {
    const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
    std::string key;
    op.ForEachAttr([&](size_t i, absl::string_view bytes) {
      if (IsShown(program_.name(attrs[i].name))) absl::StrAppend(&key, bytes.size(), ":", bytes);
      return true;
    });
    if (key.empty()) return 0;
    const auto [known, is_new] = attrs_texts_.try_emplace(std::move(key), 0);
    if (!is_new) return known->second;
    std::vector<std::string> texts;
    const pb::OpDesc desc = op.ToProto();
    for (const pb::OpDesc::Attr& attr : desc.attrs()) {
      if (!IsShown(attr.name())) continue;
      texts.push_back(absl::StrCat(attr.name(), "=", AttrValueText(attr)));
    }
    known->second = view_.texts.Add(absl::StrJoin(texts, ", "));
    return known->second;
  }

  static bool IsShown(absl::string_view attr) {
    return attr != kOpRoleAttr && attr != kOpRoleVarAttr && !IsMinorAttr(attr);
  }

  ProgramView& view_;
  const Program& program_;
  OpTraits traits_;
  Communications communications_;
  OpBytes bytes_;
  absl::flat_hash_map<std::string, uint32_t> attrs_texts_;  // by bytes
};

// Of several declarations of one name, in different blocks, the first.
void ReadVariables(ProgramView* view) {
  const Program& program = view->program;
  view->types.assign(program.symbols().size(), 0);
  view->persistable.assign(program.symbols().size(), false);
  std::vector<bool> is_read(program.symbols().size(), false);
  absl::flat_hash_map<std::string, uint32_t> texts;  // by TypeKey
  for (const Var& var : AllVars(program)) {
    const uint32_t symbol = var.name_symbol().value();
    if (is_read[symbol]) continue;
    is_read[symbol] = true;
    view->persistable[symbol] = var.persistable();
    const auto text = [&] {
      const absl::optional<TensorType> type = DeclaredType(var);
      return view->texts.Add(type.has_value() ? ToString(*type) : "");
    };
    const absl::string_view key = var.TypeKey();
    if (key.empty()) {
      view->types[symbol] = text();
      continue;
    }
    const auto [known, is_new] = texts.try_emplace(std::string(key), 0);
    if (is_new) known->second = text();
    view->types[symbol] = known->second;
  }
}

std::string DetailsText(const std::vector<DifferenceDetail>& details) {
  return absl::StrJoin(details, "; ", [](std::string* out, const DifferenceDetail& detail) {
    absl::StrAppend(out, detail.what, ": ", detail.a, " -> ", detail.b);
  });
}

// Ops between two differences are pairs: they shift together.
void ReadChanges(const Program& original, ProgramView* view) {
  using Kind = Difference::Kind;
  int block = -1;
  int64_t next_a = 0, next_b = 0;  // after the last difference
  for (const Difference& difference : DiffPrograms(original, view->program)) {
    if (difference.subject != Difference::Subject::kOp) continue;
    if (difference.block >= view->program.num_blocks()) continue;
    if (difference.block != block) next_a = next_b = 0;
    block = difference.block;
    const int64_t first = view->numbers.first(block);
    if (difference.kind == Kind::kRemoved) {
      next_b += difference.a_index - next_a;
      next_a = difference.a_index + 1;
      view->removed.push_back({first + next_b, difference.text});
      continue;
    }
    next_a = difference.kind == Kind::kAdded ? next_a + difference.b_index - next_b
                                             : int64_t{difference.a_index} + 1;
    next_b = difference.b_index + 1;
    const int64_t number = first + difference.b_index;
    if (difference.kind == Kind::kAdded) {
      view->changes[number] = OpChange::kInserted;
    } else {
      view->changes[number] = OpChange::kChanged;
      view->changed.emplace_back(number, DetailsText(difference.details));
    }
  }
}

// The variables that a remark is about.
std::vector<Symbol> VariablesOf(const FileRemark& remark, const Program& program) {
  std::vector<Symbol> variables;
  const auto add = [&](const std::string& name) {
    const Symbol symbol = program.FindSymbol(name);
    if (symbol.valid()) variables.push_back(symbol);
  };
  add(remark.subject);
  for (const auto& [key, value] : remark.details) {
    if (key == "buffer") add(value);
  }
  return variables;
}

// Finds the remarks about the variables of ops, and about those in their buffers.
class ReasonFinder {
 public:
  explicit ReasonFinder(ProgramView* view)
      : view_(*view), storage_(view->program), buffers_(storage_) {
    for (size_t i = 0; i < view_.remarks.size(); ++i) {
      for (Symbol variable : VariablesOf(view_.remarks[i], view_.program)) {
        remarks_[variable].push_back(static_cast<int64_t>(i));
      }
    }
    for (const Storage::Buffer& buffer : storage_.buffers()) buffers_.Make(&buffer);
  }

  void ReadAll() {
    for (size_t number = 0; number < view_.changes.size(); ++number) {
      if (view_.changes[number] == OpChange::kNone) continue;
      for (int64_t remark : Of(view_.program.op(view_.numbers.ops()[number]))) {
        view_.reasons.emplace_back(number, remark);
      }
    }
  }

 private:
  std::set<int64_t> Of(const Op& op) const {
    std::set<int64_t> remarks;
    for (Symbol variable : op.args()) {
      Add(variable, &remarks);
      const Storage::Buffer* const buffer = buffers_.Named(op.block(), variable);
      if (buffer == nullptr) continue;
      for (Symbol part : buffer->parts.subspan(0, kMaxMembers)) Add(part, &remarks);
    }
    return remarks;
  }

  void Add(Symbol variable, std::set<int64_t>* remarks) const {
    const auto found = remarks_.find(variable);
    if (found != remarks_.end()) remarks->insert(found->second.begin(), found->second.end());
  }

  // Of a buffer: however many ops use it, the cost stays linear.
  static constexpr size_t kMaxMembers = 200;

  ProgramView& view_;
  const Storage storage_;
  CurrentBuffers buffers_;                                     // at the end of the program
  absl::flat_hash_map<Symbol, std::vector<int64_t>> remarks_;  // by variable
};

void ReadFindings(const Findings& findings, ProgramView* view) {
  const auto number_of = [&](const Finding& finding, OpId id) {
    if (!id.valid() || finding.program.is_startup) return int64_t{-1};
    return int64_t{view->numbers.Of(view->program.op(id))};
  };
  for (const Finding& finding : findings.all()) {
    ViewedFinding viewed;
    viewed.rule = finding.rule;
    viewed.title = FindRule(finding.rule).title;
    viewed.severity = std::string(SeverityName(finding.severity));
    viewed.variable = finding.variable;
    viewed.message = WithFlags(finding.message);
    viewed.is_startup = finding.program.is_startup;
    viewed.op = number_of(finding, finding.op);
    viewed.other = number_of(finding, finding.other);
    view->findings.push_back(std::move(viewed));
  }
}

}  // namespace

uint32_t TextTable::Add(const std::string& text) {
  const auto [id, is_new] = ids_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return id->second;
}

ProgramView ProgramView::Of(const Program& program, ViewOptions options) {
  ProgramView view(program);
  view.name = std::move(options.name);
  view.verdict = std::move(options.verdict);
  view.outline = OutlineOf(program);
  OpReader(options.predict.batch, &view).ReadAll();
  ReadVariables(&view);
  view.changes.assign(view.numbers.ops().size(), OpChange::kNone);
  if (options.original != nullptr) {
    view.has_original = true;
    ReadChanges(*options.original, &view);
  }
  if (options.remarks != nullptr) {
    view.has_remarks = true;
    view.remarks = *options.remarks;
    ReasonFinder(&view).ReadAll();
  }
  if (options.findings != nullptr) {
    view.has_findings = true;
    ReadFindings(*options.findings, &view);
  }
  if (options.predicts) view.predicted = PredictLanes(program, options.predict);
  view.measured = std::move(options.measured);
  return view;
}

}  // namespace weft
