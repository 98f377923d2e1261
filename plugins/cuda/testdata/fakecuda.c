// A stand-in for libcuda.so.1, for tests of this package only: it is built when
// they run, and never installed. It is stricter than the driver:
//
//   - nothing queued runs before somebody synchronizes, or has asked often enough;
//   - a copy to the device looks whether its source is still what it was when the
//     copy was queued, and one from the device spoils its destination until it runs;
//   - memory is full of rubbish when it is new, and has an address that no host
//     access survives; it is never given out twice;
//   - registered memory has another address for work than for the host, and must
//     be there until it is unregistered;
//   - what nobody may do (work outside an allocation or of another context, freeing
//     what queued work uses, leaving something in a context) ends the process with
//     a message.
//
// fakecuda_script, or the environment variable FAKECUDA when it is loaded, takes
// items with ';' between them:
//
//   fail NAME N CODE     the N-th call of NAME from now on fails, once
//   always NAME CODE     every call of NAME fails
//   every K CODE         every K-th call of all fails
//   sticky NAME N CODE   the N-th call of NAME breaks its context for good
//   peer 1               the devices reach each other; 2: with a wrong byte; 3: only twice
//   attr A V, total BYTES, devices N, version V, pinned BYTES, late N, signals 1
//   clear                none of these any more
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
};

enum { DEVICES = 2, ATTRIBUTES = 200, NAMES = 64 };

struct context {
	int device, alive, broken; // broken: with which result
	size_t used;
	int streams, events, peers; // peers: bit i for access to device i
	int peer_copies;
};

enum { DEVICE, MANAGED, PINNED, REGISTERED }; // REGISTERED: the user's own, whose addr is the one for work

struct memory {
	struct memory *next;
	struct context *ctx;
	uint64_t addr;
	size_t size;
	unsigned char *bytes;
	int kind, pending; // pending: queued work that uses it
};

enum { HTOD, DTOH, DTOD, PEER, SET32, RECORD, WAIT, KERNEL, GATE };

struct op {
	struct op *next;
	int kind;
	struct memory *dst, *src;
	size_t to, from, n;
	unsigned char *host;
	uint64_t sum;
	uint32_t word;
	struct stream *other; // WAIT: for its op number
	uint64_t number;
};

struct stream {
	struct context *ctx;
	struct op *head, **tail;
	uint64_t issued, done;
	int alive;
};

