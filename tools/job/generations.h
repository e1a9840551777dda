// Who is left of an elastic job (docs/reliability.md): what the launcher knows and decides, and
// what its processes ask it.
#ifndef WEFT_TOOLS_JOB_GENERATIONS_H_
#define WEFT_TOOLS_JOB_GENERATIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tools/job/job_environment.h"

namespace weft {

// A job begins with generation 1. When processes are lost, those that are left form the next one.
struct Generation {
  int number = 1;
  int process = 0;  // of this generation
  int num_processes = 1;
  int64_t num_lines = 0;   // that the job has written to standard output
  std::string name = "1";  // of the address where it forms; nobody guesses those of later ones
};

// What a process and the launcher say to each other.
struct ControlMessage {
  enum class Kind {
    // Of a process: it begins to take part; it has ended its part of a generation, by an error; its
    // part is done.
    kBegins,
    kEnded,
    kFinished,
    // Of the launcher: a process of the generation is lost; the next generation; others have done
    // all that the job has to do; the job fails.
    kOver,
    kGeneration,
    kDone,
    kFail
  };
  Kind kind = Kind::kFail;
  Generation generation = {};  // of kEnded and kOver, the number alone
  // Of kEnded: whether the process has failed itself, and the last step that all ranks have kept.
  bool is_own = false;
  int64_t step = 0;

  std::string Encode() const;
  // None: no message.
  static absl::optional<ControlMessage> Decode(absl::string_view text);
};

// The variable that names the socket to the launcher: the number of an open file, and that of the
// socket.
inline constexpr char kControlVariable[] = "WEFT_JOB_CONTROL";
// The variable of a process that takes the place of a lost one: the number of the generation that
// has ended by that.
inline constexpr char kGenerationVariable[] = "WEFT_JOB_GENERATION";
// The value of kControlVariable. ErrnoToStatus.
absl::StatusOr<std::string> DescribeControl(int fd);

// The end of a process.
class GenerationClient {
 public:
  // None: the job is not elastic. InvalidArgument, naming the variable, if that is not the socket
  // of the launcher, to which nothing is written then. Tells the launcher that this process takes
  // part.
  static absl::StatusOr<absl::optional<GenerationClient>> Find(const GetEnv& get);

  GenerationClient(GenerationClient&& other) noexcept;
  GenerationClient& operator=(GenerationClient&&) = delete;
  ~GenerationClient();

  // The generation after which this process joins; none: it belongs to the first.
  // InvalidArgument, naming the variable.
  static absl::StatusOr<absl::optional<int>> JoinsAfter(const GetEnv& get);

  // Whether the launcher has said that a process of the generation is lost. Thread-safe.
  bool IsOver() const;

  // The part of this process is done, and its outputs are stored: whoever is lost from now on is
  // not missed.
  void Finish() const;

  enum class Next { kGoesOn, kIsDone, kFails };
  // The part of this process in the generation has ended by an error, and nothing of it runs any
  // more. `is_own`: this process has failed itself, not because of others. `step`: the last one
  // that all ranks have kept. Waits for the launcher:
  //   kGoesOn  sets `generation` to the next one
  //   kIsDone  others have done all that the job has to do
  //   kFails   the job ends with the error
  Next End(bool is_own, int64_t step, Generation* generation) const;

 private:
  explicit GenerationClient(int fd) : fd_(fd) {}

  int fd_;
};

// The end of the launcher: decides when all processes have ended their part of a generation. A
// process that was stopped and has gone on only seemed to be lost: all go on if nobody has failed
// itself, but not more than kMaxWithoutLoss times in a row without a further step.
class Generations {
 public:
  static constexpr int kMaxWithoutLoss = 3;
  static constexpr int kMaxLosses = 2;

  // Sends a message to a process of the job, by its number in the first generation.
  using Say = std::function<void(int process, const ControlMessage& message)>;

  Generations(int num_processes, int min_processes, Say say)
      : min_processes_(min_processes), say_(std::move(say)), members_(num_processes) {}

  // Whether a message says that a process begins to take part.
  static bool IsBegin(absl::string_view message);
  // What a process has said. One that begins after a loss, ends its part of another generation, or
  // says what is no message, is told that it fails: the job that it would join is not there any
  // more. Returns false for these.
  bool OnMessage(int process, absl::string_view message);
  // A process was killed. The others learn that it is lost.
  void OnKilled(int process);
  // Another takes the place of one that was killed: it joins the next generation, and begins by
  // ending its part of this one.
  void OnReplaced(int process);
  // Whether the process that was lost last in this place is the third in a row, with no further
  // step of the job between: another would be lost, too. Known when IsAnyWaiting.
  bool IsLostAgain(int process) const { return members_[process].losses > kMaxLosses; }
  // A process has ended by itself.
  void OnExit(int process, int exit_status);

  // Whether all processes wait for the decision. `Decide` then makes it, once. The job ends unless
  // it may go on.
  bool IsDue() const;
  enum class Decision { kGoesOn, kEnds, kHasTooFew };
  Decision Decide(int64_t num_lines, bool may_go_on);

  int number() const { return number_; }
  // Processes that are not lost, and have not ended.
  int num_left() const;
  int min_processes() const { return min_processes_; }
  // Whether a process waits for others.
  bool IsAnyWaiting() const;
  bool IsWaiting(int process) const { return members_[process].state == State::kWaits; }
  // Whether the process is one that takes over what others lose, such as weft run.
  bool TakesPart(int process) const { return members_[process].takes_part; }
  // No decision follows.
  bool HasEnded() const { return has_ended_; }
  // Whether a process has said that its part is done. It has seen that all have, and outputs come
  // before that.
  bool IsDone() const;

 private:
  void SayIsOver() const;

  enum class State { kRuns, kWaits, kIsLost, kHasExited };
  struct Member {
    State state = State::kRuns;
    bool takes_part = false;
    bool joins = false;  // takes the place of one that was lost in this generation
    bool has_finished = false;
    bool has_failed = false;  // itself
    int losses_now = 0;       // in this generation
    int losses = 0;           // without a further step between
    int exit_status = 0;
  };

  const int min_processes_;
  const Say say_;
  std::vector<Member> members_;
  int number_ = 1;
  int num_without_loss_ = 0;  // generations in a row, without a further step
  int64_t step_ = 0;          // that all ranks have kept
  bool has_ended_ = false;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_GENERATIONS_H_
