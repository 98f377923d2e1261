// A Metal for tests, on Linux: Objective-C for GCC's runtime, which has neither
// Foundation nor ARC. It keeps memory on the host, runs work on a thread of its own
// and writes down every rule that is broken. It is stricter than Metal:
//
//   - every message needs an autorelease pool on the thread that sends it;
//   - command buffers that wait for nothing run newest first, hazards or not;
//   - fresh memory holds 0xDB;
//   - released objects stay, so that a message to one is seen.
//
// Errors come by script: see fake_nil and fake_fail.
#include <objc/objc.h>
#include <objc/runtime.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long NSUInteger;
typedef struct _NSRange {
	NSUInteger location, length;
} NSRange;

enum { Device, Queue, CommandBuffer, Blit, Buffer, Event, Array, String, Error, Kinds };
static const char *const classes[Kinds] = { "FDevice", "FQueue", "FCommandBuffer", "FBlit", "FBuffer", "FEvent", "FArray", "FString", "FError" };

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; // of all that follows
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long live[Kinds], pools;
static char broken[1 << 16];
static size_t broken_length;

static struct {
	long devices;
	long none; // no default device
	long unified;
	unsigned long max_buffer, working_set, heap;
	unsigned long allocated;
	unsigned delay, lag; // microseconds, before work and between its event and its status
	char nil_selector[128];
	long nil_after;
	long fail_after, fail_code;
} script;

static void breaks(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	if (broken_length < sizeof broken - 512) {
		broken_length += vsnprintf(broken + broken_length, 500, format, args);
		broken[broken_length++] = '\n';
		broken[broken_length] = 0;
	}
	va_end(args);
}

// Every object begins like this.
__attribute__((objc_root_class))
@interface FObject {
@public
	Class isa;
	long refs;
	int kind;
}
- (id)retain;
- (void)release;
@end

struct pool {
	pthread_t thread;
	struct pool *below;
	FObject **list;
	size_t n;
	int gone;
};
static __thread struct pool *top;

// innermost is this thread's pool, if it has one.
static struct pool *innermost(void)
{
	while (top && top->gone)
		top = top->below;
	return top;
}

@interface FString : FObject {
@public
	char text[160];
}
- (const char *)UTF8String;
@end

@interface FError : FObject {
@public
	long number;
}
- (long)code;
- (id)localizedDescription;
@end

@interface FArray : FObject {
@public
	FObject *list[8];
	NSUInteger n;
}
- (NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)i;
@end

@interface FBuffer : FObject {
@public
	unsigned char *bytes;
	NSUInteger n, size;
	BOOL private, borrowed;
}
- (void *)contents;
@end

@interface FEvent : FObject {
@public
	uint64_t value;
	BOOL by_host;
}
- (uint64_t)signaledValue;
- (void)setSignaledValue:(uint64_t)v;
- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms;
@end

@interface FQueue : FObject {
@public
	NSUInteger most, outstanding;
}
- (id)commandBuffer;
@end

enum { Copy, Fill, Wait, Signal };
struct step {
	int kind;
	FObject *a, *b; // destination or event, source
	NSUInteger to, from, n;
	uint64_t value;
};

@interface FCommandBuffer : FObject {
@public
	FQueue *queue;
	FObject *encoder; // that is open
	struct step *steps;
	size_t n, next;
	NSUInteger state;
	long fails;
	BOOL running;
	FCommandBuffer *older, *newer;
}
- (id)blitCommandEncoder;
- (void)encodeWaitForEvent:(id)e value:(uint64_t)v;
- (void)encodeSignalEvent:(id)e value:(uint64_t)v;
- (void)commit;
- (void)waitUntilCompleted;
- (NSUInteger)status;
- (id)error;
@end

