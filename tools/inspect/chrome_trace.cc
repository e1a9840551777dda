#include "tools/inspect/chrome_trace.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "tools/inspect/json_number.h"
#include "tools/inspect/op_name.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json About(const char* what, int rank, size_t row, const Json& args) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", args}};
}

// The names of a rank and of its rows. Steps, whose row has the last number, come first.
std::vector<Json> RowNames(const StepTrace& trace) {
  const int rank = trace.rank;
  const std::vector<std::string>& streams = trace.plan->stream_names;
  std::vector<Json> names = {
      About("process_name", rank, 0, {{"name", absl::StrCat("rank ", rank)}})};
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    names.push_back(About("thread_name", rank, stream, {{"name", streams[stream]}}));
    names.push_back(About("thread_sort_index", rank, stream, {{"sort_index", stream + 1}}));
  }
  names.push_back(About("thread_name", rank, streams.size(), {{"name", "steps"}}));
  names.push_back(About("thread_sort_index", rank, streams.size(), {{"sort_index", 0}}));
  return names;
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

absl::StatusOr<std::unique_ptr<ChromeTrace>> ChromeTrace::Create(const std::string& path,
                                                                 const Program* main,
                                                                 JobLink* link) {
  auto trace = std::unique_ptr<ChromeTrace>(new ChromeTrace(path, main, link));
  WEFT_RETURN_IF_ERROR(trace->Start());
  return trace;
}

ChromeTrace::~ChromeTrace() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kTrace, nullptr);
}

absl::Status ChromeTrace::Start() {
  if (link_ == nullptr || link_->process() == 0) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path_);
    if (!file.ok()) return Annotate(path_, file.status());
    file_ = *std::move(file);
    WEFT_RETURN_IF_ERROR(Annotate(path_, file_->Write("{\"traceEvents\":[")));
  }
  start_ = Clock::now();
  if (link_ == nullptr) return absl::OkStatus();
  // All processes go on from here at about the same time.
  WEFT_RETURN_IF_ERROR(link_->AllGather("").status());
  start_ = Clock::now();
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> starts,
      link_->AllGather(absl::StrCat(start_.time_since_epoch() / std::chrono::nanoseconds(1))));
  int64_t first_start = 0;
  if (link_->is_one_host() && absl::SimpleAtoi(starts[0], &first_start)) {
    start_ = Clock::time_point(std::chrono::nanoseconds(first_start));
  }
  if (link_->process() > 0) return absl::OkStatus();
  link_->Listen(JobLink::Topic::kTrace, [this](int /*process*/, const std::string& events) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = Write(events);
    ++num_received_;
    has_received_.notify_all();
  });
  return absl::OkStatus();
}

absl::Status ChromeTrace::Add(const StepTrace& trace) {
  std::string events = EventsOf(trace);
  if (file_.has_value()) {
    std::lock_guard<std::mutex> lock(mutex_);
    return Write(events);
  }
  ++num_sent_;
  link_->Send(0, JobLink::Topic::kTrace, std::move(events));
  return absl::OkStatus();
}

// The head of an event; `more` continues it.
std::string ChromeTrace::Event(const char* phase, int rank, size_t row, Clock::time_point time,
                               const std::string& more) const {
  return absl::StrCat("{\"ph\":\"", phase, "\",\"pid\":", rank, ",\"tid\":", row,
                      ",\"ts\":", Microseconds(time - start_), ",", more, "}");
}

std::string ChromeTrace::Duration(Clock::time_point begin, Clock::time_point end) {
  return absl::StrCat("\"dur\":", Microseconds(end - begin));
}

std::string ChromeTrace::OpEvent(const StepTrace& trace, size_t stream, const OpSpan& span) const {
  const Plan& plan = *trace.plan;
  const Plan::PlanOp& op = plan.ops[span.op];
  const OpId id = FindNamedOp(main_, op.name);
  std::string type = op.type;
  Json args = {{"step", trace.step}, {"op", op.name}, {"bytes", span.bytes}};
  args["inputs"] = NamesOf(plan, op.inputs);
  args["outputs"] = NamesOf(plan, op.outputs);
  for (size_t i = 0; i < span.parts.size(); ++i) {
    const Plan::PlanOp& part = plan.ops[span.parts[i]];
    Json about = {{"op", part.name},
                  {"inputs", NamesOf(plan, part.inputs)},
                  {"outputs", NamesOf(plan, part.outputs)}};
    if (!span.times.empty())
      about["us"] = std::chrono::duration<double, std::micro>(span.times[i]).count();
    args["parts"].push_back(std::move(about));
    if (i > 0 && part.type != op.type) absl::StrAppend(&type, ", ", part.type);
  }
  const std::string role = RoleName(id.valid() ? main_.op(id).role() : kRoleNotSpecified);
  return Event("X", trace.rank, stream, span.begin,
               absl::StrCat(Duration(span.begin, span.end), ",\"name\":", JsonText(type),
                            ",\"cat\":\"", role, "\",\"args\":", JsonText(args)));
}

// Numbers of all ranks differ, and are exact in a double.
int64_t ChromeTrace::NewId(int rank) { return (int64_t{rank} << 32) + num_ids_[rank]++; }

