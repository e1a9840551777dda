#include "tools/job/job_environment.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/jobs/job_token.h"

namespace weft {
namespace {

constexpr char kWeftRank[] = "WEFT_JOB_RANK";

// What the variables of one launcher say.
struct Launch {
  std::string launcher;
  std::string rank_name, size_name;  // of variables
  int rank = 0, size = 1;
  absl::optional<int> local_rank;
  bool is_one_host = false;
  std::string address;    // empty: the launcher names none
  bool any_port = false;  // whose port is a guess
  std::string id;         // the same in all processes of the job, and in no other job; empty: none
  Job::Mpi mpi = Job::Mpi::kNone;
  std::string where;  // the variables that say whether this is one host; for messages
};

class Reader {
 public:
  explicit Reader(const GetEnv& get) : get_(get) {}

  std::string Text(const std::string& name) const {
    const char* value = get_(name.c_str());
    return value == nullptr ? "" : value;
  }

  // "RANK=1", "RANK is not set".
  std::string Show(const std::string& name) const {
    const std::string value = Text(name);
    return value.empty() ? absl::StrCat(name, " is not set") : absl::StrCat(name, "=", value);
  }

  absl::StatusOr<absl::optional<int>> Number(const std::string& name) const {
    const std::string text = Text(name);
    if (text.empty()) return absl::nullopt;
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=", text, ": expected a number, 0 or more"));
    }
    return number;
  }

  // Rank, size, and the numbers on the host. None: not this launcher.
  absl::StatusOr<absl::optional<Launch>> Ranks(const std::string& launcher,
                                               const std::string& rank_name,
                                               const std::string& size_name,
                                               const std::string& local_rank_name,
                                               const std::string& local_size_name) const {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<int> rank, Number(rank_name));
    WEFT_ASSIGN_OR_RETURN(const absl::optional<int> size, Number(size_name));
    if (!rank.has_value() && !size.has_value()) return absl::nullopt;
    if (!rank.has_value() || !size.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Show(rank.has_value() ? rank_name : size_name), " (", launcher, "), but ",
                       Show(rank.has_value() ? size_name : rank_name),
                       ": expected both, or neither for a run of one process"));
    }
    if (*rank >= *size) {
      return absl::InvalidArgumentError(absl::StrCat(Show(rank_name), ", ", Show(size_name), " (",
                                                     launcher,
                                                     "): expected a rank less than the size"));
    }
    Launch launch;
    launch.launcher = launcher;
    launch.rank_name = rank_name;
    launch.size_name = size_name;
    launch.rank = *rank;
    launch.size = *size;
    if (!local_rank_name.empty()) {
      WEFT_ASSIGN_OR_RETURN(launch.local_rank, Number(local_rank_name));
    }
    if (!local_size_name.empty()) {
      WEFT_ASSIGN_OR_RETURN(const absl::optional<int> local_size, Number(local_size_name));
      launch.is_one_host = local_size.has_value() && *local_size == *size;
      launch.where = Show(local_size_name);
    }
    return launch;
  }

 private:
  const GetEnv& get_;
};

using MaybeLaunch = absl::StatusOr<absl::optional<Launch>>;

