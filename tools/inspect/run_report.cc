#include "tools/inspect/run_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <numeric>
#include <type_traits>

#include "absl/base/casts.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "tools/inspect/json_number.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kInterval(100);
constexpr absl::string_view kEraseLine = "\r\x1b[K";

// Calls visit(element) for each element, for half precision with a float; false if the element type
// has no C++ type.
template <typename Visitor>
bool VisitElements(const Tensor& tensor, Visitor visit) {
  const auto visit_all = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* data = tensor.data<T>();
    for (int64_t i = 0; i < tensor.size(); ++i) {
      visit(static_cast<std::conditional_t<std::is_arithmetic_v<T>, T, float>>(data[i]));
    }
    return absl::OkStatus();
  };
  return ForElementType<bool, int8_t, uint8_t, int16_t, int32_t, int64_t, float, double, Float16,
                        BFloat16>("", tensor, visit_all)
      .ok();
}

template <typename T>
Json ElementToJson(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return NumberToJson(value);
  } else {
    return value;
  }
}

Json MetricsOf(const StepResult& result) {
  Json fetch = Json::object();
  for (size_t v = 0; v < result.values.size(); ++v) {
    Json list = Json::array();
    VisitElements(result.values[v], [&](auto value) { list.push_back(ElementToJson(value)); });
    fetch[(*result.names)[v]] = std::move(list);
  }
  return {
      {"step", result.step}, {"rank", result.rank}, {"fetch", std::move(fetch)}, {"ms", result.ms}};
}

// Rows of ranks are not those of one tensor.
bool IsSum(const std::set<std::string>& sums, const std::string& name, const Tensor& value) {
  return !value.is_rows() && sums.count(name) > 0;
}

}  // namespace

