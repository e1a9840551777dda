#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/core/communication.h"
#include "tools/inspect/op_name.h"
#include "tools/view/lanes.h"
#include "tools/view/op_numbers.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;
constexpr double kMaxMicroseconds = 1e12;  // eleven days

// Events arrive one by one, so that no more than one of them is in memory as JSON.
class TraceReader {
 public:
  explicit TraceReader(const Program& program)
      : program_(program), numbers_(program), communications_(program) {}

  absl::StatusOr<Lanes> Read(absl::string_view text) {
    const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
      using Event = Json::parse_event_t;
      if (!status_.ok()) return false;
      if (depth > kMaxDepth) {
        status_ = absl::InvalidArgumentError(
            absl::StrCat("expected JSON of at most ", kMaxDepth, " levels"));
        return false;
      }
      if (depth == 1 && event == Event::key) {
        in_events_ = parsed.get_ref<const std::string&>() == "traceEvents";
        found_events_ = found_events_ || in_events_;
      }
      if (depth != 2 || event != Event::object_end || !in_events_) return true;
      status_ = AddEvent(parsed);
      ++num_events_;
      return false;  // forgets the event
    };
    const Json json = Json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
    if (!status_.ok()) return status_;
    if (json.is_discarded()) return absl::InvalidArgumentError("not a JSON file");
    if (!found_events_) {
      return absl::InvalidArgumentError(
          "expected key 'traceEvents', as weft run --trace writes it");
    }
    Finish();
    return std::move(lanes_);
  }

 private:
  struct Row {
    std::string name;
    int lane = -1;
    std::vector<LaneSpan> spans;
    std::vector<LaneWait> waits;
  };
  using RowKey = std::pair<int, int>;  // rank, number
  struct Place {
    RowKey row;
    int64_t time = 0;
  };

  absl::Status Expected(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("event ", num_events_, ": expected ", what));
  }

  static std::string TextOf(const Json& event, const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get<std::string>() : "";
  }

  // Nanoseconds.
  absl::StatusOr<int64_t> TimeOf(const Json& event, const char* key) const {
    const auto found = event.find(key);
    const double time = found != event.end() && found->is_number() ? found->get<double>() : -1;
    if (time >= 0 && time <= kMaxMicroseconds) return std::llround(time * 1e3);
    return Expected(absl::StrCat("microseconds from 0 to 1e12 under '", key, "'"));
  }

  absl::StatusOr<int> IndexOf(const Json& event, const char* key) const {
    const auto found = event.find(key);
    constexpr int kMost = 1 << 20;
    if (found != event.end() && found->is_number_integer()) {
      const auto index = found->get<int64_t>();
      if (index >= 0 && index < kMost) return static_cast<int>(index);
    }
    return Expected(absl::StrCat("an integer from 0 to ", kMost - 1, " under '", key, "'"));
  }

  absl::Status AddEvent(const Json& event) {
    const std::string phase = TextOf(event, "ph");
    const absl::StatusOr<int> rank = IndexOf(event, "pid"), row = IndexOf(event, "tid");
    if (!rank.ok()) return rank.status();
    if (!row.ok()) return row.status();
    const RowKey key = {*rank, *row};
    if (phase == "M") return AddName(event, key);
    if (phase == "X") return AddSlice(event, key);
    if (phase == "s" || phase == "f") return AddArrowEnd(event, phase == "s", key);
    return absl::OkStatus();
  }

  absl::Status AddName(const Json& event, RowKey row) {
    const auto args = event.find("args");
    if (TextOf(event, "name") == "thread_name" && args != event.end()) {
      rows_[row].name = TextOf(*args, "name");
    }
    return absl::OkStatus();
  }

  absl::Status AddSlice(const Json& event, RowKey row) {
    const absl::StatusOr<int64_t> begin = TimeOf(event, "ts"), duration = TimeOf(event, "dur");
    if (!begin.ok()) return begin.status();
    if (!duration.ok()) return duration.status();
    const int64_t end = *begin + *duration;
    const std::string category = TextOf(event, "cat");
    if (category == "wait") {
      LaneWait wait;
      wait.begin = *begin;
      wait.end = end;
      rows_[row].waits.push_back(wait);
      return absl::OkStatus();
    }
    const Json args = event.value("args", Json::object());
    if (!args.is_object()) return Expected("an object under 'args'");
    if (category == "step") {
      const auto step = args.find("step");
      const bool is_number = step != args.end() && step->is_number_integer();
      if (!is_number) return Expected("an integer under 'step'");
      lanes_.steps.push_back({row.first, step->get<int64_t>(), *begin, end});
      return absl::OkStatus();
    }
    LaneSpan span;
    span.begin = *begin;
    span.end = end;
    const auto bytes = args.find("bytes");
    if (bytes != args.end() && bytes->is_number_unsigned()) {
      span.bytes = static_cast<int64_t>(std::min(bytes->get<uint64_t>(), uint64_t{1} << 52));
    }
    const std::string name = TextOf(args, "op");
    const OpId op = FindNamedOp(program_, name);
    if (!op.valid() && (absl::StartsWith(name, "op ") || absl::StartsWith(name, "block "))) {
      return Expected(absl::StrCat("an op of this program, found ", name,
                                   "; --trace takes the trace of a run of the program itself"));
    }
    if (op.valid()) {
      span.op = numbers_.Of(program_.op(op));
      span.communicates = OnlyCommunicates(communications_.Of(program_.op(op)));
    }
    rows_[row].spans.push_back(span);
    return absl::OkStatus();
  }

  // The end of an arrow follows the wait that it leads to.
  absl::Status AddArrowEnd(const Json& event, bool is_start, RowKey row) {
    const absl::StatusOr<int64_t> time = TimeOf(event, "ts");
    if (!time.ok()) return time.status();
    const auto found = event.find("id");
    if (found == event.end() || !found->is_number_integer()) return absl::OkStatus();
    const auto id = found->get<int64_t>();
    if (is_start) {
      starts_[id] = {row, *time};
      return absl::OkStatus();
    }
    const auto start = starts_.find(id);
    Row& waiting = rows_[row];
    if (start == starts_.end() || waiting.waits.empty()) return absl::OkStatus();
    arrows_.push_back({row, waiting.waits.size() - 1, start->second});
    starts_.erase(start);
    return absl::OkStatus();
  }

  void Finish() {
    for (auto& [key, row] : rows_) {
      if (row.spans.empty() && row.waits.empty()) continue;
      row.lane = static_cast<int>(lanes_.lanes.size());
      lanes_.lanes.push_back({key.first, row.name.empty() ? absl::StrCat(key.second) : row.name});
    }
    for (const Arrow& arrow : arrows_) {
      LaneWait& wait = rows_.at(arrow.row).waits[arrow.wait];
      const auto from = rows_.find(arrow.start.row);  // traces of others may begin arrows nowhere
      if (from == rows_.end() || from->second.lane < 0) continue;
      wait.from = from->second.lane;
      wait.from_time = arrow.start.time;
    }
    for (auto& [key, row] : rows_) {
      std::stable_sort(row.spans.begin(), row.spans.end(),
                       [](const LaneSpan& a, const LaneSpan& b) { return a.begin < b.begin; });
      for (LaneSpan& span : row.spans) {
        span.lane = row.lane;
        lanes_.spans.push_back(span);
      }
      for (LaneWait& wait : row.waits) {
        wait.lane = row.lane;
        lanes_.waits.push_back(wait);
      }
    }
    lanes_.totals = TotalsOf(lanes_);
  }

  struct Arrow {
    RowKey row;
    size_t wait;
    Place start;
  };

  const Program& program_;
  const OpNumbers numbers_;
  Communications communications_;
  absl::Status status_;
  bool in_events_ = false, found_events_ = false;
  int64_t num_events_ = 0;
  std::map<RowKey, Row> rows_;
  absl::flat_hash_map<int64_t, Place> starts_;  // of arrows, by id
  std::vector<Arrow> arrows_;
  Lanes lanes_;
};

}  // namespace

absl::StatusOr<Lanes> ReadTrace(absl::string_view json, const Program& program) {
  return TraceReader(program).Read(json);
}

}  // namespace weft
