#include "tools/view/page.h"

#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "tools/view/packed_columns.h"
#include "tools/view/page_text.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

const char* KindName(OpKind kind) {
  switch (kind) {
    case OpKind::kCompute:
      return "compute";
    case OpKind::kCollective:
      return "collective";
    case OpKind::kMessage:
      return "message";
    case OpKind::kStreamSync:
      return "sync";
    case OpKind::kRingSetup:
      return "setup";
    case OpKind::kFuse:
      return "fuse";
    case OpKind::kHoldsBlocks:
      return "blocks";
    case OpKind::kUnknown:
      return "unknown";
  }
  return "";
}

// Adds what a vector has of each element.
template <typename T, typename Get>
void AddColumn(const std::string& name, const std::vector<T>& values, Get get,
               PackedColumns* columns) {
  columns->AddIntegers(name, values.size(),
                       [&](size_t i) { return static_cast<int64_t>(get(values[i])); });
}

template <typename T, typename Get>
void AddTexts(const std::string& name, const std::vector<T>& values, Get get,
              PackedColumns* columns) {
  static_assert(std::is_same_v<decltype(get(values[0])), const std::string&>,
                "a text of its own would be gone");
  columns->AddStrings(name, values.size(),
                      [&](size_t i) { return absl::string_view(get(values[i])); });
}

Json SlotsJson(const std::vector<OpSignature::Slot>& slots) {
  Json json = Json::array();
  for (const OpSignature::Slot& slot : slots) json.push_back({slot.name.value(), slot.count});
  return json;
}

// By signature: type, slots and kind. Names are Symbols.
Json SignaturesJson(const ProgramView& view) {
  std::vector<Json> signatures(view.program.num_signatures());
  for (OpId id : view.numbers.ops()) {
    const Op op = view.program.op(id);
    Json& json = signatures[op.signature_id()];
    if (!json.is_null()) continue;
    const OpSignature& signature = op.signature();
    json = {{"type", signature.type.value()},
            {"in", SlotsJson(signature.inputs)},
            {"out", SlotsJson(signature.outputs)},
            {"kind", KindName(view.kinds[op.signature_id()])}};
  }
  return signatures;
}

Json BlocksJson(const ProgramView& view) {
  Json blocks = Json::array();
  for (int block = 0; block < view.program.num_blocks(); ++block) {
    blocks.push_back(
        {{"parent", view.program.block(block).parent_idx()}, {"first", view.numbers.first(block)}});
  }
  return blocks;
}

void AddProgram(const ProgramView& view, PackedColumns* columns) {
  const Program& program = view.program;
  columns->AddStrings("names", program.symbols().size(),
                      [&](size_t i) { return program.name(Symbol(static_cast<uint32_t>(i))); });
  const std::vector<OpId>& ops = view.numbers.ops();
  AddColumn(
      "signature", ops, [&](OpId id) { return program.op(id).signature_id(); }, columns);
  AddColumn(
      "role", ops, [&](OpId id) { return program.op(id).role(); }, columns);
  std::vector<uint32_t> args;
  for (OpId id : ops) {
    for (Symbol arg : program.op(id).args()) args.push_back(arg.value());
  }
  const auto same = [](auto value) { return value; };
  AddColumn("args", args, same, columns);
  AddColumn("attrs", view.attrs, same, columns);
  AddColumn("note", view.notes, same, columns);
  AddColumn("bytes", view.bytes, same, columns);
  AddColumn("type_of_name", view.types, same, columns);
  columns->AddIntegers("persistable", view.persistable.size(),
                       [&](size_t i) { return view.persistable[i] ? 1 : 0; });
  AddTexts(
      "texts", view.texts.texts(),
      [](const std::string& text) -> const std::string& { return text; }, columns);
}

void AddOutline(const std::vector<OutlineNode>& nodes, PackedColumns* columns) {
  AddTexts(
      "node_name", nodes, [](const OutlineNode& node) -> const std::string& { return node.name; },
      columns);
  AddColumn(
      "node_depth", nodes, [](const OutlineNode& node) { return node.depth; }, columns);
  AddColumn(
      "node_begin", nodes, [](const OutlineNode& node) { return node.begin; }, columns);
  AddColumn(
      "node_end", nodes, [](const OutlineNode& node) { return node.end; }, columns);
}

