#include "executor/communicators/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/jobs/host_address.h"
#include "executor/jobs/job_token.h"

namespace weft {
namespace {

// Of a line that a process tells the others.
constexpr int kLineBytes = 1024;

absl::StatusOr<std::string> NewAddress(const std::vector<std::string>& networks) {
  if (IsOneNetwork(networks)) {
    std::random_device random;
    return absl::StrCat("unix:weft-", getpid(), "-", absl::Hex(random()), absl::Hex(random()));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string host, ChooseAddress(networks, 0));
  return absl::StrCat(host, ":0");
}

class Session : public MpiSession {
 public:
  Session() {
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &num_processes_);
  }
  ~Session() override {
    if (!has_ended_) MPI_Abort(MPI_COMM_WORLD, 1);
  }

  int process() const override { return process_; }
  int num_processes() const override { return num_processes_; }

  // MPI ends the job if these calls fail: MPI_ERRORS_ARE_FATAL.
  absl::StatusOr<Meeting> NewMeeting() override {
    std::vector<char> lines(static_cast<size_t>(num_processes_) * kLineBytes);
    std::vector<char> mine(kLineBytes);
    DescribeNetwork().copy(mine.data(), kLineBytes - 1);
    MPI_Allgather(mine.data(), kLineBytes, MPI_CHAR, lines.data(), kLineBytes, MPI_CHAR,
                  MPI_COMM_WORLD);
    std::vector<std::string> networks;
    for (int p = 0; p < num_processes_; ++p)
      networks.emplace_back(&lines[static_cast<size_t>(p) * kLineBytes]);
    // An error of process 0 is one of all: it begins with "!".
    std::vector<char> answer(kLineBytes);
    if (process_ == 0) {
      const absl::StatusOr<std::string> address = NewAddress(networks);
      const std::string text = address.ok() ? absl::StrCat(NewJobToken(), " ", *address)
                                            : absl::StrCat("!", address.status().message());
      text.copy(answer.data(), kLineBytes - 1);
    }
    MPI_Bcast(answer.data(), kLineBytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (answer[0] == '!') return absl::UnavailableError(&answer[1]);
    const std::pair<std::string, std::string> words =
        absl::StrSplit(answer.data(), absl::MaxSplits(' ', 1));
    Meeting meeting{words.second, words.first, nullptr};
    if (IsOneNetwork(networks)) return meeting;
    meeting.share_port = [](int port) {
      MPI_Bcast(&port, 1, MPI_INT, 0, MPI_COMM_WORLD);
      return port;
    };
    return meeting;
  }

  void End() override {
    has_ended_ = true;
    MPI_Finalize();
  }

 private:
  int process_ = 0;
  int num_processes_ = 1;
  bool has_ended_ = false;
};

}  // namespace

bool MpiSession::IsInBuild() { return true; }

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start() {
  int provided = 0;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (error != MPI_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("MPI_Init_thread: error ", error));
  }
  auto session = std::make_unique<Session>();
  if (provided < MPI_THREAD_MULTIPLE) {
    session->End();
    return absl::FailedPreconditionError(absl::StrCat("MPI has thread level ", provided,
                                                      ", expected MPI_THREAD_MULTIPLE (",
                                                      MPI_THREAD_MULTIPLE, ")"));
  }
  return session;
}

}  // namespace weft