struct event {
	struct context *ctx;
	struct stream *stream; // on which it was recorded
	uint64_t number;       // of that op
	int asked, alive;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static __thread struct context *current;

static int inited, gate_closed;
static struct { struct context *ctx; int retained; } devices[DEVICES];
static struct memory *memories;
static uint64_t next_addr = 0x100000000000;
static size_t pinned_used;

static struct {
	int attr[ATTRIBUTES];
	size_t total, pinned;
	int devices, version, late, signals, peer;
	int every, every_code;
	struct rule { char name[NAMES]; long n; int code, sticky, always; } rule[16];
	int rules;
} script;
static long calls; // since the last script
static struct { char name[NAMES]; long n; } counts[NAMES];

static void die(const char *format, ...) {
	va_list a;
	va_start(a, format);
	fprintf(stderr, "fakecuda: ");
	vfprintf(stderr, format, a);
	fprintf(stderr, "\n");
	abort();
}

static void clear(void) {
	memset(&script, 0, sizeof script);
	script.total = 1 << 30;
	script.pinned = 1 << 30;
	script.devices = DEVICES;
	script.version = 12040;
	script.late = 2;
	script.attr[41] = script.attr[83] = script.attr[89] = script.attr[99] = script.attr[113] = script.attr[115] = 1;
	script.attr[75] = 8;
	script.attr[76] = 6;
}

static void item(char *text) {
	char *save, *word[4] = {"", "", "", ""};
	int n = 0;
	for (char *w = strtok_r(text, " ", &save); w && n < 4; w = strtok_r(0, " ", &save))
		word[n++] = w;
	long one = atol(word[1]), two = atol(word[2]), three = atol(word[3]);
	if (!n) return;
	if (!strcmp(word[0], "clear")) clear();
	else if (!strcmp(word[0], "every")) script.every = one, script.every_code = two;
	else if (!strcmp(word[0], "attr")) script.attr[one] = two;
	else if (!strcmp(word[0], "total")) script.total = one;
	else if (!strcmp(word[0], "pinned")) script.pinned = one;
	else if (!strcmp(word[0], "devices")) script.devices = one;
	else if (!strcmp(word[0], "version")) script.version = one;
	else if (!strcmp(word[0], "peer")) script.peer = one;
	else if (!strcmp(word[0], "late")) script.late = one;
	else if (!strcmp(word[0], "signals")) script.signals = one;
	else {
		if (script.rules == 16) die("too many rules");
		struct rule *r = &script.rule[script.rules++];
		snprintf(r->name, sizeof r->name, "%s", word[1]);
		r->n = two, r->code = three;
		if (!strcmp(word[0], "always")) r->always = 1, r->code = two;
		else if (!strcmp(word[0], "sticky")) r->sticky = 1;
		else if (strcmp(word[0], "fail")) die("no such item: %s", word[0]);
	}
}

void fakecuda_script(const char *text) {
	pthread_mutex_lock(&lock);
	char *copy = strdup(text), *save;
	for (char *w = strtok_r(copy, ";", &save); w; w = strtok_r(0, ";", &save)) item(w);
	free(copy);
	calls = 0;
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void load(void) {
	clear();
	const char *text = getenv("FAKECUDA");
	if (text) fakecuda_script(text);
}

// fakecuda_count tells how often a function was called.
long fakecuda_count(const char *name) {
	long n = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < NAMES; i++)
		if (!strcmp(counts[i].name, name)) n = counts[i].n;
	pthread_mutex_unlock(&lock);
	return n;
}

// fakecuda_live counts what was not given back.
long fakecuda_live(void) {
	long n = 0;
	pthread_mutex_lock(&lock);
	for (struct memory *m = memories; m; m = m->next) n++;
	for (int i = 0; i < DEVICES; i++)
		if (devices[i].ctx) n += devices[i].retained + devices[i].ctx->streams + devices[i].ctx->events;
	pthread_mutex_unlock(&lock);
	return n;
}

// fakecuda_is tells what an address is: 0 the device's, 1 managed, 2 page-locked,
// 3 registered (of the host, or its address for work), -1 none of these.
long fakecuda_is(uint64_t addr) {
	long kind = -1;
	pthread_mutex_lock(&lock);
	for (struct memory *m = memories; m; m = m->next)
		if (addr - m->addr < m->size || (m->kind == REGISTERED && addr - (uintptr_t)m->bytes < m->size)) kind = m->kind;
	pthread_mutex_unlock(&lock);
	return kind;
}

// broken drops all that is on its way in a context.
static void drop(struct stream *s) {
	for (struct op *o = s->head; o; o = o->next) {
		if (o->dst) o->dst->pending--;
		if (o->src) o->src->pending--;
	}
	s->head = 0, s->tail = &s->head, s->done = s->issued;
}
static struct stream *streams[4096];
static int stream_count;

static void shatter(struct context *c, int code) {
	c->broken = code;
	for (int i = 0; i < stream_count; i++)
		if (streams[i]->ctx == c) drop(streams[i]);
	pthread_cond_broadcast(&opened);
}

enum { ANY, READY, INSIDE }; // what a function needs: nothing, cuInit, a current context

// enter begins a function, with the lock held. Where it returns no success the
// function ends.
static CUresult enter(const char *name, int needs) {
	pthread_mutex_lock(&lock);
	for (int i = 0; i < NAMES; i++) {
		if (!counts[i].name[0]) strcpy(counts[i].name, name);
		if (!strcmp(counts[i].name, name)) {
			counts[i].n++;
			break;
		}
	}
	CUresult r = SUCCESS;
	calls++;
	for (int i = 0; i < script.rules && !r; i++) {
		struct rule *u = &script.rule[i];
		if (strcmp(u->name, name)) continue;
		if (u->always || (u->n > 0 && --u->n == 0)) {
			if (u->sticky && current) shatter(current, u->code);
			r = u->code;
		}
	}
	if (!r && script.every && calls % script.every == 0) r = script.every_code;
	if (!r && needs >= READY && !inited) r = NOT_INITIALIZED;
	if (!r && needs == INSIDE) {
		if (!current || !current->alive) r = INVALID_CONTEXT;
		else r = current->broken;
	}
	if (r) pthread_mutex_unlock(&lock);
	return r;
}

static CUresult leave(CUresult r) {
	pthread_mutex_unlock(&lock);
	return r;
}

#define BEGIN(needs) \
	do { \
		CUresult r_ = enter(__func__, needs); \
		if (r_) return r_; \
	} while (0)

// SIGURG may come while cuInit runs: Go sends it to its own threads.
static volatile long urgent;
static void handler(int sig) {
	if (sig != SIGURG) _exit(100 + sig);
	urgent++;
}

// fakecuda_urgent tells how many SIGURG came to the handler of cuInit.
long fakecuda_urgent(void) { return urgent; }

CUresult cuInit(unsigned flags) {
	BEGIN(ANY);
	if (flags) die("cuInit with flags %u", flags);
	inited = 1;
	if (script.signals) {
		struct sigaction a;
		memset(&a, 0, sizeof a);
		a.sa_handler = handler; // without SA_ONSTACK
		sigaction(SIGSEGV, &a, 0);
		sigaction(SIGINT, &a, 0);
		sigaction(SIGURG, &a, 0);
	}
	return leave(SUCCESS);
}

CUresult cuDriverGetVersion(int *v) {
	BEGIN(ANY);
	*v = script.version;
	return leave(SUCCESS);
}

CUresult cuGetErrorName(CUresult code, const char **name) {
	BEGIN(ANY);
	*name = code == 12345 ? "CUDA_ERROR_OF_TOMORROW" : 0;
	return leave(*name ? SUCCESS : INVALID_VALUE);
}

CUresult cuDeviceGetCount(int *n) {
	BEGIN(READY);
	*n = script.devices;
	return leave(SUCCESS);
}

// A CUdevice is its ordinal and 16 more, so that nobody takes one for the other.
static int ordinal(CUdevice d) {
	if (d < 16 || d >= 16 + script.devices) die("no CUdevice: %d", d);
	return d - 16;
}

CUresult cuDeviceGet(CUdevice *d, int i) {
	BEGIN(READY);
	if (i < 0 || i >= script.devices) return leave(INVALID_DEVICE);
	*d = i + 16;
	return leave(SUCCESS);
}

CUresult cuDeviceGetName(char *name, int n, CUdevice d) {
	BEGIN(READY);
	snprintf(name, n, "Stand-in %d", ordinal(d));
	return leave(SUCCESS);
}

CUresult cuDeviceGetUuid_v2(unsigned char *id, CUdevice d) {
	BEGIN(READY);
	for (int i = 0; i < 16; i++) id[i] = 16 * ordinal(d) + i;
	return leave(SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) {
	BEGIN(READY);
	ordinal(d);
	*n = script.total;
	return leave(SUCCESS);
}

CUresult cuDeviceGetAttribute(int *v, int a, CUdevice d) {
	BEGIN(READY);
	ordinal(d);
	if (a < 1 || a >= ATTRIBUTES) return leave(INVALID_VALUE);
	*v = script.attr[a];
	return leave(SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	BEGIN(READY);
	int i = ordinal(d);
	if (!devices[i].ctx) {
		devices[i].ctx = calloc(1, sizeof *devices[i].ctx);
		devices[i].ctx->device = i;
		devices[i].ctx->alive = 1;
	}
	devices[i].retained++;
	*c = devices[i].ctx;
	return leave(SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	BEGIN(READY);
	int i = ordinal(d);
	struct context *c = devices[i].ctx;
	if (!c) return leave(INVALID_CONTEXT);
	if (--devices[i].retained > 0) return leave(SUCCESS);
	for (struct memory **p = &memories; *p;) {
		struct memory *m = *p;
		if (m->ctx != c) {
			p = &m->next;
			continue;
		}
		if (!c->broken) die("%zu bytes at %#lx are left in a context", m->size, (long)m->addr);
		if (m->kind != REGISTERED) munmap(m->bytes, m->size);
		if (m->kind == PINNED || m->kind == REGISTERED) pinned_used -= m->size;
		*p = m->next;
	}
	if (!c->broken && c->streams + c->events) die("%d streams and %d events are left in a context", c->streams, c->events);
	c->alive = 0; // the struct stays, so that late users are found
	devices[i].ctx = 0;
	return leave(SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *c) {
	BEGIN(READY);
	*c = current;
	return leave(SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext c) {
	BEGIN(READY);
	if (c && !c->alive) return leave(INVALID_CONTEXT);
	current = c;
	return leave(SUCCESS);
}

CUresult cuStreamCreate(CUstream *s, unsigned flags) {
	BEGIN(INSIDE);
	if (flags > 1 || stream_count == 4096) die("cuStreamCreate with flags %u", flags);
	*s = calloc(1, sizeof **s);
	(*s)->ctx = current;
	(*s)->tail = &(*s)->head;
	(*s)->alive = 1;
	current->streams++;
	streams[stream_count++] = *s;
	return leave(SUCCESS);
}

// The queue.

static struct stream *check(CUstream s, const char *name) {
	if (!s || !s->alive) die("%s on no stream", name);
	if (s->ctx != current) die("%s on a stream of another context", name);
	return s;
}

static uint64_t sum(const unsigned char *p, size_t n) {
	uint64_t h = 14695981039346656037u;
	for (; n >= 8; p += 8, n -= 8) {
		uint64_t w;
		memcpy(&w, p, 8);
		h = (h ^ w) * 1099511628211u;
	}
	for (; n; p++, n--) h = (h ^ *p) * 1099511628211u;
	return h;
}

static struct op *add(struct stream *s, int kind, size_t n) {
	struct op *o = calloc(1, sizeof *o);
	o->kind = kind, o->n = n;
	*s->tail = o, s->tail = &o->next;
	s->issued++;
	return o;
}

// at finds the allocation that a range is in.
static struct memory *at(const char *name, uint64_t addr, size_t n, size_t *off) {
	for (struct memory *m = memories; m; m = m->next)
		if (addr >= m->addr && addr < m->addr + m->size) {
			if (n > m->size - (addr - m->addr)) die("%s: %zu bytes at %#lx, byte %zu of an allocation of %zu", name, n, (long)addr, (size_t)(addr - m->addr), m->size);
			*off = addr - m->addr;
			return m;
		}
	die("%s: %#lx is in no allocation", name, (long)addr);
	return 0;
}

static struct memory *on_device(const char *name, uint64_t addr, size_t n, size_t *off) {
	struct memory *m = at(name, addr, n, off);
	if (m->kind == PINNED) die("%s: host memory as the device's", name);
	if (m->ctx != current) die("%s: memory of another context", name);
	m->pending++;
	return m;
}

// on_host looks at a host address: page-locked memory is checked, and kept.
static struct memory *on_host(const char *name, const void *p, size_t n) {
	uint64_t addr = (uintptr_t)p;
	if (addr >= 0x100000000000 && addr < next_addr) die("%s: a device's address as the host's", name);
	for (struct memory *m = memories; m; m = m->next) {
		uint64_t host = (uintptr_t)m->bytes;
		if ((m->kind != PINNED && m->kind != REGISTERED) || addr - host >= m->size) continue;
		if (n > m->size - (addr - host)) die("%s: %zu bytes beyond page-locked memory", name, n);
		m->pending++;
		return m;
	}
	return 0;
}

static int run(struct stream *s, uint64_t until);

// execute does an op, or returns 0 where it has to wait.
static int execute(struct op *o) {
	unsigned char *d = o->dst && o->dst->bytes ? o->dst->bytes + o->to : 0, *s = o->src && o->src->bytes ? o->src->bytes + o->from : 0;
	switch (o->kind) {
	case HTOD:
		if (sum(o->host, o->n) != o->sum) die("a source of %zu bytes was written to before they were copied", o->n);
		memcpy(d, o->host, o->n);
		break;
	case DTOH:
		memcpy(o->host, s, o->n);
		break;
	case DTOD:
		memcpy(d, s, o->n);
		break;
	case PEER:
		if (script.peer == 3 && o->dst->ctx->peer_copies++ >= 2) break;
		memcpy(d, s, o->n);
		if (script.peer == 2) d[o->n / 2] ^= 1;
		break;
	case SET32:
		for (size_t i = 0; i < o->n; i += 4) memcpy(d + i, &o->word, 4);
		break;
	case KERNEL:
		for (size_t i = 0; i < o->n; i++) d[i] += o->word;
		break;
	case WAIT:
		return run(o->other, o->number);
	case GATE:
		return !gate_closed;
	}
	return 1;
}

// run does what is queued on s up to an op, and reports whether it got there.
static int run(struct stream *s, uint64_t until) {
	while (s->done < until) {
		struct op *o = s->head;
		if (!execute(o)) return 0;
		if (o->dst) o->dst->pending--;
		if (o->src) o->src->pending--;
		if (!(s->head = o->next)) s->tail = &s->head;
		s->done++;
		free(o);
	}
	return 1;
}

static CUresult wait_for(struct stream *s, uint64_t until) {
	struct context *c = s->ctx;
	while (!c->broken && !run(s, until)) pthread_cond_wait(&opened, &lock);
	return c->broken;
}

CUresult cuStreamDestroy_v2(CUstream s) {
	BEGIN(INSIDE);
	check(s, __func__);
	if (s->head) die("a stream with work was destroyed");
	s->alive = 0;
	s->ctx->streams--;
	return leave(SUCCESS);
}

CUresult cuStreamSynchronize(CUstream s) {
	BEGIN(INSIDE);
	check(s, __func__);
	return leave(wait_for(s, s->issued));
}

CUresult cuEventCreate(CUevent *e, unsigned flags) {
	BEGIN(INSIDE);
	if (flags > 3) die("cuEventCreate with flags %u", flags);
	*e = calloc(1, sizeof **e);
	(*e)->ctx = current;
	(*e)->alive = 1;
	current->events++;
	return leave(SUCCESS);
}

static struct event *check_event(CUevent e, const char *name) {
	if (!e || !e->alive) die("%s on no event", name);
	if (e->ctx != current) die("%s on an event of another context", name);
	return e;
}

CUresult cuEventDestroy_v2(CUevent e) {
	BEGIN(INSIDE);
	check_event(e, __func__);
	e->alive = 0;
	e->ctx->events--;
	return leave(SUCCESS);
}

CUresult cuEventRecord(CUevent e, CUstream s) {
	BEGIN(INSIDE);
	check_event(e, __func__);
	check(s, __func__);
	add(s, RECORD, 0);
	e->stream = s, e->number = s->issued, e->asked = 0;
	return leave(SUCCESS);
}

CUresult cuEventQuery(CUevent e) {
	BEGIN(INSIDE);
	check_event(e, __func__);
	if (!e->stream || e->stream->done >= e->number) return leave(SUCCESS);
	if (e->asked++ < script.late) return leave(NOT_READY);
	return leave(run(e->stream, e->number) ? SUCCESS : NOT_READY);
}

CUresult cuEventSynchronize(CUevent e) {
	BEGIN(INSIDE);
	check_event(e, __func__);
	if (!e->stream) return leave(SUCCESS);
	return leave(wait_for(e->stream, e->number));
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
	BEGIN(INSIDE);
	check(s, __func__);
	if (flags || !e || !e->alive) return leave(INVALID_HANDLE);
	if (e->ctx->broken) return leave(e->ctx->broken);
	if (!e->stream) return leave(SUCCESS);
	struct op *o = add(s, WAIT, 0);
	o->other = e->stream, o->number = e->number;
	return leave(SUCCESS);
}

// Memory.

static CUresult allocate(uint64_t *addr, size_t n, int kind) {
	if (n == 0) return INVALID_VALUE;
	if (kind == PINNED ? n > script.pinned - pinned_used : n > script.total - current->used) return OUT_OF_MEMORY;
	unsigned char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return OUT_OF_MEMORY;
	memset(p, 0xA5, n);
	struct memory *m = calloc(1, sizeof *m);
	m->ctx = current, m->size = n, m->bytes = p, m->kind = kind;
	m->addr = (uintptr_t)p;
	if (kind == DEVICE) {
		m->addr = next_addr;
		next_addr += (n + (1 << 21)) & ~(uint64_t)511;
	}
	if (kind == PINNED) pinned_used += n;
	else current->used += n;
	m->next = memories, memories = m;
	*addr = m->addr;
	return SUCCESS;
}

static CUresult release(const char *name, uint64_t addr, int pinned) {
	for (struct memory **p = &memories; *p; p = &(*p)->next) {
		struct memory *m = *p;
		if (m->addr != addr) continue;
		if ((m->kind == PINNED) != pinned || m->kind == REGISTERED) die("%s of another kind of memory", name);
		if (m->ctx != current) die("%s of another context's memory", name);
		if (m->pending) die("%s while work on it is queued", name);
		if (pinned) pinned_used -= m->size;
		else current->used -= m->size;
		munmap(m->bytes, m->size);
		*p = m->next;
		free(m);
		return SUCCESS;
	}
	die("%s: %#lx is no allocation", name, (long)addr);
	return INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	BEGIN(INSIDE);
	uint64_t addr = 0;
	CUresult r = allocate(&addr, n, DEVICE);
	if (!r) *p = addr;
	return leave(r);
}

// The one of CUDA 3, with an unsigned int: nobody should call it.
CUresult cuMemAlloc(unsigned *p, unsigned n) {
	die("cuMemAlloc is not cuMemAlloc_v2");
	return INVALID_VALUE;
}

CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) {
	BEGIN(INSIDE);
	if (flags != 1) die("cuMemAllocManaged with flags %u", flags);
	if (!script.attr[18]) die("managed memory on a device with memory of its own");
	uint64_t addr = 0;
	CUresult r = allocate(&addr, n, MANAGED);
	if (!r) *p = addr;
	return leave(r);
}

CUresult cuMemFree_v2(CUdeviceptr p) {
	BEGIN(INSIDE);
	return leave(release(__func__, p, 0));
}

CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	BEGIN(INSIDE);
	uint64_t addr = 0;
	CUresult r = allocate(&addr, n, PINNED);
	if (!r) *p = (void *)(uintptr_t)addr;
	return leave(r);
}

CUresult cuMemFreeHost(void *p) {
	BEGIN(INSIDE);
	return leave(release(__func__, (uintptr_t)p, 1));
}

// registered finds the registration that an address of the host is in.
static struct memory **registered(const void *p) {
	for (struct memory **m = &memories; *m; m = &(*m)->next)
		if ((*m)->kind == REGISTERED && (uintptr_t)p - (uintptr_t)(*m)->bytes < (*m)->size) return m;
	return 0;
}

// there reports whether the byte at p can be read, and writable whether it can be
// written, too: the system looks, so that nothing faults.
static int there(void *p, int *writable) {
	static int ends[2];
	if (!ends[1] && pipe(ends)) die("no pipe");
	if (write(ends[1], p, 1) != 1) return 0;
	char byte;
	int w = writable && read(ends[0], p, 1) == 1;
	if (!w && read(ends[0], &byte, 1) != 1) die("no byte in the pipe");
	if (writable) *writable = w;
	return 1;
}

CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
	BEGIN(INSIDE);
	if (!script.attr[99]) die("%s where the device does not support it", __func__);
	if ((flags & 3) != 3 || flags & ~11) die("%s with flags %u", __func__, flags);
	if (flags & 8 && !script.attr[113]) die("%s of memory to be read only, where the device does not support it", __func__);
	size_t page = sysconf(_SC_PAGESIZE);
	if (n == 0 || (uintptr_t)p % page || n % page) die("%s of %zu bytes at %p", __func__, n, p);
	for (struct memory *m = memories; m; m = m->next) {
		uintptr_t host = (uintptr_t)m->bytes;
		if (m->kind == REGISTERED && (uintptr_t)p < host + m->size && host < (uintptr_t)p + n) return leave(712);
	}
	int writable;
	if (!there(p, &writable)) die("%s of no memory", __func__);
	if (!writable && !(flags & 8)) return leave(INVALID_VALUE);
	if (n > script.pinned - pinned_used) return leave(OUT_OF_MEMORY);
	pinned_used += n;
	struct memory *m = calloc(1, sizeof *m);
	m->ctx = current, m->size = n, m->bytes = p, m->kind = REGISTERED;
	m->addr = next_addr;
	next_addr += (n + (1 << 21)) & ~(uint64_t)511;
	m->next = memories, memories = m;
	return leave(SUCCESS);
}

CUresult cuMemHostUnregister(void *p) {
	BEGIN(INSIDE);
	struct memory **at = registered(p);
	if (!at) return leave(713);
	struct memory *m = *at;
	if (p != m->bytes) return leave(INVALID_VALUE);
	if (m->ctx != current) die("%s of memory that another context registered", __func__);
	if (m->pending) die("%s while work on it is queued", __func__);
	if (!there(p, 0) || !there(p + m->size - 1, 0)) die("%s of memory that has gone before", __func__);
	pinned_used -= m->size;
	*at = m->next;
	free(m);
	return leave(SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned flags) {
	BEGIN(INSIDE);
	struct memory **at = registered(p);
	if (!at || flags) return leave(INVALID_VALUE);
	*d = (*at)->addr + ((uintptr_t)p - (uintptr_t)(*at)->bytes);
	return leave(SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	BEGIN(INSIDE);
	*total = script.total;
	*free = script.total - current->used;
	return leave(SUCCESS);
}

// Work.

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *h, size_t n, CUstream s) {
	BEGIN(INSIDE);
	struct op *o = add(check(s, __func__), HTOD, n);
	o->dst = on_device(__func__, d, n, &o->to);
	o->src = on_host(__func__, h, n);
	o->host = (unsigned char *)h;
	o->sum = sum(h, n);
	return leave(SUCCESS);
}

CUresult cuMemcpyDtoHAsync_v2(void *h, CUdeviceptr d, size_t n, CUstream s) {
	BEGIN(INSIDE);
	struct op *o = add(check(s, __func__), DTOH, n);
	o->src = on_device(__func__, d, n, &o->from);
	o->dst = on_host(__func__, h, n);
	o->host = h;
	memset(h, 0xDB, n);
	return leave(SUCCESS);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr p, size_t n, CUstream s) {
	BEGIN(INSIDE);
	if (d < p + n && p < d + n) die("%s: %zu bytes that overlap", __func__, n);
	struct op *o = add(check(s, __func__), DTOD, n);
	o->dst = on_device(__func__, d, n, &o->to);
	o->src = on_device(__func__, p, n, &o->from);
	return leave(SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
	BEGIN(READY);
	*can = script.peer && ordinal(a) != ordinal(b);
	return leave(SUCCESS);
}

CUresult cuCtxEnablePeerAccess(CUcontext c, unsigned flags) {
	BEGIN(INSIDE);
	if (!c || !c->alive || c == current || flags) return leave(INVALID_CONTEXT);
	if (c->broken) return leave(c->broken);
	if (!script.peer) die("%s where the devices do not reach each other", __func__);
	if (current->peers >> c->device & 1) return leave(704);
	current->peers |= 1 << c->device;
	return leave(SUCCESS);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr p, CUcontext pc, size_t n, CUstream s) {
	BEGIN(INSIDE);
	if (dc != current || !pc->alive || !(dc->peers >> pc->device & 1)) die("%s without access", __func__);
	if (pc->broken) return leave(pc->broken);
	struct op *o = add(check(s, __func__), PEER, n);
	o->dst = on_device(__func__, d, n, &o->to);
	o->src = at(__func__, p, n, &o->from);
	if (o->src->ctx != pc || o->src->kind == PINNED) die("%s from another context", __func__);
	for (int i = 0; i < stream_count; i++)
		for (struct op *q = streams[i]->head; q; q = q->next)
			if (q->dst == o->src && q->to < o->from + n && o->from < q->to + q->n) die("%s of bytes that queued work writes", __func__);
	o->src->pending++;
	return leave(SUCCESS);
}

CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) {
	BEGIN(INSIDE);
	if (d % 4) die("%s at %#lx", __func__, (long)d);
	struct op *o = add(check(s, __func__), SET32, 4 * n);
	o->dst = on_device(__func__, d, 4 * n, &o->to);
	o->word = v;
	return leave(SUCCESS);
}

// A user's kernel. One is known, add(p, n, v), which adds v to n bytes at p; its
// text is not looked at any further.

CUresult cuModuleLoadData(void **module, const char *image) {
	BEGIN(INSIDE);
	if (!strstr(image, ".version") || !strstr(image, ".entry add(")) return leave(INVALID_IMAGE);
	*module = current;
	return leave(SUCCESS);
}

CUresult cuModuleUnload(void *module) {
	BEGIN(INSIDE);
	return leave(module == current ? SUCCESS : INVALID_HANDLE);
}

CUresult cuModuleGetFunction(void **f, void *module, const char *name) {
	BEGIN(INSIDE);
	if (module != current || strcmp(name, "add")) return leave(NOT_FOUND);
	*f = module;
	return leave(SUCCESS);
}

CUresult cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra) {
	BEGIN(INSIDE);
	if (f != current) die("%s: no function of the current context", __func__);
	uint32_t n = *(uint32_t *)params[1];
	if ((uint64_t)gx * bx < n || gy * gz * by * bz != 1 || shared || extra) die("%s: %u blocks of %u threads for %u bytes", __func__, gx, bx, n);
	struct op *o = add(check(s, __func__), KERNEL, n);
	o->dst = on_device(__func__, *(uint64_t *)params[0], n, &o->to);
	o->word = *(uint32_t *)params[2];
	return leave(SUCCESS);
}

// fakecuda_gate closes the gates that are queued, and opens them again.
void fakecuda_gate(int closed) {
	pthread_mutex_lock(&lock);
	gate_closed = closed;
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&lock);
}

// fakecuda_hold queues one.
CUresult fakecuda_hold(CUstream s) {
	BEGIN(INSIDE);
	add(check(s, __func__), GATE, 0);
	return leave(SUCCESS);
}
