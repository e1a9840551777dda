#include "executor/communicators/mpi_session.h"

#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/communicators/mpi_library.h"
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
  explicit Session(const MpiLibrary& library) : mpi_(library) {
    mpi_.Comm_rank(mpi_.world, &process_);
    mpi_.Comm_size(mpi_.world, &num_processes_);
  }
  ~Session() override {
    if (!has_ended_) mpi_.Abort(mpi_.world, 1);
  }

  int process() const override { return process_; }
  int num_processes() const override { return num_processes_; }

  // MPI ends the job if these calls fail: MPI_ERRORS_ARE_FATAL.
  absl::StatusOr<Meeting> NewMeeting() override {
    std::vector<char> lines(static_cast<size_t>(num_processes_) * kLineBytes);
    std::vector<char> mine(kLineBytes);
    DescribeNetwork().copy(mine.data(), kLineBytes - 1);
    mpi_.Allgather(mine.data(), kLineBytes, mpi_.byte, lines.data(), kLineBytes, mpi_.byte,
                   mpi_.world);
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
    mpi_.Bcast(answer.data(), kLineBytes, mpi_.byte, 0, mpi_.world);
    if (answer[0] == '!') return absl::UnavailableError(&answer[1]);
    const std::pair<std::string, std::string> words =
        absl::StrSplit(answer.data(), absl::MaxSplits(' ', 1));
    Meeting meeting{words.second, words.first, nullptr};
    if (IsOneNetwork(networks)) return meeting;
    meeting.share_port = [this](int port) {
      mpi_.Bcast(&port, sizeof(port), mpi_.byte, 0, mpi_.world);
      return port;
    };
    return meeting;
  }

  void End() override {
    has_ended_ = true;
    mpi_.Finalize();
  }

 private:
  const MpiLibrary& mpi_;
  int process_ = 0;
  int num_processes_ = 1;
  bool has_ended_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start(const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(const MpiLibrary* const mpi, LoadMpi(file));
  int provided = 0;
  const int error = mpi->Init_thread(nullptr, nullptr, mpi::kThreadMultiple, &provided);
  if (error != mpi::kSuccess) {
    return absl::UnavailableError(absl::StrCat("MPI_Init_thread: error ", error));
  }
  auto session = std::make_unique<Session>(*mpi);
  if (provided < mpi::kThreadMultiple) {
    session->End();
    return absl::FailedPreconditionError(absl::StrCat("MPI has thread level ", provided,
                                                      ", expected MPI_THREAD_MULTIPLE (",
                                                      mpi::kThreadMultiple, ")"));
  }
  return session;
}

}  // namespace weft
