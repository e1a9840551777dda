#include "tools/chrome_trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/json_number.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json RowName(const char* what, int rank, int stream, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", stream}, {"args", {{"name", name}}}};
}

Json NamesOf(const Plan& plan, const std::vector<int>& variables) {
  Json names = Json::array();
  for (int variable : variables) {
    if (variable != Plan::kNoVariable) names.push_back(plan.variables[variable].name);
  }
  return names;
}

// Microseconds, to the nanosecond.
std::string Microseconds(std::chrono::steady_clock::duration duration) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000);
}

}  // namespace

absl::StatusOr<ChromeTrace> ChromeTrace::Create(const std::string& path) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return Annotate(path, file.status());
  ChromeTrace trace(path, *std::move(file));
  WEFT_RETURN_IF_ERROR(Annotate(path, trace.file_.Write("{\"traceEvents\":[")));
  return trace;
}

void ChromeTrace::Append(const std::string& event, std::string* text) {
  absl::StrAppend(text, has_events_ ? ",\n" : "\n", event);
  has_events_ = true;
}

absl::Status ChromeTrace::Add(const StepTrace& trace) {
  const Plan& plan = *trace.plan;
  std::string text;
  if (named_.insert(trace.rank).second) {
    Append(JsonText(RowName("process_name", trace.rank, 0, absl::StrCat("rank ", trace.rank))),
           &text);
    for (size_t stream = 0; stream < plan.stream_names.size(); ++stream) {
      Append(JsonText(RowName("thread_name", trace.rank, static_cast<int>(stream),
                              plan.stream_names[stream])),
             &text);
    }
  }
  for (size_t stream = 0; stream < trace.spans.size(); ++stream) {
    for (const OpSpan& span : trace.spans[stream]) {
      const Plan::PlanOp& op = plan.ops[span.op];
      const Json args = {{"op", op.name},
                         {"inputs", NamesOf(plan, op.inputs)},
                         {"outputs", NamesOf(plan, op.outputs)}};
      Append(absl::StrCat("{\"name\":", JsonText(op.type), ",\"ph\":\"X\",\"pid\":", trace.rank,
                          ",\"tid\":", stream, ",\"ts\":", Microseconds(span.begin - start_),
                          ",\"dur\":", Microseconds(span.end - span.begin),
                          ",\"args\":{\"step\":", trace.step, ",", JsonText(args).substr(1), "}"),
             &text);
    }
  }
  return Annotate(path_, file_.Write(text));
}

absl::Status ChromeTrace::Finish() {
  WEFT_RETURN_IF_ERROR(Annotate(path_, file_.Write("\n],\"displayTimeUnit\":\"ms\"}\n")));
  return Annotate(path_, file_.Commit());
}

}  // namespace weft
