#include "tools/chrome_trace.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/json_number.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
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

absl::StatusOr<std::unique_ptr<ChromeTrace>> ChromeTrace::Create(const std::string& path,
                                                                 JobLink* link) {
  auto trace = std::unique_ptr<ChromeTrace>(new ChromeTrace(path, link));
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

// Joined by commas.
std::string ChromeTrace::EventsOf(const StepTrace& trace) {
  const Plan& plan = *trace.plan;
  std::vector<std::string> events;
  if (named_.insert(trace.rank).second) {
    events.push_back(
        JsonText(RowName("process_name", trace.rank, 0, absl::StrCat("rank ", trace.rank))));
    for (size_t stream = 0; stream < plan.stream_names.size(); ++stream) {
      events.push_back(JsonText(
          RowName("thread_name", trace.rank, static_cast<int>(stream), plan.stream_names[stream])));
    }
  }
  for (size_t stream = 0; stream < trace.spans.size(); ++stream) {
    for (const OpSpan& span : trace.spans[stream]) {
      const Plan::PlanOp& op = plan.ops[span.op];
      const Json args = {{"op", op.name},
                         {"inputs", NamesOf(plan, op.inputs)},
                         {"outputs", NamesOf(plan, op.outputs)}};
      events.push_back(
          absl::StrCat("{\"name\":", JsonText(op.type), ",\"ph\":\"X\",\"pid\":", trace.rank,
                       ",\"tid\":", stream, ",\"ts\":", Microseconds(span.begin - start_),
                       ",\"dur\":", Microseconds(span.end - span.begin),
                       ",\"args\":{\"step\":", trace.step, ",", JsonText(args).substr(1), "}"));
    }
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
