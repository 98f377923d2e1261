package fuel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
)

// That a Plan is what the report then says is held for every pair of memories by
// the part "plan" of fueltest.TestDriver. Here is what it tells a person.
func TestPlanNeverLeavesAReasonOut(t *testing.T) {
	fake := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{Devices: 2})
	fueltest.LeakCheck(t)
	const n = 3 << 20
	on := func(dev fuel.Device) *fuel.Storage { return must(t)(fuel.FromBytes(dev, fuel.U8, count(n))) }
	host, there, next := on(cpu), on(fake.Device(0)), on(fake.Device(1))
	shared := must(t)(on(cpu).Clone())
	sharedThere := on(fake.Device(0))
	must(t)(sharedThere.Clone())
	must(t)(shared.Clone())
	none := must(t)(fuel.Alloc(cpu, fuel.U8, 0, nil))
	for _, c := range []struct {
		dst, src *fuel.Storage
		want     fuel.Plan
	}{
		{none, none, fuel.Plan{Reason: "there are no bytes"}},
		{host, on(cpu), fuel.Plan{Bytes: n, Path: fuel.PathHost, Reason: "both are in host memory"}},
		{there, host, fuel.Plan{Bytes: n, Path: fuel.PathUpload, Staged: n, Staging: 1 << 20,
			Reason: "vulkan:0: the host cannot reach its memory, so 3 MiB go through 1 MiB of staging memory"}},
		{host, there, fuel.Plan{Bytes: n, Path: fuel.PathDownload, Staged: n, Staging: 1 << 20,
			Reason: "vulkan:0: the host cannot reach its memory, so 3 MiB go through 1 MiB of staging memory"}},
		{there, on(fake.Device(0)), fuel.Plan{Bytes: n, Path: fuel.PathDevice, Reason: "both are on vulkan:0, which copies itself"}},
		{next, there, fuel.Plan{Bytes: n, Path: fuel.PathBounce, Staged: n, Staging: 1 << 20,
			Reason: "vulkan:0 and vulkan:1 do not reach each other's memory, so 3 MiB go through 1 MiB of host memory"}},
		{sharedThere, there, fuel.Plan{Bytes: n, Path: fuel.PathDevice, Private: true, PrivateBytes: n,
			Reason: "the destination is shared with 1 more, so it first gets 3 MiB of its own; both are on vulkan:0, which copies itself"}},
		{shared, host, fuel.Plan{Bytes: n, Path: fuel.PathHost, Private: true, PrivateBytes: n,
			Reason: "the destination is shared with 2 more, so it first gets 3 MiB of its own; both are in host memory"}},
	} {
		got := value(fuel.PlanCopy(c.dst, c.src))(t)
		if got != c.want {
			t.Errorf("%s to %s:\n got %+v\nwant %+v", c.src, c.dst, got, c.want)
		}
	}
	mapped := memories["mapped"](t, count(n))
	if mapped.Region().Memory == fuel.MemoryMapped {
		for _, c := range []struct {
			dst, src *fuel.Storage
			guarded  bool
			want     string
		}{
			{there, mapped, true, "upload of 3 MiB: the source is a mapped file, which may be truncated, so each read of it is guarded; vulkan:0: the host cannot reach its memory, so 3 MiB go through 1 MiB of staging memory"},
			{host, mapped, true, "host of 3 MiB: the source is a mapped file, which may be truncated, so each read of it is guarded; both are in host memory"},
			{mapped, host, false, "host of 3 MiB: the destination is a mapped file, which is never written, so it first gets 3 MiB of its own; both are in host memory"},
		} {
			got := value(fuel.PlanCopy(c.dst, c.src))(t)
			if got.String() != c.want || got.Guarded != c.guarded {
				t.Errorf("%s to %s:\n got %s\nwant %s", c.src, c.dst, got, c.want)
			}
		}
	}
	fake.Lose()
	_, err := fuel.PlanCopy(host, there)
	if err == nil { // nobody has noticed yet
		_ = there.Zero(t.Context())
		_, err = fuel.PlanCopy(host, there)
	}
	wantErr(t, "PlanCopy from a lost device", err, fuel.ErrDeviceLost)
}

func TestPlanIsReadableByPrograms(t *testing.T) {
	s, d := must(t)(fuel.FromBytes(cpu, fuel.U8, count(7))), must(t)(fuel.FromBytes(cpu, fuel.U8, count(7)))
	p := value(fuel.PlanCopy(d, s))(t)
	b := value(json.Marshal(p))(t)
	if !strings.HasPrefix(string(b), `{"bytes":7,"path":"host","staged":0,`) {
		t.Errorf("%s", b)
	}
	var q fuel.Plan
	if err := json.Unmarshal(b, &q); err != nil || q != p {
		t.Errorf("%+v, %v", q, err)
	}
	if p.String() != "host of 7 bytes: both are in host memory" {
		t.Error(p)
	}
	if none := (fuel.Plan{Reason: "there are no bytes"}); none.String() != "none: there are no bytes" {
		t.Error(none)
	}
}
