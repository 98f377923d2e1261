package fuel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
)

// A file cannot be mapped here, so it is read, and may be more than there are
// addresses for.
func TestAFileBeyondTheMemoryIsAnError(t *testing.T) {
	for _, size := range []int64{1<<32 - 63, 5 << 30} {
		header := fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]}}`, size)
		f := file(t, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
		if err := f.Truncate(int64(8+len(header)) + size); err != nil {
			t.Fatal(err)
		}
		_, err := fuel.Map(f, fuel.U8, 0, int(size))
		wantErr(t, "Map", err, fuel.ErrOutOfMemory)
		if _, err := safetensors.Open(f.Name(), nil); !errors.Is(err, fuel.ErrOutOfMemory) {
			t.Errorf("safetensors.Open: %v", err)
		}
	}
}
