#include "tools/findings_json.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "tools/json_number.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json OpJson(const Program& program, OpId id) {
  if (!id.valid()) return nullptr;
  const Op op = program.op(id);
  const absl::Span<const OpId> ops = program.block(op.block()).ops();
  return {{"block", op.block()},
          {"index", std::find(ops.begin(), ops.end(), id) - ops.begin()},
          {"type", op.type()}};
}

Json DifferenceJson(const NumericReport::Difference& difference) {
  return {{"variable", difference.variable},
          {"parameter", difference.is_parameter},
          {"among_ranks", difference.is_among_ranks},
          {"rank", difference.rank},
          {"step", difference.step},
          {"index", std::vector<int64_t>(difference.index.begin(), difference.index.end())},
          {"expected", NumberToJson(difference.expected)},
          {"found", NumberToJson(difference.found)},
          {"relative", NumberToJson(difference.relative)},
          {"of_original", NumberToJson(difference.of_original)}};
}

Json NumericJson(const NumericReport& report) {
  Json differences = Json::array();
  for (const NumericReport::Difference& difference : report.differences) {
    differences.push_back(DifferenceJson(difference));
  }
  const bool is_rounded = report.largest_rounding.has_value();
  return {{"verdict", !report.IsEqual() ? "different"
                      : is_rounded      ? "equal within rounding"
                                        : "equal bit by bit"},
          {"nranks", report.nranks},
          {"steps", report.steps},
          {"batch", report.batch},
          {"compared", report.compared},
          {"own_to_ranks", report.rank_local},
          {"rough", report.rough},
          {"unchanged", report.unchanged},
          {"largest_rounding", is_rounded ? DifferenceJson(*report.largest_rounding) : Json()},
          {"differences", std::move(differences)}};
}

}  // namespace

std::string FindingsJson(const Findings& findings, absl::Span<const ConstProgramPair> ranks,
                         const NumericReport* numeric) {
  Json list = Json::array();
  for (const Finding& finding : findings.all()) {
    const ConstProgramPair& programs = ranks[finding.program.rank];
    const Program& program = finding.program.is_startup ? *programs.startup : *programs.main;
    list.push_back({{"rule", finding.rule},
                    {"severity", SeverityName(finding.severity)},
                    {"rank", ranks.size() == 1 ? Json() : Json(finding.program.rank)},
                    {"startup", finding.program.is_startup},
                    {"op", OpJson(program, finding.op)},
                    {"other", OpJson(program, finding.other)},
                    {"variable", finding.variable},
                    {"message", finding.message}});
  }
  Json omitted = Json::object();
  for (const Rule& rule : Rules()) {
    const int64_t count = findings.NumOmitted(rule.id);
    if (count > 0) omitted[rule.id] = count;
  }
  const bool is_equal = numeric == nullptr || numeric->IsEqual();
  Json json = {{"verified", !findings.HasErrors() && is_equal},
               {"findings", std::move(list)},
               {"omitted", std::move(omitted)}};
  if (numeric != nullptr) json["numeric"] = NumericJson(*numeric);
  // Names are UTF-8.
  return json.dump(2) + "\n";
}

}  // namespace weft
