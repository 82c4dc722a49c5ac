// A vCenter that is simulated by govmomi's own simulator; it prints its address and ends with its input.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/vmware/govmomi/simulator"
)

func main() {
	model := simulator.VPX()
	if err := model.Create(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := model.Service.NewServer()
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
