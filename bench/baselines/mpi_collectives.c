/* Open MPI's own collectives by size, as the baseline for `heddle bench collective` on the CPU fabrics.
 *
 *   mpicc -O2 bench/baselines/mpi_collectives.c -o mpi_collectives
 *   heddle launch -n 2 -- ./mpi_collectives FROM_BYTES TO_BYTES FACTOR REPEATS
 *
 * Prints JSON: for each collective and size the slowest rank's median seconds a call. The same sizes, alternating
 * buffers and calls a sample as apps/cli/bench/collective*.cpp. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPairs = 4 };
static const char* const kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"};

static void call(int collective, float* in, float* out, int count, int ranks) {
  const int piece = count / ranks;
  if (collective == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (collective == 1) MPI_Reduce_scatter_block(in, out, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (collective == 2) MPI_Allgather(in, piece, MPI_FLOAT, out, piece, MPI_FLOAT, MPI_COMM_WORLD);
  if (collective == 3) MPI_Alltoall(in, piece, MPI_FLOAT, out, piece, MPI_FLOAT, MPI_COMM_WORLD);
  if (collective == 4) MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* samples, int n) {
  qsort(samples, (size_t)n, sizeof(double), ascending);
  return n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 5) {
    if (rank == 0) fprintf(stderr, "usage: mpi_collectives FROM_BYTES TO_BYTES FACTOR REPEATS\n");
    MPI_Finalize();
    return 2;
  }
  const size_t from = strtoull(argv[1], NULL, 10), to = strtoull(argv[2], NULL, 10);
  const size_t factor = strtoull(argv[3], NULL, 10);
  const int repeats = atoi(argv[4]);
  float* const in = malloc(to);
  float* const out = malloc(to);
  double* const samples = malloc(sizeof(double) * (size_t)repeats);
  if (in == NULL || out == NULL || samples == NULL || factor < 2) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < to / sizeof(float); ++i) in[i] = out[i] = (float)((i * 2654435761u + (unsigned)rank) % 65521) / 65521.0f;

  if (rank == 0) printf("{\"bench\": \"collective_peer\", \"peer\": \"Open MPI\", \"ranks\": %d, \"cases\": [", ranks);
  const char* separator = "";
  for (int collective = 0; collective < 5; ++collective)
    for (size_t bytes = from; bytes <= to; bytes *= factor) {
      const size_t pairs = to / bytes < kPairs ? to / bytes : kPairs;
      const int calls = bytes <= (256u << 10) ? 200 : 1;
      for (int sample = -1; sample < repeats; ++sample) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < calls; ++i) {
          const size_t offset = (size_t)i % pairs * (bytes / sizeof(float));
          call(collective, in + offset, out + offset, (int)(bytes / sizeof(float)), ranks);
        }
        if (sample >= 0) samples[sample] = (MPI_Wtime() - begin) / calls;
      }
      double mine = median(samples, repeats), slowest;
      MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0)
        printf("%s\n  {\"collective\": \"%s\", \"bytes\": %zu, \"seconds\": %.9f}", separator, kNames[collective], bytes, slowest);
      separator = ",";
    }
  if (rank == 0) printf("\n]}\n");
  free(in), free(out), free(samples);
  MPI_Finalize();
  return 0;
}
