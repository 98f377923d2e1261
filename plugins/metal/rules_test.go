//go:build linux && amd64 && !fuel_static

package metal

import (
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A bench is what the rules are broken with.
type bench struct {
	*fake
	device, queue, event object
	a, b                 object // shared buffers of 64 bytes
}

// sends is pool for one message.
func (b *bench) sends(to object, msg message, args ...uintptr) (result object) {
	b.pool(func() { result = b.get(to, msg, args...) })
	return result
}

// work calls f with a new command buffer, in a pool.
func (b *bench) work(f func(c object)) {
	b.pool(func() { f(b.get(b.queue, commandBuffer)) })
}

// blit calls f with a new encoder and ends it.
func (b *bench) blit(f func(e object)) {
	b.work(func(c object) {
		e := b.get(c, blitCommandEncoder)
		f(e)
		b.send(e, endEncoding)
	})
}

func newBench(t *testing.T, m machine) *bench {
	b := &bench{fake: newFake(t, m)}
	b.device = b.defaultDevice()
	b.queue = b.sends(b.device, newCommandQueue, 4)
	b.event = b.sends(b.device, newSharedEvent)
	b.a = b.sends(b.device, newBuffer, 64, storageShared)
	b.b = b.sends(b.device, newBuffer, 64, storageShared)
	t.Cleanup(func() {
		for _, o := range []object{b.a, b.b, b.event, b.queue, b.device} {
			b.sends(o, release)
		}
	})
	return b
}

// Every rule of the fake, broken on purpose.
func TestFakeMissesNoBrokenRule(t *testing.T) {
	rules := map[string]struct {
		do   func(b *bench)
		want []string // parts of what the fake says, a line each
	}{
		"no pool": {
			func(b *bench) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				b.send(b.device, registryID)
			},
			[]string{"registryID is sent without an autorelease pool"},
		},
		"autoreleased without a pool": {
			func(b *bench) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				c := b.get(b.queue, commandBuffer)
				b.sends(c, release)
			},
			[]string{"commandBuffer is sent without", "commandBuffer leaks"},
		},
		"pool of another thread": {
			func(b *bench) {
				pool, done := make(chan uintptr), make(chan bool)
				go func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					pool <- b.push()
					<-done // this thread is busy meanwhile
				}()
				b.pop(<-pool)
				close(done)
			},
			[]string{"popped on another thread"},
		},
		"pool twice": {
			func(b *bench) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				p := b.push()
				b.pop(p)
				b.pop(p)
			},
			[]string{"popped twice"},
		},
		"pool not the innermost": {
			func(b *bench) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				outer, inner := b.push(), b.push()
				b.pop(outer)
				b.pop(inner)
			},
			[]string{"not the innermost"},
		},
		"released too often": {
			func(b *bench) {
				extra := b.sends(b.device, newBuffer, 64, storageShared)
				b.sends(extra, release)
				b.sends(extra, release)
			},
			[]string{"release is sent to a released FBuffer"},
		},
		"released what the pool has": {
			func(b *bench) { b.work(func(c object) { b.send(c, release) }) },
			[]string{"a pool's FCommandBuffer was released already"},
		},
		"used after the pool": {
			func(b *bench) {
				var c object
				b.work(func(o object) { c = o })
				b.sends(c, status)
			},
			[]string{"status is sent to a released FCommandBuffer"},
		},
		"index too large": {
			func(b *bench) {
				all := b.allDevices()
				b.sends(all, objectAtIndex, 1)
				b.sends(all, release)
			},
			[]string{"index 1 of an array of 1"},
		},
		"contents of private memory": {
			func(b *bench) {
				p := b.sends(b.device, newBuffer, 64, storagePrivate)
				if b.sends(p, contents) != 0 {
					b.t.Error("private memory has contents")
				}
				b.sends(p, release)
			},
			[]string{"contents of a private buffer"},
		},
		"empty buffer": {
			func(b *bench) {
				if b.sends(b.device, newBuffer, 0, storageShared) != 0 {
					b.t.Error("there is an empty buffer")
				}
			},
			[]string{"a buffer of no bytes"},
		},
		"long buffer": {
			func(b *bench) { b.sends(b.device, newBuffer, 128<<20+1, storageShared) },
			[]string{"a buffer of 134217729 bytes"},
		},
		"options": {
			func(b *bench) { b.sends(b.sends(b.device, newBuffer, 64, 7), release) },
			[]string{"options 7"},
		},
		"not whole pages": {
			func(b *bench) {
				addr := b.sends(b.a, contents)
				b.sends(b.sends(b.device, newBufferNoCopy, uintptr(addr)+4, 16384, storageShared, 0), release)
				b.sends(b.sends(b.device, newBufferNoCopy, uintptr(addr), 64, storageShared, 0), release)
			},
			[]string{"16384 bytes at", "64 bytes at"},
		},
		"a deallocator": {
			func(b *bench) {
				b.sends(b.sends(b.device, newBufferNoCopy, uintptr(b.sends(b.a, contents)), 16384, storageShared, uintptr(b.a)), release)
			},
			[]string{"or a deallocator"},
		},
		"too many command buffers": {
			func(b *bench) {
				b.pool(func() {
					for range 5 {
						b.get(b.queue, commandBuffer)
					}
				})
			},
			[]string{"a command buffer more than the 4"},
		},
		"event goes back": {
			func(b *bench) {
				b.work(func(c object) {
					b.send(c, encodeSignalEvent, uintptr(b.event), 2)
					b.send(c, encodeSignalEvent, uintptr(b.event), 1)
					b.send(c, commit)
					b.send(c, waitUntilCompleted)
				})
			},
			[]string{"an event goes from 2 to 1"},
		},
		"encoded after commit": {
			func(b *bench) {
				b.work(func(c object) {
					b.send(c, commit)
					b.send(c, waitUntilCompleted)
					b.send(c, encodeSignalEvent, uintptr(b.event), 1)
					b.send(c, encodeWaitForEvent, uintptr(b.event), 1)
					b.send(b.get(c, blitCommandEncoder), endEncoding)
				})
			},
			[]string{"encodeSignalEvent:value: after commit", "encodeWaitForEvent:value: after commit", "blitCommandEncoder after commit"},
		},
		"committed twice": {
			func(b *bench) {
				b.work(func(c object) { b.send(c, commit); b.send(c, commit) })
			},
			[]string{"commit twice"},
		},
		"waited before commit": {
			func(b *bench) { b.work(func(c object) { b.send(c, waitUntilCompleted) }) },
			[]string{"waitUntilCompleted before commit"},
		},
		"encoder open": {
			func(b *bench) {
				b.work(func(c object) {
					e := b.get(c, blitCommandEncoder)
					b.send(c, encodeWaitForEvent, uintptr(b.event), 0)
					b.send(c, encodeSignalEvent, uintptr(b.event), 1)
					b.send(c, commit)
					b.send(c, waitUntilCompleted)
					b.send(e, endEncoding)
				})
			},
			[]string{"encodeWaitForEvent:value: while an encoder is open", "encodeSignalEvent:value: while an encoder is open", "commit while an encoder is open"},
		},
		"two encoders": {
			func(b *bench) {
				b.work(func(c object) {
					e := b.get(c, blitCommandEncoder)
					b.send(b.get(c, blitCommandEncoder), endEncoding)
					b.send(e, endEncoding)
				})
			},
			[]string{"an encoder while another one is open"},
		},
		"encoder not ended": {
			func(b *bench) { b.work(func(c object) { b.get(c, blitCommandEncoder) }) },
			[]string{"an encoder is released without endEncoding"},
		},
		"encoder ended twice": {
			func(b *bench) { b.blit(func(e object) { b.send(e, endEncoding) }) },
			[]string{"endEncoding twice"},
		},
		"blit after the end": {
			func(b *bench) {
				b.blit(func(e object) {
					b.send(e, endEncoding)
					b.send(e, fillBuffer, uintptr(b.a), 0, 4, 1)
					b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.b), 0, 4)
				})
			},
			[]string{"fillBuffer:range:value: after endEncoding", "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size: after endEncoding", "endEncoding twice"},
		},
		"copy not of fours": {
			func(b *bench) {
				b.blit(func(e object) {
					b.send(e, copyFromBuffer, uintptr(b.a), 2, uintptr(b.b), 0, 4)
					b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.b), 2, 4)
					b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.b), 0, 6)
				})
			},
			[]string{"4 bytes at 2 of the source are not", "4 bytes at 2 of the destination are not", "6 bytes at 0 of the source are not", "6 bytes at 0 of the destination are not"},
		},
		"fill not of fours": {
			func(b *bench) {
				b.blit(func(e object) {
					b.send(e, fillBuffer, uintptr(b.a), 1, 4, 1)
					b.send(e, fillBuffer, uintptr(b.a), 4, 1, 1)
				})
			},
			[]string{"4 bytes at 1 of the destination are not", "1 bytes at 4 of the destination are not"},
		},
		"copy outside": {
			func(b *bench) {
				b.blit(func(e object) {
					b.send(e, copyFromBuffer, uintptr(b.a), 64, uintptr(b.b), 0, 4)
					b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.b), 60, 8)
					b.send(e, fillBuffer, uintptr(b.a), 0, 0, 1)
				})
			},
			[]string{"4 bytes at 64 of a source of 64", "8 bytes at 60 of a destination of 64", "0 bytes at 0 of a destination"},
		},
		"copy overlaps": {
			func(b *bench) {
				b.blit(func(e object) { b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.a), 4, 8) })
			},
			[]string{"8 bytes at 0 and 4 overlap"},
		},
		"no buffer": {
			func(b *bench) {
				b.blit(func(e object) {
					b.send(e, copyFromBuffer, 0, 0, uintptr(b.a), 0, 4)
					b.send(e, fillBuffer, uintptr(b.event), 0, 4, 1)
				})
			},
			[]string{"the source is no buffer", "the destination is no buffer"},
		},
		"no rule": {func(b *bench) {
			b.blit(func(e object) {
				b.send(e, fillBuffer, uintptr(b.a), 4, 8, 1)
				b.send(e, copyFromBuffer, uintptr(b.a), 0, uintptr(b.a), 8, 8)
			})
		}, nil},
	}
	var said []string
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, machine{mayBreak: true})
			r.do(b)
			text := b.broken()
			said = append(said, text)
			got := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
			if !slices.EqualFunc(got, r.want, strings.Contains) {
				t.Errorf("got %q, want %q", got, r.want)
			}
		})
	}
	if t.Skipped() || noFake != "" {
		return
	}
	// There is no rule that was not broken here.
	source, err := os.ReadFile("testdata/fake.m")
	if err != nil {
		t.Fatal(err)
	}
	formats := regexp.MustCompile(`breaks\("([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(formats) < 20 {
		t.Fatalf("%d rules in the fake", len(formats))
	}
	for _, f := range formats {
		line := regexp.MustCompile("(?m)^" + regexp.MustCompile(`%l?[us]`).ReplaceAllString(regexp.QuoteMeta(f[1]), ".+") + "$")
		if !line.MatchString(strings.Join(said, "")) {
			t.Errorf("the rule %q was never broken", f[1])
		}
	}
}

// What the fake does without a word.
func TestFakeIsNeverKinderThanMetal(t *testing.T) {
	b := newBench(t, machine{delay: 2000})
	bytes := func(o object) []byte {
		return (*[64]byte)(foreign(uintptr(b.sends(o, contents))))[:]
	}
	if got := bytes(b.a)[0]; got != 0xDB {
		t.Errorf("fresh memory holds %#x", got)
	}
	// Two that wait for nothing run newest first, and not before commit.
	b.pool(func() {
		var list []object
		for v := range uintptr(3) {
			c := b.get(b.queue, commandBuffer)
			e := b.get(c, blitCommandEncoder)
			b.send(e, fillBuffer, uintptr(b.a), 0, 64, v)
			b.send(e, endEncoding)
			list = append(list, c)
		}
		time.Sleep(5 * time.Millisecond)
		if got := bytes(b.a)[0]; got != 0xDB {
			t.Errorf("work ran before commit: %#x", got)
		}
		for _, c := range list {
			b.send(c, commit)
		}
		for _, c := range list {
			b.send(c, waitUntilCompleted)
		}
	})
	if got := bytes(b.a)[0]; got == 2 {
		t.Errorf("command buffers run in order without waiting for each other")
	}
	if s := b.live(); s != "1 FDevice 1 FQueue 2 FBuffer 1 FEvent" {
		t.Errorf("objects: %q", s)
	}
	// A pool that is never popped, and an object that is never released.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := b.push()
	b.send(b.a, retain)
	b.send(b.a, release)
	if s := b.live(); !strings.HasSuffix(s, "1 pools") {
		t.Errorf("objects: %q", s)
	}
	b.pop(pool)
	// Work that fails signals nothing.
	b.failAt(1, 2)
	b.work(func(c object) {
		b.send(c, encodeSignalEvent, uintptr(b.event), 1)
		b.send(c, commit)
		b.send(c, waitUntilCompleted)
		if s := b.send(c, status); s != statusError {
			t.Errorf("status %d", s)
		}
		if n := b.send(b.get(c, errorOf), code); n != 2 {
			t.Errorf("code %d", n)
		}
		if b.send(b.event, waitUntilSignaledValue, 1, 1).Bool() {
			t.Error("failed work has signaled")
		}
	})
}

// The fake's methods have the types of the table, so what runs here runs on a Mac.
func TestFakeNeverHasOtherSignatures(t *testing.T) {
	f := newFake(t, machine{})
	classes := map[string]string{
		"NSObject": "FObject", "NSArray": "FArray", "NSString": "FString", "NSError": "FError", "MTLDevice": "FDevice",
		"MTLBuffer": "FBuffer", "MTLSharedEvent": "FEvent", "MTLCommandQueue": "FQueue", "MTLCommandBuffer": "FCommandBuffer",
		"MTLBlitCommandEncoder": "FBlit", "MTLCommandEncoder": "FBlit",
	}
	for i, s := range messages {
		checkEncoding(t, s, f.types(classes[s.class], message(i)))
	}
}