// An arrow begins within the event of an op, and ends within that of the wait.
void ChromeTrace::AddWait(const StepTrace& trace, size_t stream, const WaitSpan& wait,
                          std::vector<std::string>* events) {
  const auto last_instant = [](Clock::time_point begin, Clock::time_point end) {
    return std::max(begin, end - std::chrono::nanoseconds(1));
  };
  const std::string name = JsonText(absl::StrCat("wait for ", trace.plan->stream_names[wait.from]));
  const std::string head = absl::StrCat("\"cat\":\"wait\",\"name\":", name);
  events->push_back(Event("X", trace.rank, stream, wait.begin,
                          absl::StrCat(Duration(wait.begin, wait.end), ",", head,
                                       ",\"args\":{\"step\":", trace.step, "}")));
  const std::vector<OpSpan>& before = trace.spans[wait.from];
  if (wait.num_ops == 0 || wait.num_ops > static_cast<int64_t>(before.size())) return;
  const OpSpan& awaited = before[wait.num_ops - 1];
  const std::string flow = absl::StrCat(head, ",\"id\":", NewId(trace.rank));
  events->push_back(
      Event("s", trace.rank, wait.from, last_instant(awaited.begin, awaited.end), flow));
  events->push_back(Event("f", trace.rank, stream, last_instant(wait.begin, wait.end),
                          absl::StrCat(flow, ",\"bp\":\"e\"")));
}

void ChromeTrace::AddPrefetch(const StepTrace& trace, const PrefetchSpan& prefetch,
                              std::vector<std::string>* events) {
  const Json args = {{"step", trace.step}, {"rows", prefetch.rows}, {"changed", prefetch.changed}};
  const std::string head =
      absl::StrCat("\"cat\":\"prefetch\",\"id\":", NewId(trace.rank),
                   ",\"name\":", JsonText(absl::StrCat("rows of ", prefetch.table)));
  events->push_back(
      Event("b", trace.rank, 0, prefetch.begin, absl::StrCat(head, ",\"args\":", JsonText(args))));
  events->push_back(Event("e", trace.rank, 0, prefetch.end, head));
}

// Empty for a step without events.
std::string ChromeTrace::StepEvent(const StepTrace& trace) const {
  Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
  const auto cover = [&](const auto& spans_of_streams) {
    for (const auto& spans : spans_of_streams) {
      if (spans.empty()) continue;
      begin = std::min(begin, spans.front().begin);
      end = std::max(end, spans.back().end);
    }
  };
  cover(trace.spans);
  cover(trace.waits);
  if (begin > end) return "";
  return Event("X", trace.rank, trace.plan->stream_names.size(), begin,
               absl::StrCat(Duration(begin, end), ",\"name\":\"step ", trace.step,
                            "\",\"cat\":\"step\",\"args\":{\"step\":", trace.step, "}"));
}

// Joined by commas.
std::string ChromeTrace::EventsOf(const StepTrace& trace) {
  std::vector<std::string> events;
  if (num_ids_.emplace(trace.rank, 0).second) {
    for (const Json& name : RowNames(trace)) events.push_back(JsonText(name));
  }
  for (const PrefetchSpan& prefetch : trace.prefetches) AddPrefetch(trace, prefetch, &events);
  const std::string step = StepEvent(trace);
  if (!step.empty()) events.push_back(step);
  for (size_t stream = 0; stream < trace.spans.size(); ++stream) {
    for (const OpSpan& span : trace.spans[stream]) events.push_back(OpEvent(trace, stream, span));
    for (const WaitSpan& wait : trace.waits[stream]) AddWait(trace, stream, wait, &events);
  }
  return absl::StrJoin(events, ",\n");
}

absl::Status ChromeTrace::Write(const std::string& events) {
  if (events.empty()) return absl::OkStatus();
  const absl::Status status = file_->Write(absl::StrCat(has_events_ ? ",\n" : "\n", events));
  has_events_ = true;
  return Annotate(path_, status);
}

absl::Status ChromeTrace::WaitForOthers() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> sent,
                        link_->AllGather(absl::StrCat(num_sent_)));
  int64_t num_expected = 0, number = 0;
  for (const std::string& text : sent) {
    if (absl::SimpleAtoi(text, &number)) num_expected += number;
  }
  if (link_->process() > 0) return absl::OkStatus();
  // They have been sent before the numbers: what is under way arrives.
  std::unique_lock<std::mutex> lock(mutex_);
  const bool is_complete = has_received_.wait_for(lock, std::chrono::seconds(60), [&] {
    return num_received_ == num_expected || !status_.ok();
  });
  WEFT_RETURN_IF_ERROR(status_);
  if (is_complete) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path_, ": expected ", num_expected,
                                             " parts of other processes, found ", num_received_));
}

absl::Status ChromeTrace::Finish() {
  if (link_ != nullptr) WEFT_RETURN_IF_ERROR(WaitForOthers());
  if (!file_.has_value()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(Annotate(path_, file_->Write("\n],\"displayTimeUnit\":\"ms\"}\n")));
  return Annotate(path_, file_->Commit());
}

}  // namespace weft