@interface FBlit : FObject {
@public
	FCommandBuffer *buffer;
	BOOL ended;
}
- (void)copyFromBuffer:(id)src sourceOffset:(NSUInteger)from toBuffer:(id)dst destinationOffset:(NSUInteger)to size:(NSUInteger)n;
- (void)fillBuffer:(id)dst range:(NSRange)r value:(uint8_t)v;
- (void)endEncoding;
@end

@interface FDevice : FObject {
@public
	NSUInteger index;
}
- (id)name;
- (uint64_t)registryID;
- (BOOL)hasUnifiedMemory;
- (uint64_t)recommendedMaxWorkingSetSize;
- (NSUInteger)maxBufferLength;
- (NSUInteger)currentAllocatedSize;
- (id)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n;
- (id)newSharedEvent;
- (id)newBufferWithLength:(NSUInteger)n options:(NSUInteger)o;
- (id)newBufferWithBytesNoCopy:(void *)p length:(NSUInteger)n options:(NSUInteger)o deallocator:(id)d;
@end

// Ownership. big is held.

static id make(int kind)
{
	FObject *o = class_createInstance(objc_getClass(classes[kind]), 0);
	o->kind = kind;
	o->refs = 1;
	live[kind]++;
	return o;
}

static void drop(FObject *o);

static void dealloc(FObject *o)
{
	live[o->kind]--;
	switch (o->kind) {
	case Array:
		for (NSUInteger i = 0; i < ((FArray *)o)->n; i++)
			drop(((FArray *)o)->list[i]);
		break;
	case Buffer: {
		FBuffer *b = (FBuffer *)o;
		if (!b->borrowed) {
			munmap(b->bytes, b->size);
			script.allocated -= b->size;
		}
		break;
	}
	case Blit:
		if (!((FBlit *)o)->ended)
			breaks("an encoder is released without endEncoding");
		((FBlit *)o)->buffer->encoder = NULL;
		drop(((FBlit *)o)->buffer);
		break;
	case CommandBuffer: {
		FCommandBuffer *c = (FCommandBuffer *)o;
		for (size_t i = 0; i < c->n; i++) {
			drop(c->steps[i].a);
			drop(c->steps[i].b);
		}
		free(c->steps);
		if (c->state < 4)
			c->queue->outstanding--;
		drop(c->queue);
		break;
	}
	}
}

static void drop(FObject *o)
{
	if (o && --o->refs == 0)
		dealloc(o);
}

static id hold(id o)
{
	if (o)
		((FObject *)o)->refs++;
	return o;
}

static id autorelease(FObject *o, SEL s)
{
	if (!o)
		return o;
	if (!innermost()) {
		breaks("%s leaks: there is no autorelease pool on this thread", sel_getName(s));
		return o;
	}
	top->list = realloc(top->list, (top->n + 1) * sizeof *top->list);
	top->list[top->n++] = o;
	return o;
}

// enter begins every message: it locks, and looks at what all must keep to.
static void enter(FObject *o, SEL s)
{
	pthread_mutex_lock(&big);
	if (!innermost())
		breaks("%s is sent without an autorelease pool on this thread", sel_getName(s));
	if (o->refs <= 0)
		breaks("%s is sent to a released %s", sel_getName(s), classes[o->kind]);
}

static void leave(void) { pthread_mutex_unlock(&big); }

// is_nil reports whether the script wants nil here.
static BOOL is_nil(SEL s)
{
	if (strcmp(sel_getName(s), script.nil_selector) || script.nil_after == 0)
		return NO;
	return script.nil_after == 1 || --script.nil_after == 0;
}

static id string(const char *text)
{
	FString *s = make(String);
	snprintf(s->text, sizeof s->text, "%s", text);
	return s;
}

@implementation FObject
- (id)retain
{
	enter(self, _cmd);
	if (refs > 0)
		refs++;
	leave();
	return self;
}
- (void)release
{
	enter(self, _cmd);
	if (refs > 0)
		drop(self);
	leave();
}
@end

