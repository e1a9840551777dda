// In which collectives the ranks of other processes are.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_RANK_POSITIONS_H_
#define WEFT_EXECUTOR_COMMUNICATORS_RANK_POSITIONS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"

namespace weft {

// Asks other processes where their ranks are, and answers them. A question is "? ID", an answer
// "! ID" and a line "RANK POSITION" for each rank that is in a call.
class RankPositions {
 public:
  // Describes the calls that a rank of this process is in; empty: none.
  using Describe = std::function<std::string(int rank)>;

  RankPositions(const World& world, JobLink* link, Describe describe);
  ~RankPositions();
  RankPositions(const RankPositions&) = delete;
  RankPositions& operator=(const RankPositions&) = delete;

  // Waits a moment for processes that do not answer.
  std::map<int, std::string> Find(const std::vector<int>& ranks);

 private:
  struct Question {
    int num_unanswered = 0;
    std::map<int, std::string> positions;
  };

  // On the thread of the link.
  void Receive(int process, const std::string& message);

  const World world_;
  JobLink* const link_;
  const Describe describe_;
  std::mutex mutex_;
  std::condition_variable answered_;
  int64_t num_questions_ = 0;
  std::map<int64_t, Question> questions_;  // that wait for answers
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_RANK_POSITIONS_H_
