// Command fuel shows what the machine can do with tensors: it puts the tensors
// of a safetensors file on every device, reads them back and compares them, it
// lists the devices, and it tells how a file lies in memory.
//
// "fuel help" has the commands, "fuel help json" the fields of --json.
package main

import (
	"context"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
