// A library that takes the program's signals for its own when it is loaded, and
// again when it is told to.
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

// SIGURG may come while this is there: Go sends it to its own threads.
static void handler(int sig) {
	if (sig != SIGURG) _exit(100 + sig);
}
static char stack[1 << 16] __attribute__((aligned(64)));

static void take(int sig, void (*h)(int)) {
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = h; // without SA_ONSTACK
	sigaction(sig, &a, 0);
}

void take_signals(void) {
	take(SIGSEGV, handler);
	take(SIGURG, handler);
	take(SIGTSTP, handler); // Go leaves it to the system
	take(SIGPIPE, SIG_IGN);
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigprocmask(SIG_BLOCK, &s, 0);
	stack_t t = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&t, 0);
}

#ifdef WHEN_LOADED
__attribute__((constructor)) static void init(void) { take_signals(); }
#endif
