// The work of fuel's benchmarks as C does it, printed in Go's format under the same names with impl=c.
//
//	peer MILLISECONDS GOMAXPROCS
//
// measures each for about that time, or once for 0. GOMAXPROCS is what the names of Go's end in; nothing here runs on more than one core.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

// Sizes in bytes: of bench_test.go and of cpu/bench_test.go.
static const size_t sizes[] = {64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
static const size_t kernel_sizes[] = {16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20,
	8 << 20, 12 << 20, 16 << 20, 24 << 20, 64 << 20, 256 << 20};

enum { largest = 256 << 20, line = 64 };

#define EACH(i, a) (size_t i = 0; i < sizeof(a) / sizeof *(a); i++)

static double for_ns; // how long to measure
static char procs[16];
static char *dst, *src; // largest + line bytes each, all written to

// used makes the compiler believe that the bytes at p are read here.
static inline void used(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static void *must(void *p)
{
	if (p == NULL || p == MAP_FAILED) {
		perror("peer");
		exit(1);
	}
	return p;
}

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void alloc_touch_close(size_t n, size_t off)
{
	char *p = must(calloc(n, 1));
	(void)off;
	for (size_t i = 0; i < n; i += 4096)
		p[i] = 1;
	used(p);
	free(p);
}

static void from_slice_close(size_t n, size_t off)
{
	char *p = must(malloc(n));
	(void)off;
	memcpy(p, src, n);
	used(p);
	free(p);
}

static void zero(size_t n, size_t off)
{
	memset(dst + off, 0, n);
	used(dst);
}

static void copy(size_t n, size_t off)
{
	memcpy(dst + off, src, n);
	used(dst);
}

// bench runs op once, then about as often as the time asks for, as testing.B does, and prints what one run took.
static void bench(const char *name, const char *more, void (*volatile op)(size_t, size_t), size_t n, size_t off)
{
	long long count = 1;
	double took;
	op(n, off);
	for (;;) {
		double begin = now_ns();
		for (long long i = 0; i < count; i++)
			op(n, off);
		took = now_ns() - begin;
		if (took >= for_ns)
			break;
		double next = took > 0 ? 1.2 * for_ns / took * count : 100.0 * count;
		count = next > 100.0 * count ? 100 * count : next > count ? (long long)next + 1 : count + 1;
	}
	printf("Benchmark%s/impl=c/size=%zu%s%s\t%lld\t%.4g ns/op\t%.2f MB/s\n", name, n, more, procs, count, took / count, n * 1e3 / (took / count));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: peer MILLISECONDS GOMAXPROCS\n");
		return 2;
	}
	for_ns = atof(argv[1]) * 1e6;
	if (atoi(argv[2]) > 1)
		snprintf(procs, sizeof procs, "-%d", atoi(argv[2]));
	for (int i = 0; i < 2; i++) {
		char *p = must(mmap(NULL, largest + line, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		memset(p, 1, largest + line);
		*(i ? &src : &dst) = p;
	}
	puts("pkg: github.com/go-fuel/fuel");
	for EACH(i, sizes)
		bench("AllocTouchClose", "", alloc_touch_close, sizes[i], 0);
	for EACH(i, sizes)
		bench("FromSliceClose", "", from_slice_close, sizes[i], 0);
	puts("pkg: github.com/go-fuel/fuel/cpu");
	for EACH(i, kernel_sizes)
		for (size_t off = 0; off < 2 && (off == 0 || kernel_sizes[i] >= 4 << 10); off++)
			bench("Zero", off ? "/off=1" : "/off=0", zero, kernel_sizes[i], off);
	for EACH(i, kernel_sizes)
		for (size_t off = 0; off < 2 && (off == 0 || kernel_sizes[i] >= 4 << 10); off++)
			bench("Copy", off ? "/off=1" : "/off=0", copy, kernel_sizes[i], off);
	return 0;
}
