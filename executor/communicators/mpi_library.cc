#include "executor/communicators/mpi_library.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/loaded_library.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<std::unique_ptr<MpiLibrary>> Load(const std::string& file) {
  // Its plug-ins do not name it as a library that they need.
  WEFT_ASSIGN_OR_RETURN(
      void* const handle,
      LoadLibrary(file, RTLD_GLOBAL,
                  "install OpenMPI 3 or later (libopenmpi3), or name its directory "
                  "in LD_LIBRARY_PATH"));
  auto library = std::make_unique<MpiLibrary>();
  std::string missing;
  const auto find = [&](const char* name, auto** symbol) {
    if (!FindSymbol(handle, name, symbol) && missing.empty()) missing = name;
  };
  find("MPI_Abort", &library->Abort);
  find("MPI_Allgather", &library->Allgather);
  find("MPI_Bcast", &library->Bcast);
  find("MPI_Comm_idup", &library->Comm_idup);
  find("MPI_Comm_rank", &library->Comm_rank);
  find("MPI_Comm_set_errhandler", &library->Comm_set_errhandler);
  find("MPI_Comm_size", &library->Comm_size);
  find("MPI_Error_string", &library->Error_string);
  find("MPI_Finalize", &library->Finalize);
  find("MPI_Init_thread", &library->Init_thread);
  find("MPI_Initialized", &library->Initialized);
  find("MPI_Irecv", &library->Irecv);
  find("MPI_Isend", &library->Isend);
  find("MPI_Test", &library->Test);
  find("MPI_Testsome", &library->Testsome);
  find("ompi_mpi_byte", &library->byte);
  find("ompi_mpi_comm_world", &library->world);
  find("ompi_mpi_errors_return", &library->errors_return);
  find("ompi_request_null", &library->no_request);
  if (missing.empty()) return library;
  (void)dlclose(handle);
  return absl::UnavailableError(
      absl::StrCat(file, ": expected OpenMPI 3 or later, found a library without ", missing));
}

}  // namespace

absl::Status MpiLibrary::StatusOf(int error, absl::string_view call) const {
  if (error == mpi::kSuccess) return absl::OkStatus();
  char text[mpi::kMaxErrorString];
  int size = 0;
  Error_string(error, text, &size);
  return absl::UnavailableError(absl::StrCat(call, ": ", absl::string_view(text, size)));
}

absl::StatusOr<const MpiLibrary*> LoadMpi(const std::string& file) {
  return LoadOnce<MpiLibrary>(file, Load);
}

}  // namespace weft
