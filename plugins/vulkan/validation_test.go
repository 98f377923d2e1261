package vulkan

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

const validationLayer = "VK_LAYER_KHRONOS_validation"

// validated runs a command with the validation layer in it, synchronization
// validation included, and returns what the layer says and what the command
// prints. Messages go to the pipe that is its standard error: a callback would be
// C calling Go, and a file has only those of the last instance, for each begins
// it anew.
func validated(t *testing.T, cmd *exec.Cmd) (messages, output string, err error) {
	t.Helper()
	dir := t.TempDir()
	settings := "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n" +
		"khronos_validation.report_flags = error,warn,perf\n" +
		"khronos_validation.log_filename = /dev/stderr\n" +
		"khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n"
	if err := os.WriteFile(filepath.Join(dir, "vk_layer_settings.txt"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "VK_LAYER_SETTINGS_PATH="+dir, "VK_INSTANCE_LAYERS="+validationLayer)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		require.Skip(t, "self-exec", err.Error())
	}
	return said.String(), out.String(), err
}

// needsValidation skips where the layer is not installed.
func needsValidation(t *testing.T) {
	t.Helper()
	lib, err := openLibrary(libraries())
	if err != nil {
		require.Skip(t, "vulkan", err.Error())
	}
	in, err := newInstance(lib, options{cpu: true, layers: []string{validationLayer}})
	var r *callError
	switch {
	case errors.As(err, &r) && r.result == layerNotPresent:
		require.Skip(t, "vulkan-validation", err.Error())
	case err != nil:
		require.Skip(t, "vulkan", err.Error())
	}
	in.destroy()
}

// What runs in validated children: the suite in all ways of a transfer, work of a
// user's own, and the sweeps. Not what has a kernel wait for the host: see aboutUs.
const validatedTests = "^(TestConformance|TestUsersWorkNeverReachesAClone|TestFillNever.*|TestCopyNever.*)$"

func TestValidationNeverHasAMessage(t *testing.T) {
	needsValidation(t)
	tests := validatedTests
	if race.Enabled {
		tests = "^TestConformance$" // the layer is slow then
	}
	messages, out, err := validated(t, self(t, "-test.run="+tests, "-test.short", "-test.v"))
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, part := range []string{"TestConformance/direct/load", "TestConformance/staged/load", "TestConformance/fences/load"} {
		if !strings.Contains(out, "--- PASS: "+part) {
			t.Errorf("%s did not run:\n%s", part, out)
		}
	}
	if messages = aboutUs(messages); messages != "" {
		t.Errorf("the validation layer says:\n%s", messages)
	}
}

// aboutUs leaves out messages of a fault of the layer's own: version 1.3.239
// waits ten seconds for its queue's thread, which does not always come on a
// busy machine, and says that this is "most likely a validation bug".
func aboutUs(messages string) string {
	var kept strings.Builder
	own := false
	for line := range strings.Lines(messages) {
		if strings.TrimLeft(line, " \t") == line { // a message begins
			own = strings.HasPrefix(line, "UNASSIGNED-VkSemaphore-state-timeout(")
		}
		if !own {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func init() { children["hazard"] = hazard }

// hazard queues two copies into the same bytes with no barrier between them, and
// a fill of what no fill may begin with.
func hazard() {
	d := testDriver(gpu.Config{})
	_, err := d.probe(context.Background())
	check(err)
	p, err := openPort(d.current.devices[0], portOptions{}, d.current.drop)
	check(err)
	a, err := p.Allocate(4096, gpu.Storage)
	check(err)
	b, err := p.Allocate(4096, gpu.Storage)
	check(err)
	c, err := p.batch()
	check(err)
	check(p.call("vkBeginCommandBuffer", p.BeginCommandBuffer.Call(c.commands, uintptr(unsafe.Pointer(c.begin))).Int32()))
	*c.region = bufferCopy{size: 4096}
	p.CmdFillBuffer.Call(c.commands, uintptr(a.ID), 2, 4, 0)
	for range 2 {
		p.CmdCopyBuffer.Call(c.commands, uintptr(a.ID), uintptr(b.ID), 1, uintptr(unsafe.Pointer(c.region)))
	}
	check(p.call("vkEndCommandBuffer", p.EndCommandBuffer.Call(c.commands).Int32()))
	check(p.clock.submit(c, 1))
	p.batches = append(p.batches, c)
	check(p.Await(context.Background(), 1))
	p.Release(b)
	p.Release(a)
	check(p.Close())
	_, err = d.probe(context.Background()) // another instance, of which there is nothing to say
	check(err)
	d.current.drop()
}

// The gate can be red: for a missing barrier and for wrong use of the API.
func TestValidationNeverMissesAHazard(t *testing.T) {
	needsValidation(t)
	cmd := self(t)
	cmd.Env = append(cmd.Env, "FUEL_TEST_CHILD=hazard")
	messages, out, err := validated(t, cmd)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, messages)
	}
	messages = aboutUs(messages)
	for _, want := range []string{"SYNC-HAZARD-WRITE-AFTER-WRITE", "VUID-vkCmdFillBuffer-dstOffset-00025"} {
		if !strings.Contains(messages, want) {
			t.Errorf("no %s in the messages:\n%s", want, messages)
		}
	}
}

// What a call gets stays where it is, also where the collector runs all the
// time and C's pointers are looked at.
func TestCallsNeverGetCollectedMemory(t *testing.T) {
	use(t, testDriver(gpu.Config{}))
	cmd := self(t, "-test.run=^TestConformance$/^(staged|fences)$/^(copy|fill|queue|host_access)$", "-test.short", "-test.v")
	cmd.Env = append(cmd.Env, "GOGC=1", "GODEBUG=invalidptr=1,clobberfree=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestConformance/fences/queue")) {
		t.Errorf("%v\n%s", err, out)
	}
}