@implementation FString
- (const char *)UTF8String
{
	enter(self, _cmd);
	leave();
	return text;
}
@end

@implementation FError
- (long)code
{
	enter(self, _cmd);
	leave();
	return number;
}
- (id)localizedDescription
{
	char s[80];
	enter(self, _cmd);
	snprintf(s, sizeof s, "the script says %ld", number);
	id r = autorelease(string(s), _cmd);
	leave();
	return r;
}
@end

@implementation FArray
- (NSUInteger)count
{
	enter(self, _cmd);
	leave();
	return n;
}
- (id)objectAtIndex:(NSUInteger)i
{
	enter(self, _cmd);
	if (i >= n)
		breaks("index %lu of an array of %lu", i, n);
	id r = i < n ? list[i] : nil;
	leave();
	return r;
}
@end

@implementation FBuffer
- (void *)contents
{
	enter(self, _cmd);
	if (private)
		breaks("contents of a private buffer");
	void *r = private || is_nil(_cmd) ? NULL : bytes;
	leave();
	return r;
}
@end

static struct timespec in_ms(uint64_t ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

@implementation FEvent
- (uint64_t)signaledValue
{
	enter(self, _cmd);
	uint64_t r = value;
	leave();
	return r;
}
- (void)setSignaledValue:(uint64_t)v
{
	enter(self, _cmd);
	value = v;
	by_host = YES;
	pthread_cond_broadcast(&changed);
	leave();
}
- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms
{
	enter(self, _cmd);
	struct timespec t = in_ms(ms);
	while (value < v && pthread_cond_timedwait(&changed, &big, &t) == 0)
		;
	BOOL r = value >= v;
	leave();
	return r;
}
@end

// The device: a thread that runs the newest command buffer that can go on.

static FCommandBuffer *newest;

static BOOL blocked(FCommandBuffer *c)
{
	if (c->next == c->n || c->fails)
		return NO;
	struct step *s = &c->steps[c->next];
	return s->kind == Wait && ((FEvent *)s->a)->value < s->value;
}

static void finish(FCommandBuffer *c)
{
	if (script.lag) {
		leave();
		usleep(script.lag);
		pthread_mutex_lock(&big);
	}
	c->state = c->fails ? 5 : 4;
	c->queue->outstanding--;
	*(c->newer ? &c->newer->older : &newest) = c->older;
	if (c->older)
		c->older->newer = c->newer;
	drop(c);
}

static void run(FCommandBuffer *c)
{
	for (; c->next < c->n && !blocked(c) && !c->fails; c->next++) {
		struct step *s = &c->steps[c->next];
		FBuffer *a = (FBuffer *)s->a, *b = (FBuffer *)s->b;
		FEvent *e = (FEvent *)s->a;
		switch (s->kind) {
		case Copy:
			leave();
			memcpy(a->bytes + s->to, b->bytes + s->from, s->n);
			pthread_mutex_lock(&big);
			break;
		case Fill:
			leave();
			memset(a->bytes + s->to, s->value, s->n);
			pthread_mutex_lock(&big);
			break;
		case Signal:
			if (!e->by_host && s->value <= e->value)
				breaks("an event goes from %lu to %lu", e->value, s->value);
			if (s->value > e->value)
				e->value = s->value;
			break;
		}
		pthread_cond_broadcast(&changed);
	}
}

static void *work(void *unused)
{
	pthread_mutex_lock(&big);
	for (;;) {
		FCommandBuffer *c = newest;
		while (c && blocked(c))
			c = c->older;
		if (!c) {
			pthread_cond_wait(&changed, &big);
			continue;
		}
		if (script.delay) {
			leave();
			usleep(script.delay);
			pthread_mutex_lock(&big);
		}
		run(c);
		if (c->next == c->n || c->fails)
			finish(c);
		pthread_cond_broadcast(&changed);
	}
	return unused;
}

static void start(void)
{
	sigset_t all, old;
	pthread_t thread;
	sigfillset(&all); // Go's signals are for Go's threads
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_create(&thread, NULL, work, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

@implementation FQueue
- (id)commandBuffer
{
	enter(self, _cmd);
	FCommandBuffer *c = nil;
	if (outstanding >= most)
		breaks("a command buffer more than the %lu of its queue: Metal blocks here", most);
	if (!is_nil(_cmd)) {
		c = make(CommandBuffer);
		c->queue = hold(self);
		outstanding++;
		autorelease(c, _cmd);
	}
	leave();
	return c;
}
@end

@implementation FCommandBuffer
- (struct step *)step:(int)what of:(SEL)s
{
	if (state > 1)
		breaks("%s after commit", sel_getName(s));
	if (what >= Wait && encoder)
		breaks("%s while an encoder is open", sel_getName(s));
	steps = realloc(steps, (n + 1) * sizeof *steps);
	memset(&steps[n], 0, sizeof *steps);
	steps[n].kind = what;
	return &steps[n++];
}
- (id)blitCommandEncoder
{
	enter(self, _cmd);
	FBlit *e = nil;
	if (state > 1)
		breaks("%s after commit", sel_getName(_cmd));
	if (encoder)
		breaks("an encoder while another one is open");
	if (!is_nil(_cmd)) {
		encoder = e = make(Blit);
		e->buffer = hold(self);
		autorelease(e, _cmd);
	}
	leave();
	return e;
}
- (void)encodeWaitForEvent:(id)e value:(uint64_t)v
{
	enter(self, _cmd);
	struct step *s = [self step:Wait of:_cmd];
	s->a = hold(e);
	s->value = v;
	leave();
}
- (void)encodeSignalEvent:(id)e value:(uint64_t)v
{
	enter(self, _cmd);
	struct step *s = [self step:Signal of:_cmd];
	s->a = hold(e);
	s->value = v;
	leave();
}
- (void)commit
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
	enter(self, _cmd);
	if (state > 1) {
		breaks("commit twice");
		leave();
		return;
	}
	if (encoder)
		breaks("commit while an encoder is open");
	state = 2;
	if (--script.fail_after == 0)
		fails = script.fail_code;
	older = newest;
	if (older)
		older->newer = self;
	newest = hold(self);
	pthread_cond_broadcast(&changed);
	leave();
}
- (void)waitUntilCompleted
{
	enter(self, _cmd);
	if (state < 2)
		breaks("waitUntilCompleted before commit");
	else
		while (state < 4)
			pthread_cond_wait(&changed, &big);
	leave();
}
- (NSUInteger)status
{
	enter(self, _cmd);
	NSUInteger r = state;
	leave();
	return r;
}
- (id)error
{
	enter(self, _cmd);
	FError *e = nil;
	if (state == 5) {
		e = make(Error);
		e->number = fails;
		autorelease(e, _cmd);
	}
	leave();
	return e;
}
@end

// range looks at one side of a blit.
static void range(SEL s, const char *what, FObject *b, NSUInteger off, NSUInteger n)
{
	if (!b || b->kind != Buffer || b->refs <= 0)
		breaks("%s: the %s is no buffer", sel_getName(s), what);
	else if (n == 0 || off > ((FBuffer *)b)->n || n > ((FBuffer *)b)->n - off)
		breaks("%s: %lu bytes at %lu of a %s of %lu", sel_getName(s), n, off, what, ((FBuffer *)b)->n);
	if ((off | n) & 3)
		breaks("%s: %lu bytes at %lu of the %s are not multiples of four", sel_getName(s), n, off, what);
}

@implementation FBlit
- (void)copyFromBuffer:(id)src sourceOffset:(NSUInteger)from toBuffer:(id)dst destinationOffset:(NSUInteger)to size:(NSUInteger)n
{
	enter(self, _cmd);
	if (ended)
		breaks("%s after endEncoding", sel_getName(_cmd));
	range(_cmd, "source", src, from, n);
	range(_cmd, "destination", dst, to, n);
	if (src == dst && from < to + n && to < from + n)
		breaks("%s: %lu bytes at %lu and %lu overlap", sel_getName(_cmd), n, from, to);
	struct step *s = [buffer step:Copy of:_cmd];
	s->a = hold(dst);
	s->b = hold(src);
	s->to = to;
	s->from = from;
	s->n = n;
	leave();
}
- (void)fillBuffer:(id)dst range:(NSRange)r value:(uint8_t)v
{
	enter(self, _cmd);
	if (ended)
		breaks("%s after endEncoding", sel_getName(_cmd));
	range(_cmd, "destination", dst, r.location, r.length);
	struct step *s = [buffer step:Fill of:_cmd];
	s->a = hold(dst);
	s->to = r.location;
	s->n = r.length;
	s->value = v;
	leave();
}
- (void)endEncoding
{
	enter(self, _cmd);
	if (ended)
		breaks("endEncoding twice");
	ended = YES;
	buffer->encoder = NULL;
	leave();
}
@end

@implementation FDevice
- (id)name
{
	char s[80];
	enter(self, _cmd);
	snprintf(s, sizeof s, "Fake Metal %lu", index);
	id r = autorelease(string(s), _cmd);
	leave();
	return r;
}
- (uint64_t)registryID
{
	enter(self, _cmd);
	leave();
	return 0x100000000 + index;
}
- (BOOL)hasUnifiedMemory
{
	enter(self, _cmd);
	leave();
	return script.unified;
}
- (uint64_t)recommendedMaxWorkingSetSize
{
	enter(self, _cmd);
	leave();
	return script.working_set;
}
- (NSUInteger)maxBufferLength
{
	enter(self, _cmd);
	leave();
	return script.max_buffer;
}
- (NSUInteger)currentAllocatedSize
{
	enter(self, _cmd);
	NSUInteger r = script.allocated;
	leave();
	return r;
}
- (id)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n
{
	enter(self, _cmd);
	FQueue *q = nil;
	if (!is_nil(_cmd)) {
		q = make(Queue);
		q->most = n;
	}
	leave();
	return q;
}
- (id)newSharedEvent
{
	enter(self, _cmd);
	id e = is_nil(_cmd) ? nil : make(Event);
	leave();
	return e;
}
- (id)newBufferWithLength:(NSUInteger)n options:(NSUInteger)o
{
	enter(self, _cmd);
	FBuffer *b = nil;
	NSUInteger size = (n + 16383) & ~16383UL;
	if (n == 0)
		breaks("a buffer of no bytes");
	if (n > script.max_buffer)
		breaks("a buffer of %lu bytes, of %lu", n, script.max_buffer);
	if (o != 0 && o != 32)
		breaks("options %lu", o);
	if (!is_nil(_cmd) && n > 0 && n <= script.max_buffer && script.allocated + size <= script.heap) {
		void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != MAP_FAILED) {
			memset(p, 0xDB, n);
			b = make(Buffer);
			b->bytes = p;
			b->n = n;
			b->size = size;
			b->private = o == 32;
			script.allocated += size;
		}
	}
	leave();
	return b;
}
- (id)newBufferWithBytesNoCopy:(void *)p length:(NSUInteger)n options:(NSUInteger)o deallocator:(id)d
{
	enter(self, _cmd);
	FBuffer *b = nil;
	NSUInteger page = sysconf(_SC_PAGESIZE);
	if (n == 0 || n % page || (NSUInteger)p % page)
		breaks("%lu bytes at %lu are not whole pages", n, (NSUInteger)p);
	if (o != 0 || d)
		breaks("options %lu or a deallocator for the caller's memory", o);
	if (!is_nil(_cmd)) {
		b = make(Buffer);
		b->bytes = p;
		b->n = n;
		b->borrowed = YES;
	}
	leave();
	return b;
}
@end

// The functions that macOS has under these names.

static id device(NSUInteger i)
{
	FDevice *d = make(Device);
	d->index = i;
	return d;
}

id MTLCreateSystemDefaultDevice(void)
{
	pthread_mutex_lock(&big);
	id d = script.none || script.devices == 0 ? nil : device(0);
	leave();
	return d;
}

id MTLCopyAllDevices(void)
{
	pthread_mutex_lock(&big);
	FArray *a = make(Array);
	// The default one comes last here.
	for (; a->n < script.devices; a->n++)
		a->list[a->n] = device(script.devices - 1 - a->n);
	leave();
	return a;
}

void *objc_autoreleasePoolPush(void)
{
	struct pool *p = calloc(1, sizeof *p);
	p->thread = pthread_self();
	pthread_mutex_lock(&big);
	pools++;
	leave();
	p->below = innermost();
	return top = p;
}

void objc_autoreleasePoolPop(void *pool)
{
	struct pool *p = pool;
	pthread_mutex_lock(&big);
	if (p->gone) {
		breaks("a pool is popped twice");
		leave();
		return;
	}
	if (p->thread != pthread_self())
		breaks("a pool is popped on another thread than it was pushed on");
	else if (p != innermost())
		breaks("a pool is popped that is not the innermost");
	p->gone = 1;
	pools--;
	for (size_t i = p->n; i-- > 0;) {
		if (p->list[i]->refs <= 0)
			breaks("a pool's %s was released already", classes[p->list[i]->kind]);
		else
			drop(p->list[i]);
	}
	free(p->list);
	leave();
}

// For the test.

void fake_setup(long devices, long none, long unified, unsigned long max_buffer, unsigned long working_set, unsigned long heap)
{
	pthread_mutex_lock(&big);
	unsigned long allocated = script.allocated;
	memset(&script, 0, sizeof script);
	script.allocated = allocated;
	script.devices = devices;
	script.none = none;
	script.unified = unified;
	script.max_buffer = max_buffer;
	script.working_set = working_set;
	script.heap = heap;
	broken_length = 0;
	broken[0] = 0;
	leave();
}

void fake_slow(unsigned long delay, unsigned long lag)
{
	pthread_mutex_lock(&big);
	script.delay = delay;
	script.lag = lag;
	leave();
}

// From the nth such message on all of them answer nil; 0 ends it.
void fake_nil(const char *selector, long nth)
{
	pthread_mutex_lock(&big);
	snprintf(script.nil_selector, sizeof script.nil_selector, "%s", selector);
	script.nil_after = nth;
	leave();
}

// The nth command buffer from now on fails with a code.
void fake_fail(long nth, long code)
{
	pthread_mutex_lock(&big);
	script.fail_after = nth;
	script.fail_code = code;
	leave();
}

// What was broken since the last call, a line each.
const char *fake_broken(void)
{
	static char text[sizeof broken];
	pthread_mutex_lock(&big);
	memcpy(text, broken, broken_length + 1);
	broken_length = 0;
	broken[0] = 0;
	leave();
	return text;
}

// What is there, by class; empty where nothing is.
const char *fake_live(void)
{
	static char text[400];
	size_t n = 0;
	text[0] = 0;
	pthread_mutex_lock(&big);
	for (int i = 0; i < Kinds; i++)
		if (live[i])
			n += snprintf(text + n, sizeof text - n, "%ld %s ", live[i], classes[i]);
	if (pools)
		snprintf(text + n, sizeof text - n, "%ld pools", pools);
	leave();
	return text;
}

// The types of a method as the runtime encodes them, or nothing.
const char *fake_types(const char *class, SEL s)
{
	Method m = class_getInstanceMethod(objc_getClass(class), s);
	return m ? method_getTypeEncoding(m) : "";
}
