package track

import (
	"strings"
	"testing"

	"github.com/go-fuel/fuel/internal/check"
)

func TestNothingIsRecordedWhileNobodyAsks(t *testing.T) {
	defer check.Set(check.Set(false))
	if r := Add("cpu", "heap", 1); r != nil {
		t.Errorf("%v", r)
	}
	Remove(nil)
}

func TestARecordNamesItsAllocator(t *testing.T) {
	stop := Start()
	defer stop()
	mark := Mark()
	r := allocator()
	rs := Since(mark)
	if len(rs) != 1 || rs[0] != r {
		t.Fatalf("%v", rs)
	}
	if s := r.String(); !strings.Contains(s, "7 bytes of heap memory on cpu") || !strings.Contains(s, "TestARecordNamesItsAllocator") {
		t.Error(s)
	}
	if rs := Since(Mark()); len(rs) != 0 {
		t.Errorf("after a new mark: %v", rs)
	}
	Remove(r)
	if rs := Since(mark); len(rs) != 0 {
		t.Errorf("after Remove: %v", rs)
	}
}

func allocator() *Record { return constructor() }

func constructor() *Record { return Add("cpu", "heap", 7) }
