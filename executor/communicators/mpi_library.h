// OpenMPI, loaded when a job uses it: the build needs neither its headers nor the library.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_MPI_LIBRARY_H_
#define WEFT_EXECUTOR_COMMUNICATORS_MPI_LIBRARY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// The interface of OpenMPI 3 to 5, as in its mpi.h.
namespace mpi {

struct Comm;        // ompi_communicator_t
struct Datatype;    // ompi_datatype_t
struct ErrHandler;  // ompi_errhandler_t
struct Request;     // ompi_request_t

struct Status {  // ompi_status_public_t
  int source, tag, error, is_cancelled;
  size_t num_bytes;
};

inline constexpr int kSuccess = 0;       // MPI_SUCCESS
inline constexpr int kErrInStatus = 18;  // MPI_ERR_IN_STATUS
inline constexpr int kUndefined = -32766;
inline constexpr int kThreadMultiple = 3;
inline constexpr int kMaxErrorString = 256;

}  // namespace mpi

// The functions of the library, named as there without "MPI_", and the objects that its constants
// point to.
struct MpiLibrary {
  int (*Abort)(mpi::Comm* comm, int error);
  int (*Allgather)(const void* in, int in_count, mpi::Datatype* in_type, void* out, int out_count,
                   mpi::Datatype* out_type, mpi::Comm* comm);
  int (*Bcast)(void* buffer, int count, mpi::Datatype* type, int root, mpi::Comm* comm);
  int (*Comm_idup)(mpi::Comm* comm, mpi::Comm** copy, mpi::Request** request);
  int (*Comm_rank)(mpi::Comm* comm, int* rank);
  int (*Comm_set_errhandler)(mpi::Comm* comm, mpi::ErrHandler* handler);
  int (*Comm_size)(mpi::Comm* comm, int* size);
  int (*Error_string)(int error, char* text, int* size);
  int (*Finalize)();
  int (*Init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*Initialized)(int* is_initialized);
  int (*Irecv)(void* buffer, int count, mpi::Datatype* type, int source, int tag, mpi::Comm* comm,
               mpi::Request** request);
  int (*Isend)(const void* buffer, int count, mpi::Datatype* type, int to, int tag, mpi::Comm* comm,
               mpi::Request** request);
  int (*Test)(mpi::Request** request, int* is_done, mpi::Status* status);
  int (*Testsome)(int count, mpi::Request** requests, int* num_done, int* indices,
                  mpi::Status* statuses);
  mpi::Datatype* byte;             // MPI_BYTE
  mpi::Comm* world;                // MPI_COMM_WORLD
  mpi::ErrHandler* errors_return;  // MPI_ERRORS_RETURN
  mpi::Request* no_request;        // MPI_REQUEST_NULL

  // Unavailable, with the name of the call and MPI's text, unless the error is MPI_SUCCESS.
  absl::Status StatusOf(int error, absl::string_view call) const;
};

inline constexpr absl::string_view kMpiFile = "libmpi.so.40";

// Loads a library once, and keeps it. Unavailable if there is none, or if it is not OpenMPI's.
// Thread-safe.
absl::StatusOr<const MpiLibrary*> LoadMpi(const std::string& file = std::string(kMpiFile));

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_MPI_LIBRARY_H_
