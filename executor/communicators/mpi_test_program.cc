// A job of mpi_communicator_test:
//   mpirun -n N mpi_test_program TASK LOCAL_RANKS
//   mpirun -n N mpi_test_program fault LOCAL_RANKS FAULT VICTIM SECONDS
#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "executor/communicators/collective_cases.h"
#include "executor/communicators/mpi_communicator.h"
#include "executor/communicators/mpi_session.h"
#include "executor/communicators/world.h"
#include "executor/jobs/forked_job.h"
#include "executor/jobs/job_link.h"

namespace weft {
namespace {

absl::Status AllReduce(CommunicatorGroup* group, const RingKey& ring, int rank, int64_t count) {
  std::string elements(count * 4, '\0');
  CollectiveCall call;
  call.desc.count = count;
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = "g";
  call.dims = {count};
  WEFT_ASSIGN_OR_RETURN(Communicator * end, group->Get(ring, rank));
  return end->Run(call, elements.data(), &elements[0]);
}

// Every process computes what threads do, and compares.
absl::Status RunAllCases(CommunicatorGroup* group, const RingKey& ring, const World& world) {
  const int size = SizeOf(ring, world.size);
  const std::vector<CollectiveCase> cases = CollectiveCases(size);
  const std::vector<std::vector<std::string>> expected = ExpectedResults(cases, size);
  const auto results = OnRankThreads(world.count, [&](int thread) -> absl::Status {
    const int rank = world.first + thread;
    if (!ring.Has(rank)) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(Communicator * end, group->Get(ring, rank));
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> found, RunCases(cases, end));
    const std::string difference = FirstDifference(cases, found, expected[PositionOf(ring, rank)]);
    if (!difference.empty()) {
      return absl::DataLossError(
          absl::StrCat(ToString(ring), ", rank ", rank, ": other bits in ", difference));
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : results) WEFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// What fails, and when.
struct PlannedFault {
  testing::Fault fault = testing::Fault::kIsKilled;
  int victim = -1;
  double after_s = 0;
};

// Says when the fault happens, and when other ranks know.
absl::Status RunUntilFault(CommunicatorGroup* group, JobLink* link, int rank,
                           const PlannedFault& planned) {
  const auto say = [](const char* what) {
    std::cerr << absl::StrFormat("%s %.6f\n", what, testing::SharedClock()) << std::flush;
  };
  const bool is_victim = rank == planned.victim;
  const absl::Status status = testing::SumUntilFault(group, link, rank, is_victim, planned.fault,
                                                     planned.after_s, [&] { say("fault at"); });
  if (!is_victim) say("known at");
  return status;
}

absl::Status RunTask(const std::string& task, int local_ranks, const PlannedFault& fault,
                     MpiSession* session) {
  JobLinkOptions link_options;
  link_options.process = session->process();
  link_options.num_processes = session->num_processes();
  link_options.local_ranks = local_ranks;
  WEFT_ASSIGN_OR_RETURN(const MpiSession::Meeting meeting, session->NewMeeting());
  link_options.address = meeting.address;
  link_options.share_port = meeting.share_port;
  link_options.token = meeting.token;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<JobLink> link, NewJobLink(link_options));

  GroupOptions options;
  options.nranks = local_ranks * session->num_processes();
  options.link = link.get();
  options.timeout_s = task == "late" ? 4 : 60;
  const World world = WorldOf(options.nranks, options.link);
  std::vector<int> some;
  for (int rank = 0; rank < world.size; rank += 2) some.push_back(rank);
  const RingKey all, compute{0, true}, ring{1, false, some};
  options.rings = {all, compute, ring};
  if (task == "differ" && world.process() == 1) options.rings.pop_back();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<CommunicatorGroup> group,
                        NewMpiGroup(std::move(options)));
  link->OnFailure([&](const absl::Status& status) { group->Abort(status); });
  const auto no_failure = absl::MakeCleanup([&] { link->OnFailure({}); });

  if (task == "cases") {
    // Two rings at a time.
    const auto both = OnRankThreads(
        2, [&](int i) { return RunAllCases(group.get(), i == 0 ? all : compute, world); });
    for (const absl::Status& status : both) WEFT_RETURN_IF_ERROR(status);
    WEFT_RETURN_IF_ERROR(RunAllCases(group.get(), ring, world));
  } else {
    const auto results = OnRankThreads(world.count, [&](int thread) -> absl::Status {
      const int rank = world.first + thread;
      if (task == "fault") return RunUntilFault(group.get(), link.get(), rank, fault);
      WEFT_RETURN_IF_ERROR(AllReduce(group.get(), all, rank, 1));
      if (rank == 1) {
        if (task == "late") sleep(60);
        if (task == "fail") {
          const absl::Status status = absl::InternalError("op 5 (mul): out of luck");
          link->Abort(1, status);
          group->Abort(status);
          sleep(1);  // the others say why before mpirun ends them together with this process
        }
      }
      for (int i = 0; i < 100; ++i) {
        WEFT_RETURN_IF_ERROR(AllReduce(group.get(), all, rank, 1000000));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : results) WEFT_RETURN_IF_ERROR(status);
  }
  return link->Finish();
}

int Main(int argc, char** argv) {
  int local_ranks = 0;
  if (argc < 3 || !absl::SimpleAtoi(argv[2], &local_ranks)) return 2;
  PlannedFault fault;
  if (argc == 6) {
    for (const testing::Fault one : testing::kFaults) {
      if (testing::FaultName(one) == argv[3]) fault.fault = one;
    }
    if (!absl::SimpleAtoi(argv[4], &fault.victim) || !absl::SimpleAtod(argv[5], &fault.after_s)) {
      return 2;
    }
  }
  const absl::StatusOr<std::unique_ptr<MpiSession>> session = MpiSession::Start();
  if (!session.ok()) return 2;
  const absl::Status status = RunTask(argv[1], local_ranks, fault, session->get());
  if (!status.ok()) {
    // The session ends the job when it goes.
    std::cerr << absl::StrCat("error: ", status.ToString(), "\n") << std::flush;
    return 1;
  }
  (*session)->End();
  std::cout << absl::StrCat("process ", (*session)->process(), " is done\n") << std::flush;
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
