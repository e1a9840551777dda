// A process of a job that mpirun or srun has started.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_MPI_SESSION_H_
#define WEFT_EXECUTOR_COMMUNICATORS_MPI_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "executor/communicators/mpi_library.h"

namespace weft {

// MPI, from its start to its end; once in a process. Without a launcher, the job is this process.
class MpiSession {
 public:
  // Unavailable: there is no OpenMPI (LoadMpi). FailedPrecondition: MPI does not support threads.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start(
      const std::string& file = std::string(kMpiFile));

  // Ends all processes of the job, this one included (MPI_Abort, exit code 1), unless End was
  // called. Report errors before.
  virtual ~MpiSession() = default;

  virtual int process() const = 0;
  virtual int num_processes() const = 0;

  // Of JobLinkOptions: where process 0 should listen, and a new token. All processes must call it;
  // waits for them. On one host, a name among the host's sockets; otherwise an address that
  // ChooseAddress finds, and a port that share_port tells.
  struct Meeting {
    std::string address, token;
    std::function<int(int port)> share_port;  // of JobLinkOptions; null on one host
  };
  virtual absl::StatusOr<Meeting> NewMeeting() = 0;

  // The process is done with MPI. All processes must call it, after everything has gone well; waits
  // for them.
  virtual void End() = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_MPI_SESSION_H_
