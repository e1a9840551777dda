/* Prints what MPI_Allreduce takes, by size, in place and out of place: allreduce_benchmark.cc. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const long sizes[] = {4 << 10, 256 << 10, 16 << 20};
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int s = 0; s < 3; ++s) {
    const long bytes = sizes[s], count = bytes / (long)sizeof(float);
    const int calls = bytes <= 4 << 10 ? 100 : bytes <= 256 << 10 ? 20 : 2;
    const int batches = bytes <= 256 << 10 ? 300 : 20;
    float* const in = malloc(bytes);
    float* const out = malloc(bytes);
    for (long i = 0; i < count; ++i) in[i] = out[i] = 0;
    for (int in_place = 0; in_place < 2; ++in_place) {
      double best = 1e9;
      for (int batch = 0; batch < batches; ++batch) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < calls; ++i) {
          if (argc > 1) memset(in_place ? out : in, 0, bytes); /* rewrite */
          MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
        }
        const double seconds = (MPI_Wtime() - begin) / calls;
        if (seconds < best) best = seconds;
      }
      if (rank == 0) printf("%ld %.9f\n", bytes, best);
    }
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
