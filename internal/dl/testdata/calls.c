// What the tests call. The functions of 0 to 15 arguments are added by the test.
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

int32_t minus_two(void) { return -2; }
uint64_t all_bits(void) { return 0xfedcba9876543210; }
_Bool is_odd(uint64_t x) { return x & 1; }
uint64_t narrow(int32_t a, uint8_t b) { return (uint64_t)((int64_t)a * b); }

uint64_t echo(uint64_t x) {
	sched_yield();
	return x;
}

void store(uint64_t *p, uint64_t x) { *p = x; }

// The same through a pointer in memory.
struct request {
	uint64_t *p;
	uint64_t x;
};
void store_request(struct request *r) { *r->p = r->x; }

// Waits until *go is not 0, then reads.
uint64_t load_late(volatile uint64_t *p, volatile uint32_t *waiting, volatile uint32_t *go) {
	*waiting = 1;
	while (!*go)
		sched_yield();
	return *p;
}

uint64_t thread_id(void) { return syscall(SYS_gettid); }