double MeanOf(const Tensor& tensor) {
  double sum = 0;
  const bool readable = VisitElements(tensor, [&](auto value) { sum += value; });
  if (!readable || tensor.size() == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum / static_cast<double>(tensor.size());
}

std::string StepLines::Add(const StepResult& result) {
  means_.resize(result.values.size());
  for (size_t v = 0; v < result.values.size(); ++v) means_[v].push_back(MeanOf(result.values[v]));
  if (result.rank + 1 < ranks_) return "";
  const bool first_step = courses_.empty();
  courses_.resize(means_.size());
  if (first_step) first_step_ = result.step;
  std::string lines;
  for (size_t v = 0; v < means_.size(); ++v) {
    const std::vector<double>& ranks = means_[v];
    Course& course = courses_[v];
    course.name = (*result.names)[v];
    const bool is_sum = IsSum(sums_, course.name, result.values[v]);
    const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
    course.last = is_sum ? sum : sum / ranks_;
    if (first_step) course.first = course.last;
    absl::StrAppendFormat(&lines, "step %d: %s%s %.7g", result.step, course.name,
                          result.values[v].size() == 1 ? "" : " (mean)", course.last);
    if (ranks_ > 1) {
      lines += is_sum ? " (sum of ranks:" : " (ranks:";
      for (double value : ranks) absl::StrAppendFormat(&lines, " %.7g", value);
      lines += ")";
    }
    lines += "\n";
  }
  means_.clear();
  return lines;
}

std::string StepLines::Last() const {
  if (courses_.empty()) return "";
  return absl::StrFormat("%s %.7g", courses_[0].name, courses_[0].last);
}

std::vector<std::pair<std::string, double>> StepLines::Numbers() const {
  std::vector<std::pair<std::string, double>> numbers;
  for (const Course& course : courses_) numbers.emplace_back(course.name, course.last);
  return numbers;
}

std::string StepLines::State() const {
  Json courses = Json::array();
  for (const Course& course : courses_) {  // as bits: JSON has no infinities
    courses.push_back({course.name, absl::bit_cast<uint64_t>(course.first),
                       absl::bit_cast<uint64_t>(course.last)});
  }
  return Json{{"first_step", first_step_}, {"courses", courses}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

absl::Status StepLines::Restore(absl::string_view state) {
  try {
    const Json json = Json::parse(state.begin(), state.end());
    first_step_ = json.at("first_step");
    courses_.clear();
    for (const Json& course : json.at("courses")) {
      courses_.push_back({course.at(0), absl::bit_cast<double>(course.at(1).get<uint64_t>()),
                          absl::bit_cast<double>(course.at(2).get<uint64_t>())});
    }
    return absl::OkStatus();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected what lines of steps have left, found ", error.what()));
  }
}

std::string StepLines::Totals(int64_t steps, double seconds) const {
  std::string text;
  for (const Course& course : courses_) {
    absl::StrAppendFormat(&text, "%s: %.7g at step %d", course.name, course.first, first_step_);
    if (steps > 1) {
      absl::StrAppendFormat(&text, ", %.7g at step %d", course.last, first_step_ + steps - 1);
    }
    text += "\n";
  }
  absl::StrAppendFormat(&text, "%d step%s on %d rank%s in %.3f s, %.3f ms a step\n", steps,
                        steps == 1 ? "" : "s", ranks_, ranks_ == 1 ? "" : "s", seconds,
                        steps > 0 ? 1000 * seconds / static_cast<double>(steps) : 0);
  return text;
}

std::string MemoryLine(const ValueMemory& memory) {
  constexpr char kLine[] =
      "values of a rank%s: %d bytes kept between steps, %d in a step, where at most %d live at "
      "once\n";
  if (!memory.on_two_devices) {
    return absl::StrFormat(kLine, "", memory.kept, memory.arena, memory.live);
  }
  return absl::StrCat(
      absl::StrFormat(kLine, " on the accelerator", memory.kept, memory.arena, memory.live),
      absl::StrFormat(kLine, " on the host", memory.host_kept, memory.host_arena,
                      memory.host_live));
}

std::string GraphLine(const GraphUse& use) {
  if (use.mode == GraphMode::kOff) return "";
  std::string line = absl::StrFormat("CUDA graph: %d of %d steps", use.replayed, use.steps);
  if (use.recorded > 1) absl::StrAppendFormat(&line, ", recorded %d times", use.recorded);
  if (!use.obstacle.empty()) absl::StrAppend(&line, "; ", use.obstacle);
  return absl::StrCat(line, "\n");
}

std::string RowsLine(const RowTraffic& rows) {
  if (rows.prefetched + rows.pulled == 0) return "";
  return absl::StrFormat(
      "rows of tables on servers, of rank 0: %d prefetched, of which %d changed; %d "
      "pulled; %d bytes waited for\n",
      rows.prefetched, rows.changed, rows.pulled, rows.waited_bytes);
}

std::string ServerMemoryLines(absl::Span<const ServerMemory> servers) {
  std::string text;
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerMemory& memory = servers[i];
    absl::StrAppendFormat(
        &text,
        "server %d: %d bytes of parameters, %d of optimizer state; pushes took at most %d bytes", i,
        memory.parameters, memory.state, memory.pushes);
    if (memory.prefetched > 0) {
      absl::StrAppendFormat(&text, ", copies of prefetched rows %d", memory.prefetched);
    }
    text += "\n";
  }
  return text;
}

std::string MetricsLine(const StepResult& result) { return JsonText(MetricsOf(result)) + "\n"; }

std::string MetricsLines::Add(const StepResult& result) {
  const bool has_sums =
      ranks_ > 1 && std::any_of(result.names->begin(), result.names->end(),
                                [&](const std::string& name) { return sums_.count(name) > 0; });
  if (!has_sums) return MetricsLine(result);
  step_.push_back(result);
  if (result.rank + 1 < ranks_) return "";
  std::vector<Json> lines;
  for (const StepResult& of_rank : step_) lines.push_back(MetricsOf(of_rank));
  for (size_t v = 0; v < result.values.size(); ++v) {
    const std::string& name = (*result.names)[v];
    if (!IsSum(sums_, name, result.values[v])) continue;
    std::vector<double> sums(result.values[v].size(), 0);
    for (const StepResult& of_rank : step_) {
      size_t i = 0;
      VisitElements(of_rank.values[v], [&](auto value) {
        if (i < sums.size()) sums[i++] += static_cast<double>(value);
      });
    }
    Json list = Json::array();
    for (double sum : sums) list.push_back(NumberToJson(sum));
    for (Json& line : lines) {
      line["of_rank"][name] = std::move(line["fetch"][name]);
      line["fetch"][name] = list;
    }
  }
  step_.clear();
  std::string text;
  for (const Json& line : lines) absl::StrAppend(&text, JsonText(line), "\n");
  return text;
}

absl::StatusOr<int64_t> StepOfMetricsLine(absl::string_view line) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("step") && json["step"].is_number_unsigned() &&
      json["step"].get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) {
    return json["step"].get<int64_t>();
  }
  return absl::InvalidArgumentError("expected a JSON object with a step");
}

bool IsCsv(absl::string_view path) { return absl::EndsWith(path, ".csv"); }

absl::StatusOr<absl::optional<int64_t>> CsvLines::ReadStep(absl::string_view line) {
  if (absl::StartsWith(line, "step,")) {
    names_ = std::string(absl::StripSuffix(line, "\n"));
    return absl::nullopt;
  }
  int64_t step = 0;
  if (absl::SimpleAtoi(line.substr(0, line.find(',')), &step) && step >= 0) return step;
  return absl::InvalidArgumentError("expected a step, a comma and numbers");
}