void AddChanges(const ProgramView& view, PackedColumns* columns) {
  if (!view.has_original) return;
  AddColumn(
      "change", view.changes, [](OpChange change) { return change; }, columns);
  AddColumn(
      "changed_op", view.changed, [](const auto& pair) { return pair.first; }, columns);
  AddTexts(
      "changed_text", view.changed,
      [](const auto& pair) -> const std::string& { return pair.second; }, columns);
  AddColumn(
      "removed_before", view.removed, [](const RemovedOp& op) { return op.before; }, columns);
  AddTexts(
      "removed_text", view.removed,
      [](const RemovedOp& op) -> const std::string& { return op.text; }, columns);
  AddColumn(
      "reason_op", view.reasons, [](const auto& pair) { return pair.first; }, columns);
  AddColumn(
      "reason", view.reasons, [](const auto& pair) { return pair.second; }, columns);
  std::vector<std::string> details;
  for (const FileRemark& remark : view.remarks) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : remark.details) parts.push_back(absl::StrCat(key, ": ", value));
    details.push_back(absl::StrJoin(parts, "; "));
  }
  const std::vector<FileRemark>& remarks = view.remarks;
  const auto add = [&](const char* name, std::string FileRemark::*field) {
    AddTexts(
        name, remarks,
        [field](const FileRemark& remark) -> const std::string& { return remark.*field; }, columns);
  };
  add("remark_pass", &FileRemark::pass);
  add("remark_subject", &FileRemark::subject);
  add("remark_what", &FileRemark::what);
  add("remark_why", &FileRemark::why);
  AddTexts(
      "remark_details", details, [](const std::string& text) -> const std::string& { return text; },
      columns);
}

Json FindingsJson(const ProgramView& view) {
  Json findings = Json::array();
  for (const ViewedFinding& finding : view.findings) {
    findings.push_back({{"rule", finding.rule},
                        {"title", finding.title},
                        {"severity", finding.severity},
                        {"variable", finding.variable},
                        {"message", finding.message},
                        {"startup", finding.is_startup},
                        {"op", finding.op},
                        {"other", finding.other}});
  }
  return findings;
}

// Adds columns whose names begin with `prefix`; returns what is small.
Json AddLanes(const std::string& prefix, const Lanes& lanes, size_t num_ops,
              PackedColumns* columns) {
  const auto add_spans = [&](const char* name, auto get) {
    AddColumn(prefix + name, lanes.spans, get, columns);
  };
  add_spans("_lane", [](const LaneSpan& span) { return span.lane; });
  add_spans("_op", [](const LaneSpan& span) { return span.op; });
  add_spans("_begin", [](const LaneSpan& span) { return span.begin; });
  add_spans("_duration", [](const LaneSpan& span) { return span.end - span.begin; });
  add_spans("_bytes", [](const LaneSpan& span) { return span.bytes; });
  const auto add_waits = [&](const char* name, auto get) {
    AddColumn(prefix + name, lanes.waits, get, columns);
  };
  add_waits("_wait_lane", [](const LaneWait& wait) { return wait.lane; });
  add_waits("_wait_begin", [](const LaneWait& wait) { return wait.begin; });
  add_waits("_wait_duration", [](const LaneWait& wait) { return wait.end - wait.begin; });
  add_waits("_wait_from", [](const LaneWait& wait) { return wait.from; });
  add_waits("_wait_from_time", [](const LaneWait& wait) { return wait.from_time; });
  AddColumn(
      prefix + "_time_of_op", TimesOfOps(lanes, num_ops),
      [](double time) { return std::llround(time); }, columns);
  Json json = {{"lanes", Json::array()}, {"steps", Json::array()}};
  for (const Lane& lane : lanes.lanes) {
    json["lanes"].push_back({{"rank", lane.rank}, {"stream", lane.stream}});
  }
  for (const LaneStep& step : lanes.steps) {
    json["steps"].push_back({step.rank, step.step, step.begin, step.end});
  }
  const LaneTotals& totals = lanes.totals;
  json["totals"] = {{"rank", totals.rank},
                    {"steps", totals.num_steps},
                    {"step", std::llround(totals.step)},
                    {"computation", std::llround(totals.computation)},
                    {"communication", std::llround(totals.communication)},
                    {"exposed", std::llround(totals.exposed)}};
  return json;
}

// By number: the roles that occur, in words.
Json RolesJson(const ProgramView& view) {
  Json roles = Json::object();
  for (OpId id : view.numbers.ops()) {
    const int role = view.program.op(id).role();
    const std::string key = absl::StrCat(role);
    if (!roles.contains(key)) roles[key] = RoleName(role);
  }
  return roles;
}

}  // namespace

absl::StatusOr<std::string> PackView(const ProgramView& view) {
  PackedColumns columns;
  const size_t num_ops = view.numbers.ops().size();
  AddProgram(view, &columns);
  AddOutline(view.outline, &columns);
  AddChanges(view, &columns);
  Json header = {{"name", view.name},
                 {"verdict", view.verdict},
                 {"has_original", view.has_original},
                 {"has_remarks", view.has_remarks},
                 {"has_findings", view.has_findings},
                 {"roles", RolesJson(view)},
                 {"blocks", BlocksJson(view)},
                 {"signatures", SignaturesJson(view)},
                 {"findings", FindingsJson(view)}};
  header["predicted"] = AddLanes("predicted", view.predicted, num_ops, &columns);
  if (view.measured.has_value()) {
    header["measured"] = AddLanes("measured", *view.measured, num_ops, &columns);
  }
  return columns.Pack(std::move(header));
}

absl::StatusOr<std::string> ViewPage(const ProgramView& view) {
  WEFT_ASSIGN_OR_RETURN(const std::string data, PackView(view));
  return absl::StrCat(PageHead(), absl::Base64Escape(data), PageTail());
}

}  // namespace weft
