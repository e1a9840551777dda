#include "executor/communicators/rank_positions.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// How long Find waits.
constexpr std::chrono::seconds kPositionTime(1);

}  // namespace

RankPositions::RankPositions(const World& world, JobLink* link, Describe describe)
    : world_(world), link_(link), describe_(std::move(describe)) {
  if (link_ == nullptr) return;
  link_->Listen(JobLink::Topic::kPosition,
                [this](int process, const std::string& message) { Receive(process, message); });
}

RankPositions::~RankPositions() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kPosition, {});
}

std::map<int, std::string> RankPositions::Find(const std::vector<int>& ranks) {
  std::map<int, std::string> found;
  std::set<int> processes;
  for (int rank : ranks) {
    if (!world_.Has(rank)) {
      processes.insert(world_.ProcessOf(rank));
    } else if (std::string position = describe_(rank); !position.empty()) {
      found[rank] = std::move(position);
    }
  }
  if (link_ == nullptr || processes.empty()) return found;
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t id = num_questions_++;
  Question& question = questions_[id];
  question.num_unanswered = static_cast<int>(processes.size());
  lock.unlock();
  for (int process : processes) {
    link_->Send(process, JobLink::Topic::kPosition, absl::StrCat("? ", id));
  }
  lock.lock();
  answered_.wait_for(lock, kPositionTime, [&] { return question.num_unanswered == 0; });
  for (auto& [rank, position] : question.positions) {
    if (absl::c_linear_search(ranks, rank)) found[rank] = position;
  }
  questions_.erase(id);
  return found;
}

void RankPositions::Receive(int process, const std::string& message) {
  const std::vector<absl::string_view> lines = absl::StrSplit(message, '\n');
  int64_t id = 0;
  if (!absl::SimpleAtoi(lines[0].substr(std::min<size_t>(1, lines[0].size())), &id)) return;
  if (lines[0][0] == '?') {
    std::string answer = absl::StrCat("! ", id);
    for (int rank = world_.first; rank < world_.end(); ++rank) {
      const std::string position = describe_(rank);
      if (!position.empty()) absl::StrAppend(&answer, "\n", rank, " ", position);
    }
    return link_->Send(process, JobLink::Topic::kPosition, std::move(answer));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto question = questions_.find(id);
  if (question == questions_.end()) return;  // came too late
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> line =
        absl::StrSplit(lines[i], absl::MaxSplits(' ', 1));
    int rank = 0;
    if (absl::SimpleAtoi(line.first, &rank)) {
      question->second.positions[rank] = std::string(line.second);
    }
  }
  --question->second.num_unanswered;
  answered_.notify_all();
}

}  // namespace weft