std::string HostPort(const std::string& host, int port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

MaybeLaunch ReadWeft(const Reader& env) {
  WEFT_ASSIGN_OR_RETURN(absl::optional<Launch> launch,
                        env.Ranks("weft launch", kWeftRank, "WEFT_JOB_SIZE", "", ""));
  if (!launch.has_value()) return launch;
  launch->id = env.Text("WEFT_JOB_ID");
  launch->where = env.Show("WEFT_JOB_ADDRESS");
  return launch;
}

MaybeLaunch ReadTorchrun(const Reader& env) {
  WEFT_ASSIGN_OR_RETURN(absl::optional<Launch> launch, env.Ranks("torchrun", "RANK", "WORLD_SIZE",
                                                                 "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
  if (!launch.has_value()) return launch;
  const std::string host = env.Text("MASTER_ADDR");
  WEFT_ASSIGN_OR_RETURN(const absl::optional<int> port, env.Number("MASTER_PORT"));
  launch->id = absl::StrJoin({env.Text("TORCHELASTIC_RUN_ID"), host, env.Text("MASTER_PORT")}, ",");
  if (launch->is_one_host) {
    // Agents of several hosts may count restarts differently; of one host there is one agent.
    absl::StrAppend(&launch->id, ",", env.Text("TORCHELASTIC_RESTART_COUNT"));
    return launch;
  }
  if (host.empty() || !port.has_value()) {
    launch->where = absl::StrCat(env.Show("MASTER_ADDR"), ", ", env.Show("MASTER_PORT"));
    return launch;
  }
  // The agent may hold the port itself, for its key-value store.
  const std::string agent = absl::AsciiStrToLower(env.Text("TORCHELASTIC_USE_AGENT_STORE"));
  const int offset = agent == "true" || agent == "1" ? 1 : 0;
  if (*port < 1 || *port + offset > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat(env.Show("MASTER_PORT"), ": expected a port from 1 to ", 65535 - offset));
  }
  launch->address = HostPort(host, *port + offset);
  return launch;
}

MaybeLaunch ReadPaddle(const Reader& env) {
  const std::string list_name = "PADDLE_TRAINER_ENDPOINTS", own_name = "PADDLE_CURRENT_ENDPOINT";
  WEFT_ASSIGN_OR_RETURN(
      absl::optional<Launch> launch,
      env.Ranks("paddle.distributed.launch", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "", ""));
  if (!launch.has_value()) return launch;
  launch->where = env.Show(list_name);
  const std::string list = env.Text(list_name), own = env.Text(own_name);
  if (list.empty()) return launch;
  const std::vector<std::string> endpoints = absl::StrSplit(list, ',');
  if (endpoints.size() != static_cast<size_t>(launch->size)) {
    return absl::InvalidArgumentError(absl::StrCat(env.Show(launch->size_name), ", but ",
                                                   env.Show(list_name), " has ", endpoints.size(),
                                                   " endpoints"));
  }
  if (!own.empty() && endpoints[launch->rank] != own) {
    return absl::InvalidArgumentError(absl::StrCat(
        env.Show(own_name), ", but endpoint ", launch->rank, " of ", env.Show(list_name), " is ",
        endpoints[launch->rank], " (", env.Show(launch->rank_name), ")"));
  }
  std::vector<absl::string_view> hosts;
  for (const std::string& endpoint : endpoints) {
    hosts.push_back(absl::string_view(endpoint).substr(0, endpoint.rfind(':')));
  }
  launch->is_one_host = absl::c_count(hosts, hosts[0]) == launch->size;
  launch->local_rank = static_cast<int>(
      std::count(hosts.begin(), hosts.begin() + launch->rank, hosts[launch->rank]));
  launch->address = endpoints[0];
  launch->id = list;
  return launch;
}

MaybeLaunch ReadOpenMpi(const Reader& env) {
  WEFT_ASSIGN_OR_RETURN(
      absl::optional<Launch> launch,
      env.Ranks("mpirun (OpenMPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (!launch.has_value()) return launch;
  launch->id = env.Text("PMIX_NAMESPACE");
  launch->mpi = Job::Mpi::kOpenMpi;
  return launch;
}

// Hydra (MPICH, Intel MPI); also srun --mpi=pmi2.
MaybeLaunch ReadPmi(const Reader& env) {
  WEFT_ASSIGN_OR_RETURN(
      absl::optional<Launch> launch,
      env.Ranks("mpiexec (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"));
  if (!launch.has_value()) return launch;
  launch->mpi = Job::Mpi::kMpich;
  return launch;
}

// The first host of "gpu[07,10-12],login1": "gpu07".
std::string FirstHost(absl::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find_first_of(",-]", i);
    const size_t close = list.find(']', i);
    if (close == absl::string_view::npos) return "";
    absl::StrAppend(&host, list.substr(i + 1, end - i - 1));
    i = close;
  }
  return host;
}

MaybeLaunch ReadSlurm(const Reader& env) {
  // An allocation and its batch script have many of the variables: only srun starts steps.
  const std::string step_text = env.Text("SLURM_STEP_ID");
  if (step_text.empty()) return absl::nullopt;
  int64_t step = 0;  // up to 2^32: an interactive step
  if (!absl::SimpleAtoi(step_text, &step) || step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(env.Show("SLURM_STEP_ID"), ": expected a number, 0 or more"));
  }
  const bool has_step_size = !env.Text("SLURM_STEP_NUM_TASKS").empty();
  WEFT_ASSIGN_OR_RETURN(
      absl::optional<Launch> launch,
      env.Ranks("srun (Slurm)", "SLURM_PROCID",
                has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", ""));
  if (!launch.has_value()) return launch;
  launch->id = absl::StrCat(env.Text("SLURM_JOB_ID"), ".", env.Text("SLURM_STEP_ID"));
  if (!env.Text("PMIX_RANK").empty()) launch->mpi = Job::Mpi::kOpenMpi;

  const bool has_step_nodes = !env.Text("SLURM_STEP_NUM_NODES").empty();
  const std::string nodes_name = has_step_nodes ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  WEFT_ASSIGN_OR_RETURN(const absl::optional<int> nodes, env.Number(nodes_name));
  const std::string list_name = "SLURM_STEP_NODELIST";
  const std::string host = FirstHost(env.Text(list_name));
  launch->where = absl::StrCat(env.Show(nodes_name), ", ", env.Show(list_name));
  launch->is_one_host = nodes.has_value() && *nodes == 1;
  WEFT_ASSIGN_OR_RETURN(const absl::optional<int> job, env.Number("SLURM_JOB_ID"));
  if (!launch->is_one_host && !host.empty() && job.has_value()) {
    // Below the ports that systems hand out; steps of a job differ.
    launch->address = HostPort(host, static_cast<int>(20000 + (*job + step) % 10000));
    launch->any_port = true;
  }
  return launch;
}

std::string HashOf(absl::string_view text) {
  return absl::StrCat(absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16));
}

std::string UnixAddress(absl::string_view job) {
  return absl::StrCat("unix:weft-", getuid(), "-", HashOf(job));
}

absl::Status CheckAgreement(const Launch& a, const Launch& b) {
  const auto differ = [&](const std::string& a_name, int a_value, const std::string& b_name,
                          int b_value) {
    return absl::InvalidArgumentError(absl::StrCat(
        a_name, "=", a_value, " (", a.launcher, "), but ", b_name, "=", b_value, " (", b.launcher,
        "): expected one launcher, or two that agree; unset the variables ", "of the other one"));
  };
  if (a.size != b.size) return differ(a.size_name, a.size, b.size_name, b.size);
  if (a.rank != b.rank) return differ(a.rank_name, a.rank, b.rank_name, b.rank);
  return absl::OkStatus();
}

// All launchers whose variables are set and count, innermost first.
absl::StatusOr<std::vector<Launch>> ReadLaunches(const Reader& env) {
  std::vector<Launch> launches;
  for (const auto& read : {ReadWeft, ReadTorchrun, ReadPaddle, ReadOpenMpi, ReadPmi}) {
    WEFT_ASSIGN_OR_RETURN(absl::optional<Launch> launch, read(env));
    if (!launch.has_value()) continue;
    // weft launch may have been started as a job of one process, such as a shell of srun.
    const bool is_outside =
        !launches.empty() && launches[0].rank_name == kWeftRank && launch->size == 1;
    if (is_outside) continue;
    if (!launches.empty()) WEFT_RETURN_IF_ERROR(CheckAgreement(launches[0], *launch));
    launches.push_back(*std::move(launch));
  }
  WEFT_ASSIGN_OR_RETURN(absl::optional<Launch> slurm, ReadSlurm(env));
  if (!slurm.has_value()) return launches;
  if (!launches.empty()) {
    const bool agrees = CheckAgreement(launches[0], *slurm).ok();
    // srun starts the agents of other launchers: at most one for each process. More tasks than
    // processes would be as many jobs.
    if (!agrees && slurm->size <= launches[0].size) return launches;
    WEFT_RETURN_IF_ERROR(CheckAgreement(launches[0], *slurm));
  }
  launches.push_back(*std::move(slurm));
  return launches;
}

}  // namespace

absl::StatusOr<absl::optional<Job>> FindJob(
    const GetEnv& get,
    const std::function<absl::optional<int>(const std::string& variable)>& launcher_pid) {
  const Reader env(get);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Launch> launches, ReadLaunches(env));
  const std::string given_address = env.Text("WEFT_JOB_ADDRESS");
  if (launches.empty()) {
    if (given_address.empty()) return absl::nullopt;
    return absl::InvalidArgumentError(
        absl::StrCat(env.Show("WEFT_JOB_ADDRESS"),
                     ": expected WEFT_JOB_RANK and WEFT_JOB_SIZE, too, or the variables of a "
                     "launcher"));
  }
  const Launch& first = launches[0];
  if (first.size == 1) {  // it meets nobody
    Job job;
    job.launcher = first.launcher;
    return job;
  }

  Job job;
  job.process = first.rank;
  job.num_processes = first.size;
  WEFT_ASSIGN_OR_RETURN(job.local_process, env.Number("WEFT_JOB_LOCAL_RANK"));
  std::vector<std::string> names;
  bool is_one_host = false;
  std::string id, id_of, address;
  for (const Launch& launch : launches) {
    names.push_back(launch.launcher);
    if (!job.local_process.has_value()) job.local_process = launch.local_rank;
    if (job.mpi == Job::Mpi::kNone) job.mpi = launch.mpi;
    if (id.empty() && !launch.id.empty()) {
      id = launch.id;
      id_of = launch.launcher;
    }
    if (address.empty()) {
      address = launch.address;
      job.any_port = launch.any_port;
    }
    is_one_host = is_one_host || launch.is_one_host;
  }
  job.launcher = absl::StrJoin(names, " and ");
  if (!given_address.empty()) {
    address = given_address;
    job.any_port = false;
  }
  if (id.empty() && address.empty() && is_one_host) {
    const absl::optional<int> pid =
        launcher_pid == nullptr ? LauncherPid(first.rank_name) : launcher_pid(first.rank_name);
    if (pid.has_value()) id = absl::StrCat("pid ", *pid);
  }
  job.job = absl::StrCat(id_of.empty() ? first.launcher : id_of, ": ", id);
  job.token = env.Text("WEFT_JOB_TOKEN");
  if (!job.token.empty())
    WEFT_RETURN_IF_ERROR(Annotate("WEFT_JOB_TOKEN", CheckJobToken(job.token)));
  job.token_file =
      absl::StrCat(".weft-job-", HashOf(absl::StrCat(job.job, " ", address)), ".token");

  if (!address.empty()) {
    job.address = address;
  } else if (is_one_host && !id.empty()) {
    job.address = UnixAddress(job.job);
  } else {
    job.address = absl::InvalidArgumentError(absl::StrCat(
        job.launcher, " started ", first.size, " processes and does not say where they meet (",
        first.where,
        "): set WEFT_JOB_ADDRESS=HOST:PORT for all of them, where HOST is the host of ",
        "process 0"));
  }
  return job;
}

absl::optional<int> LauncherPid(const std::string& variable) {
  int64_t pid = getpid();
  while (pid > 1) {
    const absl::StatusOr<FileBytes> status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
    if (!status.ok()) return absl::nullopt;
    int64_t parent = 0;
    for (absl::string_view line : absl::StrSplit(status->bytes, '\n')) {
      if (absl::ConsumePrefix(&line, "PPid:") && !absl::SimpleAtoi(line, &parent)) parent = 0;
    }
    if (parent < 1) return absl::nullopt;
    const absl::StatusOr<FileBytes> environment =
        ReadFile(absl::StrCat("/proc/", parent, "/environ"));
    if (!environment.ok()) return absl::nullopt;
    const std::vector<absl::string_view> entries = absl::StrSplit(environment->bytes, '\0');
    const bool has = absl::c_any_of(entries, [&](absl::string_view entry) {
      return absl::StartsWith(entry, absl::StrCat(variable, "="));
    });
    if (!has) return static_cast<int>(parent);
    pid = parent;
  }
  return absl::nullopt;
}

}  // namespace weft
