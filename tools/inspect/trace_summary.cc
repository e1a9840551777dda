#include "tools/inspect/trace_summary.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"

namespace weft {

TraceSummary::Times TraceSummary::TimesOf(const StepTrace& trace) {
  const auto seconds = [](std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  };
  std::vector<Interval> communication, computation;
  std::map<int, std::vector<Interval>> rings;
  std::vector<Interval> servers;
  for (const std::vector<OpSpan>& stream : trace.spans) {
    for (const OpSpan& span : stream) {
      const Plan::PlanOp& op = trace.plan->ops[span.op];
      const Interval interval = {seconds(span.begin), seconds(span.end)};
      const Plan::RingWork* const work = op.ring_work();
      if (op.Is<Plan::ServerWork>()) {
        communication.push_back(interval);
        servers.push_back(interval);
      } else if (work == nullptr) {
        computation.push_back(interval);
      } else {
        communication.push_back(interval);
        rings[trace.plan->rings[work->ring].ring_id].push_back(interval);
      }
    }
  }
  Times times;
  times.computation = ExposedSeconds(computation, {});
  times.communication = ExposedSeconds(communication, {});
  times.exposed = ExposedSeconds(communication, computation);
  times.servers = ExposedSeconds(servers, {});
  for (const auto& [ring, intervals] : rings) times.rings[ring] = ExposedSeconds(intervals, {});
  std::vector<Interval> all = computation;
  all.insert(all.end(), communication.begin(), communication.end());
  if (all.empty()) return times;
  Interval whole = all.front();
  for (const Interval& interval : all) {
    whole.begin = std::min(whole.begin, interval.begin);
    whole.end = std::max(whole.end, interval.end);
  }
  times.step = whole.end - whole.begin;
  return times;
}

void TraceSummary::Add(const StepTrace& trace) {
  if (trace.rank != 0) return;
  const Times times = TimesOf(trace);
  traffic_after_ = traffic_.OfRank(0);
  servers_after_.assign(trace.server_traffic.begin(), trace.server_traffic.end());
  if (num_steps_++ == 0) {
    first_ = times;
    traffic_before_ = traffic_after_;
    servers_before_ = servers_after_;
    return;
  }
  sum_.step += times.step;
  sum_.computation += times.computation;
  sum_.communication += times.communication;
  sum_.exposed += times.exposed;
  sum_.servers += times.servers;
  for (const auto& [ring, time] : times.rings) sum_.rings[ring] += time;
}

std::string TraceSummary::Lines() const {
  if (num_steps_ == 0) return "";
  const int64_t steps = std::max<int64_t>(1, num_steps_ - 1);
  const Times& times = num_steps_ == 1 ? first_ : sum_;
  const double to_ms = 1e3 / static_cast<double>(steps);
  std::string text = absl::StrFormat(
      "trace of rank 0, means of %d step%s: step %.3f ms, computation %.3f ms, communication %.3f "
      "ms, of which %.3f ms exposed\n",
      steps, steps == 1 ? "" : "s", times.step * to_ms, times.computation * to_ms,
      times.communication * to_ms, times.exposed * to_ms);
  // The traffic of the first step comes with that of the startup program.
  if (num_steps_ == 1) return text;
  for (const auto& [ring, after] : traffic_after_) {
    const auto found = traffic_before_.find(ring);
    const TrafficLog::Traffic before =
        found == traffic_before_.end() ? TrafficLog::Traffic() : found->second;
    const auto time = times.rings.find(ring);
    if (after.calls == before.calls || time == times.rings.end()) continue;
    absl::StrAppendFormat(
        &text, "ring %d: %.4g calls a step, %.10g bytes sent, %.3f ms, bus bandwidth %.3g GB/s\n",
        ring, static_cast<double>(after.calls - before.calls) / static_cast<double>(steps),
        static_cast<double>(after.bytes - before.bytes) / static_cast<double>(steps),
        time->second * to_ms, (after.bus_bytes - before.bus_bytes) / time->second / 1e9);
  }
  return text + ServerLines(steps, to_ms);
}

std::string TraceSummary::ServerLines(int64_t steps, double to_ms) const {
  if (servers_after_.empty()) return "";
  std::string text = absl::StrFormat("servers: %.3f ms\n", sum_.servers * to_ms);
  for (size_t server = 0; server < servers_after_.size(); ++server) {
    const ServerTraffic &before = servers_before_[server], &after = servers_after_[server];
    const auto mean = [&](ServerTraffic::Count ServerTraffic::*count,
                          int64_t ServerTraffic::Count::*number) {
      return static_cast<double>((after.*count).*number - (before.*count).*number) /
             static_cast<double>(steps);
    };
    constexpr auto kMessages = &ServerTraffic::Count::messages;
    constexpr auto kBytes = &ServerTraffic::Count::bytes;
    absl::StrAppendFormat(
        &text,
        "server %d: %.4g pushes a step, %.10g bytes; %.4g requests, %.10g bytes; %.4g answers, "
        "%.10g bytes\n",
        server, mean(&ServerTraffic::pushed, kMessages), mean(&ServerTraffic::pushed, kBytes),
        mean(&ServerTraffic::asked, kMessages), mean(&ServerTraffic::asked, kBytes),
        mean(&ServerTraffic::pulled, kMessages), mean(&ServerTraffic::pulled, kBytes));
  }
  return text;
}

}  // namespace weft
