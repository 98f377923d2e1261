package cuda

import (
	"reflect"
	"strings"

	"github.com/go-fuel/fuel/internal/dl"
)

// A field is one function of calls.
type field struct {
	name     string
	symbol   string
	classes  []string // of its parameters
	older    string   // another name, or empty
	optional bool
	proc     *dl.Proc
}

func fields(c *calls) (list []field) {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		words := strings.Fields(tag.Get("c"))
		_, optional := tag.Lookup("optional")
		list = append(list, field{v.Type().Field(i).Name, words[0], words[1:], tag.Get("or"), optional, v.Field(i).Addr().Interface().(*dl.Proc)})
	}
	return list
}