absl::StatusOr<std::string> CsvLines::Add(
    int64_t step, const std::vector<std::pair<std::string, double>>& numbers) {
  std::string names = "step", line = absl::StrCat(step);
  for (const auto& [name, number] : numbers) {
    absl::StrAppend(&names, ",", name);
    absl::StrAppendFormat(&line, ",%.9g", number);
  }
  line += "\n";
  if (names_.empty()) {
    names_ = names;
    return absl::StrCat(names, "\n", line);
  }
  if (names == names_) return line;
  return absl::InvalidArgumentError(absl::StrCat("expected the columns ", names,
                                                 " of this run, found ", names_,
                                                 " of an earlier one; name another file, or fetch "
                                                 "the same"));
}

absl::Status WriteFetched(const StepResult& result, NpzWriter* archive) {
  for (size_t v = 0; v < result.values.size(); ++v) {
    const Tensor& value = result.values[v];
    const std::string name = absl::StrCat(result.step, "/", result.rank, "/", (*result.names)[v]);
    if (!value.is_rows()) {
      WEFT_RETURN_IF_ERROR(archive->Add(name, value));
      continue;
    }
    Tensor rows;
    rows.Resize(DType::kInt64, {value.dim(0)});
    std::copy(value.rows().begin(), value.rows().end(), rows.data<int64_t>());
    WEFT_RETURN_IF_ERROR(archive->Add(name + "/rows", rows));
    WEFT_RETURN_IF_ERROR(archive->Add(name + "/values", value.RowValues()));
  }
  return absl::OkStatus();
}

absl::Status LineFile::Open() {
  if (file_ != nullptr) return absl::OkStatus();
  if (keep_) WEFT_RETURN_IF_ERROR(Annotate(path_, RemoveLines()));
  file_.reset(path_ == "-" ? stdout : std::fopen(path_.c_str(), keep_ ? "ae" : "we"));
  if (file_ != nullptr) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot open for writing"));
}

absl::Status LineFile::RemoveLines() const {
  if (AtomicFile::WritesDirectly(path_)) return absl::OkStatus();
  const absl::StatusOr<FileBytes> file = ReadFile(path_);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(file.status());
  std::vector<absl::string_view> kept;
  size_t bytes = 0;
  int64_t number = 0;
  for (absl::string_view rest = file->bytes; !rest.empty();) {
    const size_t newline = rest.find('\n');
    if (newline == absl::string_view::npos) break;
    const absl::string_view line = rest.substr(0, newline + 1);
    rest.remove_prefix(line.size());
    const absl::StatusOr<bool> keeps = keep_(line);
    if (!keeps.ok()) return Annotate(absl::StrCat("line ", number + 1), keeps.status());
    ++number;
    if (!*keeps) continue;
    kept.push_back(line);
    bytes += line.size();
  }
  if (bytes == file->bytes.size()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(AtomicFile shorter, AtomicFile::Create(path_));
  WEFT_RETURN_IF_ERROR(shorter.Write(kept));
  return shorter.Commit();
}

absl::Status LineFile::Write(absl::string_view line) {
  WEFT_RETURN_IF_ERROR(Open());
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
      std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot write"));
}

absl::Status LineFile::Finish() { return Open(); }

ProgressLine::ProgressLine(std::FILE* stream) : ProgressLine(stream, isatty(fileno(stream)) == 1) {}

bool ProgressLine::IsDue() const { return is_shown_ && std::chrono::steady_clock::now() >= next_; }

void ProgressLine::Show(absl::string_view line) {
  if (!IsDue()) return;
  next_ = std::chrono::steady_clock::now() + kInterval;
  const std::string text = absl::StrCat(kEraseLine, line);
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
  is_visible_ = true;
}

void ProgressLine::Clear() {
  if (!is_visible_) return;
  std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stream_);
  std::fflush(stream_);
  is_visible_ = false;
}

std::string FormatProgress(int64_t done, int64_t all, absl::string_view what,
                           double samples_per_s) {
  constexpr int kWidth = 20;
  const double part = all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1;
  std::string bar(static_cast<size_t>(part * kWidth), '=');
  if (bar.size() < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  std::string line = absl::StrFormat("[%s] %3d%% step %d/%d  %s", bar, static_cast<int>(100 * part),
                                     done, all, what);
  if (samples_per_s > 0) absl::StrAppendFormat(&line, "  %.4g samples/s", samples_per_s);
  return line;
}

}  // namespace weft
