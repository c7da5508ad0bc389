/* The peer of `octet bench allreduce`: MPI_Allreduce of float32 sums, the same
 * sizes and counts. argv: iterations, then payload sizes in bytes. Every result is
 * checked before it is timed. Rank 0 prints: bytes median_ns p99_ns. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rising(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Integers below 2^24, so that the sum is exact in any order. */
static float value(int rank, int i) { return (float)((rank + 1) * (i % 1000)); }

static void check(const float *sum, int n, int ranks, int bytes) {
	for (int i = 0; i < n; i++)
		if (sum[i] != (float)(ranks * (ranks + 1) / 2 * (i % 1000))) {
			fprintf(stderr, "wrong sum at element %d of %d bytes\n", i, bytes);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

int main(int argc, char **argv) {
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int most = argc > 1 ? atoi(argv[1]) : 200;
	double *took = malloc(sizeof(double) * most);
	for (int a = 2; a < argc; a++) {
		int bytes = atoi(argv[a]), n = bytes / 4;
		int iterations = bytes > 100000 ? (most + 3) / 4 : most;
		float *in = malloc(bytes), *out = malloc(bytes);
		for (int i = 0; i < n; i++)
			in[i] = value(rank, i);
		for (int i = 0; i < 10; i++) {
			MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			check(out, n, ranks, bytes);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < iterations; i++) {
			double begin = MPI_Wtime();
			MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			took[i] = MPI_Wtime() - begin;
		}
		qsort(took, iterations, sizeof(double), rising);
		if (rank == 0)
			printf("%d %.0f %.0f\n", bytes, took[iterations / 2] * 1e9, took[iterations * 99 / 100] * 1e9);
		free(in);
		free(out);
	}
	MPI_Finalize();
	return 0;
}
